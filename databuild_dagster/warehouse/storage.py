"""What a warehouse asks of the place it lies in, and which place a path means.

There are two: a folder of a disk (`disk`), and an object store behind a url (`object_store`). What is built is
written to a folder of the local disk first, in both; only what is asked of the place differs. Nothing of an
object store is imported until a url is used."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, Protocol, TypeVar

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.errors import InvalidWarehouse

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_A_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
#: `pathlib.Path` takes one slash away.
_A_URL_THAT_WAS_A_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_LOCAL = frozenset({"file", "local"})
#: What starts something else than a name in a url: a version or options, a fragment, a chain of file systems.
_NO_NAME = ("?", "#", "::", "\\")


class Storage(Protocol):
    """The few things that are done to a place. Paths are whole: a local path, or a url."""

    def staging_parent(self, root: str) -> str:
        """A local folder that exists, from which publishing is cheap; raises if `root` cannot be written to."""

    def staging_place(self, root: str) -> str:
        """Where that folder is, or would be; nothing is made, and nobody asked."""

    def publish(self, staging: str, folder: str, names: Iterable[str]) -> None:
        """Take files from a local staging folder to `folder`, where they stay unchanged."""

    def share(self, folder: str, into: str, names: Iterable[str]) -> None:
        """Have files of a folder in another one too, whole and for good. What is there already is taken for the same.

        Raises FileNotFoundError as it is.
        """

    def create_only(self, path: str, contents: bytes) -> bool:
        """Write what must not exist yet, whole or not at all; False if it does."""

    def create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool]:
        """`create_only` of many paths with their contents, in less time than one after the other."""

    def replace(self, path: str, contents: bytes) -> None:
        """Write what may exist already: who reads has the whole old contents or the whole new ones."""

    def read_bytes(self, path: str) -> bytes:
        """All of it. Raises FileNotFoundError as it is: whether that is an error, the caller knows."""

    def local_copies(self, files: Sequence[tuple[str, int]]) -> list[str]:
        """For each path and its size in bytes, a path on this machine's disk with the same contents."""

    def sizes(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        """The bytes of those that are there."""

    def file_sizes(self, paths: Sequence[str]) -> dict[str, int]:
        """The bytes of those files that are there, wherever they lie; links are followed."""

    def find(self, pattern: str) -> list[tuple[str, int]]:
        """Files whose path matches a pattern, sorted, each with its bytes; in a folder that matches, those in it.

        `*`, `?` and `[…]` stay within a name, `**` is any folders; hidden files and `_SUCCESS` are no data.
        """

    def list_files(self, folder: str, *, deep: bool) -> list[Listed]:
        """Every file of a folder, with those of the folders in it if `deep`; in no order, and none is opened.

        Raises FileNotFoundError as it is, where folders are things that can be absent.
        """

    def open_binary(self, path: str) -> BinaryIO:
        """To read some of it. Raises what reading raises, FileNotFoundError as it is."""

    def remove_files(self, paths: Sequence[str], within: str) -> None:
        """Remove those that are there, and the folders below `within` that hold nothing any more."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all that is in it, if it is there."""

    def for_each(self, do: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        """`do` for every item, in order or at once, whatever is faster there."""


def storage_at(path: str) -> Storage:
    """The place that a root, a folder or a file lies in. Raises `StorageLibraryMissing`."""
    if (protocol := protocol_of(path)) is None:
        return disk
    from databuild_dagster.warehouse.object_store import object_store

    return object_store(protocol)


def protocol_of(path: str) -> str | None:
    """`s3` of `s3://bucket/prefix`; None for a local path."""
    found = _A_URL.fullmatch(path)
    return found[1].lower() if found else None


def is_whole(uri: str) -> bool:
    """Whether it says by itself where a file lies: an absolute path or a url, without a way up."""
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
    names = rest.split("/")
    if "@" in names[0]:
        # Not repeated: it may hold a password.
        raise InvalidWarehouse(root=f"{protocol}://…", why="credentials do not belong into its url")
    if any(name in ("", ".", "..") for name in names) or any(part in rest for part in _NO_NAME):
        raise InvalidWarehouse(root=root, why="a bucket and plain names have to follow the protocol")
    return f"{protocol}://{rest}"
