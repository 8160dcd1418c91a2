"""The operations on a local disk; each of its errors becomes one sentence.

The module as a whole implements `storage.Storage`, which documents the functions.
pyarrow and Spark open data files themselves."""

import errno
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple

from databuild_dagster.warehouse.errors import DiskFull, DiskNearlyFull, DiskTrouble, ReadOnlyWarehouse
from databuild_dagster.warehouse.threads import R, T


class Listed(NamedTuple):
    """A file of a listing."""

    path: str
    bytes: int
    #: The time of the last write, in seconds since 1970 UTC.
    modified: float
    #: Changes when the file is written again.
    version: str
    #: `<algorithm>:<value>` as an object store gives it.
    checksum: str | None = None


#: Times in a row that other processes may remove the empty folder that is written to. Each time they have finished with
#: a file of their own, so it ends.
MAX_VANISHED = 100

MIB = 1024 * 1024
#: Files that are open at once, and threads that wait for the disk: it answers concurrent requests together.
MAX_OPEN = 256
SYNC_THREADS = 8

_MAY_NOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def staging_parent(root: str) -> str:
    """A folder on the instances' own disk, so that publishing is a rename."""
    path = staging_place(root)
    make_dirs(path)
    return path


def staging_place(root: str) -> str:
    return os.path.join(root, ".staging")


def publish(staging: str, folder: str, names: Iterable[str]) -> None:
    make_dirs(folder)
    for name in names:
        move_file(os.path.join(staging, name), os.path.join(folder, name))


def share(folder: str, into: str, names: Iterable[str]) -> None:
    """Links: no byte is written."""
    make_dirs(into)
    for name in names:
        path = os.path.join(into, name)
        try:
            os.link(os.path.join(folder, name), path)
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskTrouble(path=path, done="linked", why=_reason(error)) from error


def local_copies(files: Sequence[tuple[str, int]]) -> list[str]:
    """The paths themselves; opening an absent one raises."""
    return [path for path, _ in files]


