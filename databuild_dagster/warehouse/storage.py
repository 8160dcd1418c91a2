"""The storage of a warehouse: a folder of a disk (`disk`), or an object store behind a url (`object_store`).

With both, a build writes to a staging folder of the local disk first. An object store's libraries are imported when a
url is used."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, Protocol

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.errors import InvalidWarehouse
from databuild_dagster.warehouse.threads import R, T

_A_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
#: `pathlib.Path` takes one slash away.
_A_URL_THAT_WAS_A_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
#: Kinds of the checksums that object stores give.
STORE_CHECKSUMS = ("etag", "crc32c", "md5")
#: `abfss://container@account.dfs.core.windows.net/prefix`, as Hadoop writes it; a password has no such form.
_AZURE = frozenset({"abfs", "abfss"})
_A_CONTAINER = re.compile(r"[a-z0-9$][a-z0-9-]{2,62}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
#: Protocols of servers whose files cannot be published in one step.
_NO_STORE = frozenset({"ftp", "http", "https", "sftp", "ssh"})
_LOCAL = frozenset({"file", "local"})
#: Begin a version, options, a fragment or a chain of file systems in a url.
_NO_NAME = ("?", "#", "::", "\\")


class Storage(Protocol):
    """The operations on a storage. Paths are whole: a local path, or a url.

    All raise `DiskTrouble` or `StorageTrouble`. An absent file raises FileNotFoundError, which the caller judges.
    """

    def staging_parent(self, root: str) -> str:
        """An existing local folder from which publishing is cheap; raises if `root` cannot be written to."""

    def staging_place(self, root: str) -> str:
        """The path of that folder, whether it exists or not."""

    def publish(self, staging: str, folder: str, names: Iterable[str]) -> None:
        """Move or upload files from a local staging folder to `folder`, which is created if need be."""

    def share(self, folder: str, into: str, names: Iterable[str]) -> None:
        """Link or copy files of a folder to `into`, which is created if need be; existing files are kept."""

    def create_only(self, path: str, contents: bytes) -> bool:
        """Create a file, whole or not at all, and its folder if need be; False if the file exists."""

    def create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool]:
        """`create_only` for many paths and their contents, faster than a call for each."""

    def try_to_create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool | Exception]:
        """`create_each` that raises nothing: the answer for a file that could not be created is the error."""

    def replace(self, path: str, contents: bytes) -> None:
        """Create or replace a file and its folder: a reader sees the whole old contents or the whole new ones."""

    def replace_each(self, files: Sequence[tuple[str, bytes]]) -> None:
        """`replace` for many paths and their contents, in an object store faster than a call for each."""

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""

    def local_copies(self, files: Sequence[tuple[str, int]]) -> list[str]:
        """For each path and its size in bytes, a path on this machine's disk with the same contents."""

    def sizes(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        """The bytes of the existing files among `names`."""

    def file_sizes(self, paths: Sequence[str]) -> dict[str, int]:
        """The bytes of the existing files among `paths`, in any folder; links are followed."""

    def find(self, pattern: str) -> list[tuple[str, int]]:
        """Files whose path matches a pattern, sorted, each with its bytes; a matching folder stands for the files in it.

        `*`, `?` and `[…]` stay within a name, `**` is any folders; hidden files and `_SUCCESS` are no data.
        """

    def list_files(self, folder: str, *, deep: bool, prefix: str = "") -> list[Listed]:
        """Every file of a folder, with the files of its subfolders if `deep`; unordered, none is opened.

        With `prefix` only of files and folders in it whose names begin so, and `deep` has to be true.
        """

    def open_binary(self, path: str) -> BinaryIO:
        """The open file, to read a part of it."""

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes of a file from `start` up to, and without, `end`: one request, and no other byte is read."""

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """`read_range` for many paths, each with its start and end, in an object store faster than a call for each."""

    def checksum(self, path: str) -> str:
        """The checksum of a file's bytes, all of which are read, as a build records it: `sha256:…`."""

    def remove_files(self, paths: Sequence[str], within: str) -> None:
        """Remove files, if they exist, and the folders that are empty then, up to and including `within`."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all its contents, if it exists."""

    def seal(self, files: Sequence[Listed], within: str) -> list[str]:
        """Make files last that Spark wrote into a folder; returns the checksum of each. An object store's last already."""

    def for_each(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """`do` for every item, in order or at once, as is faster for this storage."""


def storage_at(path: str) -> Storage:
    """The storage of a root, a folder or a file. Raises `StorageLibraryMissing`."""
    if (protocol := protocol_of(path)) is None:
        return disk
    from databuild_dagster.warehouse.object_store import object_store

    return object_store(protocol, path.partition("://")[2].partition("/")[0].partition("@")[2])


def protocol_of(path: str) -> str | None:
    """`s3` of `s3://bucket/prefix`; None for a local path."""
    found = _A_URL.fullmatch(path)
    return found[1].lower() if found else None


def is_whole(uri: str) -> bool:
    """Whether a uri is an absolute path or a url, without `..`."""
    if protocol_of(uri) is None:
        return os.path.isabs(uri) and os.path.normpath(uri) == uri and "\0" not in uri
    return ".." not in uri.split("/")


def normal_root(root: str) -> str:
    """An absolute path, or a url without a slash at its end. Raises `InvalidWarehouse`."""
    found = _A_URL.fullmatch(root)
    if found is None:
        if _A_URL_THAT_WAS_A_PATH.match(root):
            raise InvalidWarehouse(root=root, why="a url lost one of its slashes, as pathlib.Path takes it away")
        if "://" in root:
            raise InvalidWarehouse(root=root, why="it is neither a folder nor one plain url")
        return os.path.abspath(os.path.expanduser(root))
    protocol, rest = found[1].lower(), found[2].rstrip("/")
    if protocol in _LOCAL:
        return os.path.abspath(found[2])
    if protocol in _NO_STORE:
        raise InvalidWarehouse(root=f"{protocol}://…", why="its files cannot be published in one step")
    names = rest.split("/")
    if "@" in names[0] and not (protocol in _AZURE and _A_CONTAINER.fullmatch(names[0])):
        # The message leaves the url out: it may hold a password.
        raise InvalidWarehouse(root=f"{protocol}://…", why="credentials do not belong into its url")
    if any(name in ("", ".", "..") for name in names) or any(part in rest for part in _NO_NAME):
        raise InvalidWarehouse(root=root, why="a bucket and plain names have to follow the protocol")
    return f"{protocol}://{rest}"
