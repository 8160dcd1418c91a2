"""Where this machine keeps copies of instances that lie in an object store, and what it is about to upload.

    <cache>/instances/<hash of the dataset's place>/instance=<uuid>/part-….parquet
    <cache>/staging/<name>/           what is being written; safe to remove when nobody builds

An instance never changes and no file name is used twice, so a copy of the right size is right for ever. Files
come in by a rename: two processes may fetch the same one at once. All of it may be deleted when nothing is being
built: what is needed again is fetched again."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import InvalidCacheSize, ListedFileLost

DIR_VARIABLE = "DATABUILD_CACHE_DIR"
SIZE_VARIABLE = "DATABUILD_CACHE_MAX_GIB"
DEFAULT_MAX_GIB = 20.0

#: Spark reads lazily: what was used within this time may be read right now, and is kept whatever the bound.
IN_USE_SECONDS = 24 * 3600
#: Looking at all copies takes a while where there are many.
PRUNE_INTERVAL_SECONDS = 3600


def cache_dir() -> str:
    """The folder of all copies; an absolute path that may not exist yet."""
    if given := os.environ.get(DIR_VARIABLE):
        return os.path.abspath(os.path.expanduser(given))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.path.abspath(base), "databuild_dagster")


def staging_parent() -> str:
    """The folder below which frames are written before they are uploaded; it exists. Raises `InvalidCacheSize`."""
    max_bytes()
    path = staging_place()
    disk.make_dirs(path)
    return path


def staging_place() -> str:
    """The same folder, whether it exists or not."""
    return os.path.join(cache_dir(), "staging")


def copy_path(url: str) -> str:
    """Where the copy of a file belongs, whether it is there or not."""
    folder, _, name = url.rpartition("/")
    return os.path.join(copies_of(folder), name)


def copies_of(folder_url: str) -> str:
    """Where the copies of an instance's files belong."""
    parent, _, name = folder_url.rpartition("/")
    return os.path.join(cache_dir(), "instances", sha256(parent.encode()).hexdigest()[:16], name)


def is_there(path: str, size_bytes: int) -> bool:
    """Whether a whole copy is there; if so, it counts as used."""
    try:
        # First the use, then the look: what is about to be pruned is seen as used, or as gone.
        os.utime(os.path.dirname(path))
        return os.path.getsize(path) == size_bytes
    except OSError:
        return False


def fetch(url: str, size_bytes: int, download: Callable[[str, str], None]) -> str:
    """Bring a copy in: whole, of the size that the manifest says, or not at all. Raises `ListedFileLost`."""
    path = copy_path(url)
    temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.{os.path.basename(path)}")
    disk.make_dirs(os.path.dirname(path))
    try:
        try:
            download(url, temporary)
        except FileNotFoundError as error:
            raise ListedFileLost(path=url, why="it is not there") from error
        found_bytes = os.path.getsize(temporary)
        if found_bytes != size_bytes:
            raise ListedFileLost(path=url, why=f"it has {found_bytes} bytes instead of {size_bytes}")
        # A loss of power must not leave a name and a size without the bytes.
        disk.sync_file(temporary)
        disk.move_file(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return path


def keep(staged: str, url: str) -> None:
    """What was just uploaded is the copy that the next reader here needs."""
    path = copy_path(url)
    disk.make_dirs(os.path.dirname(path))
    disk.move_file(staged, path)


def prune_sometimes() -> None:
    """`prune`, at most once an hour on this machine."""
    marker = os.path.join(cache_dir(), ".pruned")
    with suppress(OSError):
        if time.time() - os.path.getmtime(marker) < PRUNE_INTERVAL_SECONDS:
            return
    with disk.explained(marker, "written"), open(marker, "wb"):
        os.utime(marker)
    prune(max_bytes(), time.time())


def prune(limit_bytes: int, now: float) -> None:
    """Remove the copies that were not used for longest, until the rest takes `limit_bytes` or is in use."""
    copies = sorted(_copies(os.path.join(cache_dir(), "instances")))
    excess_bytes = sum(size for _, size, _ in copies) - limit_bytes
    for used_at, size_bytes, path in copies:
        if excess_bytes <= 0 or now - used_at < IN_USE_SECONDS:
            return
        with suppress(FileNotFoundError):
            if os.path.getmtime(path) != used_at:
                # Somebody has just come back to it.
                continue
        disk.remove_tree(path)
        excess_bytes -= size_bytes


def max_bytes() -> int:
    """What the copies may take on this machine. Raises `InvalidCacheSize`."""
    text = os.environ.get(SIZE_VARIABLE) or str(DEFAULT_MAX_GIB)
    try:
        size_gib = float(text)
    except ValueError:
        raise InvalidCacheSize(variable=SIZE_VARIABLE, value=text) from None
    if not 0 <= size_gib < float("inf"):
        raise InvalidCacheSize(variable=SIZE_VARIABLE, value=text)
    return int(size_gib * 1024**3)


def _copies(parent: str) -> list[tuple[float, int, str]]:
    """Each instance of which there are copies: when it was used last, its bytes, its folder."""
    found = []
    for dataset in _entries(parent):
        for instance in _entries(dataset.path):
            with suppress(FileNotFoundError):
                used_at = instance.stat().st_mtime
                size_bytes = sum(file.stat().st_size for file in _entries(instance.path))
                found.append((used_at, size_bytes, instance.path))
    return found


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