def sizes(folder: str, names: Sequence[str]) -> dict[str, int]:
    """Links are left out: databuild writes none."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name: os.path.getsize(path) for name, path in paths.items() if is_file(path)}


def file_sizes(paths: Sequence[str]) -> dict[str, int]:
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


def find(pattern: str) -> list[tuple[str, int]]:
    found: set[str] = set()
    for path in map(os.path.normpath, glob.iglob(pattern, recursive=True)):
        if is_data(os.path.basename(path)):
            found.add(path)
            if os.path.isdir(path):
                found.update(os.path.join(path, name) for name in os.listdir(path) if is_data(name))
    return [(path, os.path.getsize(path)) for path in sorted(found) if os.path.isfile(path)]


def list_files(folder: str, *, deep: bool, prefix: str = "") -> list[Listed]:
    found: list[Listed] = []
    folders = [folder]
    while folders:
        try:
            listed = folders.pop()
            begins = prefix if listed == folder else ""
            with os.scandir(listed) as entries:
                for entry in entries:
                    if not entry.name.startswith(begins):
                        continue
                    # A file removed meanwhile is absent.
                    with suppress(FileNotFoundError):
                        if entry.is_file():
                            facts = entry.stat()
                            found.append(Listed(entry.path, facts.st_size, facts.st_mtime, str(facts.st_mtime_ns)))
                        elif deep and entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        except FileNotFoundError:
            if not os.path.isdir(folder):
                raise
        except OSError as error:
            raise DiskTrouble(path=folder, done="listed", why=_reason(error)) from error
    return found


def is_data(name: str) -> bool:
    """False for a file that Spark skips: hidden, named like `_SUCCESS`, or not copied by Hadoop yet."""
    return not name.startswith((".", "_")) and not name.endswith("._COPYING_")


def read_range(path: str, start: int, end: int) -> bytes:
    with open_binary(path) as file, explained(path, "read"):
        file.seek(start)
        return file.read(end - start)


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
    return [read_range(*wanted) for wanted in ranges]


def open_binary(path: str) -> BinaryIO:
    try:
        return open(path, "rb", opener=_open_at_once)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskTrouble(path=path, done="read", why=_reason(error)) from error


def _open_at_once(path: str, flags: int) -> int:
    """Without the wait for a writer that a named pipe in the place of a file would have."""
    return os.open(path, flags | os.O_NONBLOCK)


def checksum(path: str) -> str:
    with open_binary(path) as file, explained(path, "read"):
        return checksum_of(file)


def checksum_of(file: Any) -> str:
    """The checksum of an open file's bytes, from its place to its end."""
    return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def for_each(do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Call `do` in order, without threads: for a small file, a thread costs more than the disk."""
    return [do(item) for item in items]


def make_dirs(path: str) -> None:
    """Create a folder and its parents, unless they exist."""
    with explained(path, "created"):
        try:
            os.mkdir(path)
        except (FileExistsError, FileNotFoundError):
            os.makedirs(path, exist_ok=True)


def check_space(path: str, needed_bytes: int) -> None:
    """Raises `DiskNearlyFull` if less than that is free on the disk of a folder."""
    with explained(path, "looked at"):
        free_bytes = shutil.disk_usage(path).free
    if free_bytes < needed_bytes:
        raise DiskNearlyFull(path=path, free=f"{free_bytes / MIB:.1f}", needed=f"{needed_bytes / MIB:g}")


def move_file(source: str, target: str) -> None:
    """Rename within one disk: a reader sees the whole file or none."""
    with explained(target, "written"):
        os.rename(source, target)


def create_only(path: str, contents: bytes) -> bool:
    """After True the file survives a loss of power.

    It is a link to a finished temporary file: with O_EXCL, readers would see it half written.
    """
    folder = os.path.dirname(path)
    make_dirs(folder)
    with explained(path, "written"):
        with _written_beside(path, contents) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        sync_dir(folder)
    return True


def create_each(files: Sequence[tuple[str, bytes]]) -> list[bool]:
    """`create_only` of many, in half the time: all are written before any is synced, so that a journal writes many at once.

    Each file is synced before it has its name, and each folder afterwards.
    """
    created: list[bool] = []
    for start in range(0, len(files), MAX_OPEN):
        created += _create_some(files[start : start + MAX_OPEN])
    return created


def try_to_create_each(files: Sequence[tuple[str, bytes]]) -> list[bool | Exception]:
    """An error is the answer for every file: a retry finds the files that were created."""
    try:
        return [*create_each(files)]
    except DiskTrouble as error:
        return [error] * len(files)


def _create_some(files: Sequence[tuple[str, bytes]]) -> list[bool]:
    if len(files) == 1:
        return [create_only(*files[0])]
    created = []
    with ExitStack() as temporaries, ThreadPoolExecutor(SYNC_THREADS, "databuild disk") as threads:
        opened = []
        for path, contents in files:
            make_dirs(os.path.dirname(path))
            with explained(path, "written"):
                temporary = _temporary_of(path)
                descriptor = os.open(temporary, _NEW, 0o644)
                temporaries.callback(_unlink_if_there, temporary)
                file = temporaries.enter_context(os.fdopen(descriptor, "wb"))
                file.write(contents)
                file.flush()
                opened.append((path, temporary, file))
        _for_some(threads, _sync_one, opened)
        for path, temporary, file in opened:
            with explained(path, "written"):
                file.close()
                try:
                    os.link(temporary, path)
                    created.append(True)
                except FileExistsError:
                    created.append(False)
                os.unlink(temporary)
        _for_some(threads, sync_dir, list({os.path.dirname(path): None for path, _ in files}))
    return created


def _for_some(threads: ThreadPoolExecutor, do: Callable[[T], None], items: Sequence[T]) -> None:
    """An equal share of the items to each thread: a future per item costs more than the call."""

    def do_some(some: Sequence[T]) -> None:
        for item in some:
            do(item)

    list(threads.map(do_some, [items[first::SYNC_THREADS] for first in range(SYNC_THREADS)]))


def _sync_one(opened: tuple[str, str, BinaryIO]) -> None:
    path, _, file = opened
    with explained(path, "written"):
        os.fsync(file.fileno())


def _temporary_of(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(8)}")


def _unlink_if_there(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


@contextmanager
def _written_beside(path: str, contents: bytes) -> Iterator[str]:
    """A synced file in the same folder; it is removed with the block unless it was renamed."""
    temporary = _temporary_of(path)
    try:
        descriptor = os.open(temporary, _NEW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        _unlink_if_there(temporary)


def replace(path: str, contents: bytes) -> None:
    """The bytes are synced before the rename: no reader finds a half-written file. After a loss of power the old file may
    be back."""
    for attempt in range(1, MAX_VANISHED + 1):
        try:
            make_dirs(os.path.dirname(path))
            with explained(path, "written"), _written_beside(path, contents) as temporary:
                os.replace(temporary, path)
            return
        except DiskTrouble as error:
            if not isinstance(error.__cause__, FileNotFoundError | FileExistsError) or attempt == MAX_VANISHED:
                raise


def replace_each(files: Sequence[tuple[str, bytes]]) -> None:
    if len(files) == 1:
        replace(*files[0])
    elif files:
        with ThreadPoolExecutor(SYNC_THREADS, "databuild disk") as threads:
            _for_some(threads, lambda file: replace(*file), files)


def remove_files(paths: Sequence[str], within: str) -> None:
    for path in paths:
        with explained(path, "removed"), suppress(FileNotFoundError):
            os.unlink(path)
        folder = os.path.dirname(path)
        while folder == within or folder.startswith(within + os.sep):
            try:
                os.rmdir(folder)
            except OSError:
                # It is not empty, or another process was faster.
                break
            folder = os.path.dirname(folder)


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise DiskTrouble(path=path, done="read", why=_reason(error)) from error


def seal_file(path: str) -> tuple[int, str]:
    """Sync a file; returns its size in bytes and its checksum."""
    with explained(path, "read back"), open(path, "rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size, checksum_of(file)


def seal(files: Sequence[Listed], within: str) -> list[str]:
    if not files:
        return []
    with ThreadPoolExecutor(SYNC_THREADS, "databuild sync") as threads:
        sealed = list(threads.map(seal_file, [file.path for file in files]))
        for file, (size_bytes, _) in zip(files, sealed, strict=True):
            if size_bytes != file.bytes:
                raise DiskTrouble(path=file.path, done="read back", why="it has another size than a moment ago")
        # The folders of the attempt, and those above it, which Spark may have made: data, the asset's and the root.
        above = [within]
        for _ in range(3):
            above.append(os.path.dirname(above[-1]))
        folders = set(above)
        for file in files:
            folder = os.path.dirname(file.path)
            while folder not in folders:
                folders.add(folder)
                folder = os.path.dirname(folder)
        with explained(within, "written"):
            list(threads.map(sync_dir, folders))
    return [checksum for _, checksum in sealed]


def sync_file(path: str) -> None:
    """Sync a file's bytes."""
    with explained(path, "written"), open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_dir(path: str) -> None:
    """Sync the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def regular_files(path: str) -> list[str]:
    """Names of the plain files of a folder, sorted; links and folders are left out."""
    with explained(path, "listed"), os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def is_file(path: str) -> bool:
    """Whether a plain file exists; a link does not count."""
    return os.path.isfile(path) and not os.path.islink(path)


def remove_tree(path: str) -> None:
    with explained(path, "removed"), suppress(FileNotFoundError):
        shutil.rmtree(path)


@contextmanager
def explained(path: str, done: str) -> Iterator[None]:
    """Turn an OSError into a `DiskTrouble` about `path`. `done` is a participle: "written", "created"."""
    try:
        yield
    except OSError as error:
        if error.errno in _MAY_NOT_WRITE:
            raise ReadOnlyWarehouse(path=path, done=done, why=_reason(error)) from error
        if error.errno in FULL:
            raise DiskFull(path=path, done=done) from error
        raise DiskTrouble(path=path, done=done, why=_reason(error)) from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
