"""The few things done to a local disk, with its refusals turned into one sentence.

Everything that creates, moves or removes bytes goes through here, so that another kind of storage has one
module to fill in. Reading Parquet is not here: pyarrow and Spark open files themselves."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from databuild_dagster.warehouse.errors import DiskFull, DiskTrouble, ReadOnlyWarehouse

_MAY_NOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def make_dirs(path: str) -> None:
    """Create a folder and those above it; an existing one is fine."""
    with explained(path, "created"):
        os.makedirs(path, exist_ok=True)


def move_file(source: str, target: str) -> None:
    """Rename within one disk: a reader sees the whole file or none."""
    with explained(target, "written"):
        os.rename(source, target)


def create_only(path: str, contents: bytes) -> bool:
    """Write a file that must not exist yet; False if it does. After True it survives a loss of power.

    A link to a finished temporary file, and not O_EXCL: with that, others would see the file half written.
    """
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{secrets.token_hex(8)}")
    with explained(path, "written"):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_dir(folder)
    return True


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
        if error.errno in _FULL:
            raise DiskFull(path=path, done=done) from error
        raise DiskTrouble(path=path, done=done, why=_reason(error)) from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
