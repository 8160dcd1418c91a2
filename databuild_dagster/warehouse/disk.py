"""The few things done to a local disk, with its refusals turned into one sentence.

Everything that creates, moves or removes bytes of a disk goes through here. The module as a whole is one of the
two places a warehouse may lie in (`storage.Storage`). Reading Parquet is not here: pyarrow and Spark open files
themselves."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, NamedTuple, TypeVar

from databuild_dagster.warehouse.errors import DiskFull, DiskTrouble, ReadOnlyWarehouse


class Listed(NamedTuple):
    """A file as a listing has it, which opens none."""

    path: str
    bytes: int
    #: When it was last written to, in seconds since 1970 UTC.
    modified: float
    #: Another one as soon as it is written again.
    version: str


Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Times in a row that others may take away a folder, for it is empty, or what is being written in it. Each time they are
#: done with their own, so it ends.
MAX_VANISHED = 100

#: Files of many that are open at once, and threads that wait for the disk: it answers those who ask together together.
MAX_OPEN = 256
SYNC_THREADS = 8

_MAY_NOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def staging_parent(root: str) -> str:
    """A folder on the instances' own disk, so that publishing is a rename; it exists."""
    path = staging_place(root)
    make_dirs(path)
    return path


def staging_place(root: str) -> str:
    """The same folder, whether it exists or not."""
    return os.path.join(root, ".staging")


def publish(staging: str, folder: str, names: Iterable[str]) -> None:
    """Move files from a staging folder to their own, which is made if need be."""
    make_dirs(folder)
    for name in names:
        move_file(os.path.join(staging, name), os.path.join(folder, name))


def share(folder: str, into: str, names: Iterable[str]) -> None:
    """Link files of a folder into another one, which is made if need be: no byte is written.

    Raises FileNotFoundError as it is.
    """
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
    """The paths as they are: whether they are there, who opens them will say."""
    return [path for path, _ in files]


def sizes(folder: str, names: Sequence[str]) -> dict[str, int]:
    """The bytes of those that are there; a link is not."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name: os.path.getsize(path) for name, path in paths.items() if is_file(path)}


def file_sizes(paths: Sequence[str]) -> dict[str, int]:
    """The bytes of those files that are there; links are followed, for these are not ours."""
    return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}


def find(pattern: str) -> list[tuple[str, int]]:
    """Files whose path matches, sorted, each with its bytes; in a folder that matches, those in it."""
    found: set[str] = set()
    for path in map(os.path.normpath, glob.iglob(pattern, recursive=True)):
        if is_data(os.path.basename(path)):
            found.add(path)
            if os.path.isdir(path):
                found.update(os.path.join(path, name) for name in os.listdir(path) if is_data(name))
    return [(path, os.path.getsize(path)) for path in sorted(found) if os.path.isfile(path)]


def list_files(folder: str, *, deep: bool) -> list[Listed]:
    """Every file of a folder, with those below if `deep`. Raises FileNotFoundError as it is, and `DiskTrouble`."""
    found: list[Listed] = []
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    # What vanishes meanwhile is not there.
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
    """Hidden files, and what is named `_SUCCESS` or the like, are no data to Spark and the Hadoop world."""
    return not name.startswith((".", "_"))


def open_binary(path: str) -> BinaryIO:
    """To read some of it. Raises FileNotFoundError as it is, and `DiskTrouble`."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskTrouble(path=path, done="read", why=_reason(error)) from error


def for_each(do: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """One after the other: for a small file, a thread costs more than the disk."""
    return [do(item) for item in items]


def make_dirs(path: str) -> None:
    """Create a folder and those above it; an existing one is fine."""
    with explained(path, "created"):
        try:
            os.mkdir(path)
        except (FileExistsError, FileNotFoundError):
            os.makedirs(path, exist_ok=True)


def check_space(path: str, needed_bytes: int) -> None:
    """Raises `DiskFull` if less than that is free where a folder lies."""
    with explained(path, "looked at"):
        if shutil.disk_usage(path).free < needed_bytes:
            raise DiskFull(path=path, done="written")


def move_file(source: str, target: str) -> None:
    """Rename within one disk: a reader sees the whole file or none."""
    with explained(target, "written"):
        os.rename(source, target)


def create_only(path: str, contents: bytes) -> bool:
    """Write a file that must not exist yet; False if it does. After True it survives a loss of power.

    Its folder is made if need be.

    A link to a finished temporary file, and not O_EXCL: with that, others would see the file half written.
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
    """`create_only` of many, in half the time: whether each was not there. After it all of them survive a loss of power.

    Each is synced before it has its name, and each folder afterwards, as for one; but first all are written, and then all
    are waited for, so that a journal writes many of them at once.
    """
    created: list[bool] = []
    for start in range(0, len(files), MAX_OPEN):
        created += _create_some(files[start : start + MAX_OPEN])
    return created


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


def _for_some(threads: ThreadPoolExecutor, do: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Every so many to a thread: one future for each costs more than the call."""

    def do_some(some: Sequence[Item]) -> None:
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
    """A file in the same folder, on the disk with all its bytes; it goes with the block unless it was renamed."""
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
    """Write a file in the place of what was there, whole; its folder is made if need be.

    The bytes are on the disk before the name is, so that nobody ever finds it half written; after a loss of power it may
    be the old one.
    """
    for attempt in range(1, MAX_VANISHED + 1):
        try:
            make_dirs(os.path.dirname(path))
            with explained(path, "written"), _written_beside(path, contents) as temporary:
                os.replace(temporary, path)
            return
        except DiskTrouble as error:
            if not isinstance(error.__cause__, FileNotFoundError | FileExistsError) or attempt == MAX_VANISHED:
                raise


def remove_files(paths: Sequence[str], within: str) -> None:
    """Remove those that are there, and the folders below `within`, itself included, that are empty then."""
    for path in paths:
        with explained(path, "removed"), suppress(FileNotFoundError):
            os.unlink(path)
        folder = os.path.dirname(path)
        while folder == within or folder.startswith(within + os.sep):
            try:
                os.rmdir(folder)
            except OSError:
                # It holds something, or somebody else was faster.
                break
            folder = os.path.dirname(folder)


def read_bytes(path: str) -> bytes:
    """The whole file. Raises FileNotFoundError as it is: whether that is an error, the caller knows."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise DiskTrouble(path=path, done="read", why=_reason(error)) from error


def seal_file(path: str) -> tuple[int, str]:
    """Make sure that a file's bytes are on the disk; their number, and their checksum."""
    with explained(path, "read back"), open(path, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), f"sha256:{digest.hexdigest()}"


def sync_file(path: str) -> None:
    """Make sure that a file's bytes are on the disk."""
    with explained(path, "written"), open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_dir(path: str) -> None:
    """Make sure that the names in a folder are on the disk."""
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
    """Whether a plain file is there; a link is not one."""
    return os.path.isfile(path) and not os.path.islink(path)


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with explained(path, "removed"), suppress(FileNotFoundError):
        shutil.rmtree(path)


@contextmanager
def explained(path: str, done: str) -> Iterator[None]:
    """Say what could not be done to what. `done` is a participle: "written", "created"."""
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
