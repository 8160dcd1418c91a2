"""This machine's copies of instances of an object store, and the files to upload to it.

    <cache>/instances/<hash of the dataset's place>/instance=<uuid>/part-….parquet
    <cache>/staging/<name>/           files of running builds; safe to remove when none runs

An instance never changes and no file name is used twice, so a copy of the right size stays right. Files come in by a
rename: two processes may fetch the same file at once. The whole cache may be deleted when no build runs."""

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

#: Spark reads lazily: a copy used within this time may be in use now, and is kept beyond the bound.
IN_USE_SECONDS = 24 * 3600
#: Listing many copies takes a while.
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
    """The path of that folder, whether it exists or not."""
    return os.path.join(cache_dir(), "staging")


def copy_path(url: str) -> str:
    """The path of the copy of a file, whether it exists or not."""
    folder, _, name = url.rpartition("/")
    return os.path.join(copies_of(folder), name)


def copies_of(folder_url: str) -> str:
    """The folder of the copies of an instance's files."""
    parent, _, name = folder_url.rpartition("/")
    return os.path.join(cache_dir(), "instances", sha256(parent.encode()).hexdigest()[:16], name)


def is_there(path: str, size_bytes: int | None) -> bool:
    """Whether a whole copy exists, of any size if none is given; if so, it counts as used."""
    try:
        # Use before size: a copy that is being pruned is seen as used, or is gone.
        os.utime(os.path.dirname(path))
        return os.path.getsize(path) == size_bytes or size_bytes is None
    except OSError:
        return False


def fetch(url: str, size_bytes: int, download: Callable[[str, str], None]) -> str:
    """Download a copy: whole, of the manifest's size, or not at all. Raises `ListedFileLost`."""

    def whole(temporary: str) -> None:
        try:
            download(url, temporary)
        except FileNotFoundError as error:
            raise ListedFileLost(path=url, why="it is not there") from error
        found_bytes = os.path.getsize(temporary)
        if found_bytes != size_bytes:
            raise ListedFileLost(path=url, why=f"it has {found_bytes} bytes instead of {size_bytes}")

    return make(copy_path(url), whole)


def make(path: str, write: Callable[[str], None]) -> str:
    """Let `write` make a copy under a temporary name, then rename the whole copy to its path, which is returned."""
    temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.{os.path.basename(path)}")
    disk.make_dirs(os.path.dirname(path))
    try:
        write(temporary)
        # After a loss of power, a name and a size must have their bytes.
        disk.sync_file(temporary)
        disk.move_file(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return path


def keep(staged: str, url: str) -> None:
    """Keep an uploaded file as the copy for the next reader here."""
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
    """Remove the least recently used copies, until the rest takes `limit_bytes` or is in use."""
    copies = sorted(_copies(os.path.join(cache_dir(), "instances")))
    excess_bytes = sum(size for _, size, _ in copies) - limit_bytes
    for used_at, size_bytes, path in copies:
        if excess_bytes <= 0 or now - used_at < IN_USE_SECONDS:
            return
        with suppress(FileNotFoundError):
            if os.path.getmtime(path) != used_at:
                # A reader has used it meanwhile.
                continue
        disk.remove_tree(path)
        excess_bytes -= size_bytes


def max_bytes() -> int:
    """The bound of all copies on this machine, in bytes. Raises `InvalidCacheSize`."""
    text = os.environ.get(SIZE_VARIABLE) or str(DEFAULT_MAX_GIB)
    try:
        size_gib = float(text)
    except ValueError:
        raise InvalidCacheSize(variable=SIZE_VARIABLE, value=text) from None
    if not 0 <= size_gib < float("inf"):
        raise InvalidCacheSize(variable=SIZE_VARIABLE, value=text)
    return int(size_gib * 1024**3)


def _copies(parent: str) -> list[tuple[float, int, str]]:
    """Each copied instance: the time of its last use, its bytes, its folder."""
    found = []
    for dataset in _entries(parent):
        for instance in _entries(dataset.path):
            with suppress(FileNotFoundError):
                used_at = instance.stat().st_mtime
                size_bytes = sum(file.stat(follow_symlinks=False).st_size for file in _entries(instance.path))
                found.append((used_at, size_bytes, instance.path))
    return found


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
