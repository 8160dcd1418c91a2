"""A warehouse behind a url: S3, or any other store of whole objects that fsspec has a file system for.

Objects appear whole, so nothing is renamed. A manifest is created with `If-None-Match: *`; to a store that ignores it,
nothing is written at all. Credentials and the store's address come from the environment that the store's own tools
read; databuild has no settings for them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Lock
from typing import Any, BinaryIO

from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import (
    AccessDenied,
    BucketMissing,
    DiskFull,
    DiskTrouble,
    InvalidWarehouse,
    NotCreateOnly,
    StorageLibraryMissing,
    StorageTrouble,
    StorageUnreachable,
)
from databuild_dagster.warehouse.threads import R, T, in_threads

#: S3 asks for a retry when two conditional writes of one object overlap.
MAX_OVERLAPS = 5

#: Proves that the store refuses to overwrite; one object for all processes, so that it is written only once.
MARKER_NAME = ".create-only"
_MARKER = b"databuild checks with this object that what exists here is not overwritten.\n"

#: The package to install for a protocol.
_EXTRAS = {"s3": "databuild-dagster[s3]", "s3a": "databuild-dagster[s3]", "gs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}

#: Large files go in pieces of 50 MB, so many at once for each thread of `in_threads`.
_OPTIONS: dict[str, dict[str, Any]] = {"s3": {"max_concurrency": 2}, "s3a": {"max_concurrency": 2}}

#: Names in fsspec's file systems for the time of the write, and for the version of the contents.
_MODIFIED = ("LastModified", "updated", "last_modified", "mtime", "created")
_VERSION = ("ETag", "etag", "generation")

#: Bytes of a request for a part of a file of which all bytes are read, by each of several threads.
CHECKSUM_BLOCK_BYTES = 8 << 20

#: Errors of libraries without a common base class; by name, so that no library has to be imported.
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})
_NO_ANSWER = frozenset(
    {"HTTPClientError", "EndpointConnectionError", "ConnectionClosedError", "ClientConnectionError", "TimeoutError"}
)
_NO_PERMISSION_CODES = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "403"})
_NO_BUCKET_CODES = frozenset({"NoSuchBucket"})
_EXISTS_CODES = frozenset({"PreconditionFailed", "412"})
_OVERLAP_CODES = frozenset({"ConditionalRequestConflict"})
_BUSY_CODES = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503"})


def object_store(protocol: str) -> ObjectStore:
    """This process's store for a protocol; a new one after a fork, because its connections have threads.

    Raises `StorageLibraryMissing`, `InvalidWarehouse`.
    """
    key = (os.getpid(), protocol)
    with _lock:
        if key not in _stores:
            _stores[key] = ObjectStore(_file_system(protocol))
        return _stores[key]


def forget_connections() -> None:
    """Let the next use read the environment again."""
    with _lock:
        _stores.clear()


class ObjectStore:
    """`storage.Storage` over one of fsspec's file systems. May be used from many threads."""

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system
        #: Roots that were written to.
        self._proven: set[str] = set()

    def staging_parent(self, root: str) -> str:
        """Raises what writing would raise, before anything is computed."""
        if root not in self._proven:
            self._prove(root)
            self._proven.add(root)
        return local_copies.staging_parent()

    def staging_place(self, root: str) -> str:
        return local_copies.staging_place()

    def publish(self, staging: str, folder: str, names: Iterable[str]) -> None:
        def upload(name: str) -> None:
            staged, url = os.path.join(staging, name), f"{folder}/{name}"
            with self._writing(url):
                self._file_system.put_file(staged, url)
            local_copies.keep(staged, url)

        self.for_each(upload, list(names))
        local_copies.prune_sometimes()

    def share(self, folder: str, into: str, names: Iterable[str]) -> None:
        def copy(name: str) -> None:
            # The store copies, whole or not at all: no byte comes to this machine.
            with self._reading(f"{folder}/{name}"):
                self._file_system.cp_file(f"{folder}/{name}", f"{into}/{name}")

        self.for_each(copy, list(names))

    def create_only(self, path: str, contents: bytes) -> bool:
        for _ in range(MAX_OVERLAPS):
            try:
                self._file_system.pipe_file(path, contents, mode="create")
            except Exception as error:
                if isinstance(error, FileExistsError) or _code(error) in _EXISTS_CODES:
                    return False
                if _code(error) in _OVERLAP_CODES:
                    continue
                raise self._explained(error, path, "written") from error
            else:
                return True
        raise StorageUnreachable(path=path, done="written", why=f"{MAX_OVERLAPS} attempts overlapped with others")

    def create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool]:
        return self.for_each(lambda file: self.create_only(*file), files)

    def replace(self, path: str, contents: bytes) -> None:
        with self._writing(path):
            self._file_system.pipe_file(path, contents)

    def read_bytes(self, path: str) -> bytes:
        with self._reading(path):
            return bytes(self._file_system.cat_file(path))

    def local_copies(self, files: Sequence[tuple[str, int]]) -> list[str]:
        absent = [
            (url, size_bytes)
            for url, size_bytes in files
            if not local_copies.is_there(local_copies.copy_path(url), size_bytes)
        ]
        if absent:
            self.for_each(lambda copy: local_copies.fetch(*copy, self._download), absent)
            local_copies.prune_sometimes()
        return [local_copies.copy_path(url) for url, _ in files]

    def sizes(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        # One request for any number of files.
        with self._reading(folder):
            found = self._file_system.find(folder, detail=True)
        sizes = {path.rpartition("/")[2]: int(info["size"]) for path, info in found.items()}
        return {name: sizes[name] for name in names if name in sizes}

    def file_sizes(self, paths: Sequence[str]) -> dict[str, int]:
        def size(path: str) -> int | None:
            try:
                with self._reading(path):
                    return int(self._file_system.info(path)["size"])
            except FileNotFoundError:
                return None

        found = zip(paths, self.for_each(size, paths), strict=True)
        return {path: size_bytes for path, size_bytes in found if size_bytes is not None}

    def find(self, pattern: str) -> list[tuple[str, int]]:
        protocol = pattern.partition("://")[0]
        found: dict[str, int] = {}
        with self._reading(pattern):
            for name, info in self._file_system.glob(pattern.rstrip("/"), detail=True).items():
                if not disk.is_data(name.rstrip("/").rpartition("/")[2]):
                    continue
                if info["type"] == "directory":
                    inside = self._file_system.ls(name, detail=True)
                    found.update({entry["name"]: entry["size"] for entry in inside if entry["type"] == "file"})
                else:
                    found[name] = info["size"]
        data = {name: size for name, size in found.items() if disk.is_data(name.rpartition("/")[2])}
        return [(f"{protocol}://{name}", int(data[name])) for name in sorted(data)]

    def list_files(self, folder: str, *, deep: bool) -> list[disk.Listed]:
        protocol = folder.partition("://")[0]
        with self._reading(folder):
            try:
                if deep:
                    found = list(self._file_system.find(folder, detail=True).values())
                else:
                    found = self._file_system.ls(folder, detail=True)
            except FileNotFoundError as error:
                # A prefix exists as soon as an object does; only a bucket can be absent.
                if not self._has_bucket(folder, error):
                    raise
                found = []
        return [_listed(protocol, entry) for entry in found if entry["type"] == "file"]

    def open_binary(self, path: str) -> BinaryIO:
        with self._reading(path):
            opened: BinaryIO = self._file_system.open(path, "rb")
            return opened

    def checksum(self, path: str) -> str:
        with self._reading(path), self._file_system.open(path, "rb", block_size=CHECKSUM_BLOCK_BYTES) as file:
            return disk.checksum_of(file)

    def remove_files(self, paths: Sequence[str], within: str) -> None:
        def remove(path: str) -> None:
            with self._writing(path, "removed"), suppress(FileNotFoundError):
                self._file_system.rm_file(path)

        self.for_each(remove, paths)

    def remove_tree(self, path: str) -> None:
        with self._writing(path, "removed"):
            found: list[str] = self._file_system.find(path)
            # The manifest first: it never lists an absent file.
            found.sort(key=lambda path: not path.endswith("/manifest.json"))
            for first in found[:1]:
                self._file_system.rm_file(first)
            self.for_each(self._file_system.rm_file, found[1:])
        disk.remove_tree(local_copies.copies_of(path))

    def for_each(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Several at once; the first error is raised after those that were started have ended."""
        return in_threads(do, items)

    def _prove(self, root: str) -> None:
        """Prove that `root` can be written to, and that the store refuses the second write of an object.

        A store without conditions accepts the second write without an error. Raises `NotCreateOnly`.
        """
        method = self._file_system._pipe_file if self._file_system.async_impl else self._file_system.pipe_file
        marker = f"{root}/{MARKER_NAME}"
        if "mode" not in inspect.signature(method).parameters or _looks_first(method):
            raise NotCreateOnly(path=marker)
        # Usually one request: an earlier process has written the marker.
        if self.create_only(marker, _MARKER) and self.create_only(marker, _MARKER):
            raise NotCreateOnly(path=marker)

    def _download(self, url: str, path: str) -> None:
        with self._reading(url):
            self._file_system.get_file(url, path)

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """As `_writing`, but an absent object stays a FileNotFoundError."""
        try:
            yield
        except FileNotFoundError as error:
            if self._has_bucket(path, error):
                raise FileNotFoundError(path) from error
            raise self._explained(error, path, "read") from error
        except Exception as error:
            raise self._explained(error, path, "read") from error

    @contextmanager
    def _writing(self, path: str, done: str = "written") -> Iterator[None]:
        """Turn errors into sentences about `path`; a store has no folders, so only a bucket can be absent."""
        try:
            yield
        except Exception as error:
            raise self._explained(error, path, done) from error

    def _has_bucket(self, path: str, error: BaseException) -> bool:
        if _code(error) == "NoSuchKey":
            return True
        try:
            return bool(self._file_system.exists(_bucket(path)))
        except Exception:
            # A user without the right to list a bucket may still read its objects.
            return True

    def _explained(self, error: Exception, path: str, done: str) -> Exception:
        """The error to raise instead: one sentence, and a type that says whether a retry may help."""
        facts = {"path": path, "done": done}
        names = {cls.__name__ for link in _links(error) for cls in type(link).__mro__}
        code = _code(error)
        if isinstance(error, OSError) and error.errno in disk.FULL:
            return DiskFull(path=local_copies.cache_dir(), done="written")
        if isinstance(error, OSError) and os.path.isabs(str(error.filename)):
            # A file of this machine: staged, or about to become a copy.
            return DiskTrouble(path=error.filename, done="opened", why=(error.strerror or "").lower())
        if names & _NO_CREDENTIALS:
            return AccessDenied(**facts, why="the environment has no complete credentials")
        if isinstance(error, PermissionError) or code in _NO_PERMISSION_CODES:
            return AccessDenied(**facts, why=_first_line(error))
        if isinstance(error, FileNotFoundError) or code in _NO_BUCKET_CODES:
            return BucketMissing(**facts, bucket=_bucket(path))
        if code in _BUSY_CODES or names & _NO_ANSWER or isinstance(error, ConnectionError | TimeoutError):
            return StorageUnreachable(**facts, why=_first_line(error))
        return StorageTrouble(**facts, why=_first_line(error))


def _file_system(protocol: str) -> Any:
    import fsspec

    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = _EXTRAS.get(protocol, f"fsspec[{protocol}]")
        raise StorageLibraryMissing(protocol=protocol, package=package, why=_first_line(error)) from error
    except ValueError as error:
        raise InvalidWarehouse(root=f"{protocol}://…", why=_first_line(error)) from error
    try:
        # One per process, where fsspec keeps one per thread. A cached listing would miss the writes of other processes.
        return kind(**_OPTIONS.get(protocol, {}), skip_instance_cache=True, use_listings_cache=False)
    except Exception as error:
        # It needs more than the url and fsspec's configuration contain.
        raise InvalidWarehouse(root=f"{protocol}://…", why=_first_line(error)) from error


def _listed(protocol: str, entry: Mapping[str, Any]) -> disk.Listed:
    """An entry of fsspec, whose file systems agree on name and size only."""
    modified_at = next((entry[key] for key in _MODIFIED if entry.get(key) is not None), 0.0)
    if isinstance(modified_at, str):
        modified_at = datetime.fromisoformat(modified_at)
    modified = modified_at.timestamp() if isinstance(modified_at, datetime) else float(modified_at)
    version = str(next((entry[key] for key in _VERSION if entry.get(key)), modified))
    return disk.Listed(f"{protocol}://{entry['name']}", int(entry["size"]), modified, version)


def _looks_first(method: Any) -> bool:
    """Whether it is fsspec's own method, which checks and then writes: two writers may both pass the check."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    return getattr(method, "__func__", None) in (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file)


def _bucket(path: str) -> str:
    protocol, _, rest = path.partition("://")
    return f"{protocol}://{rest.partition('/')[0]}"


def _code(error: BaseException) -> str:
    """The store's error code, as botocore keeps it; empty if there is none."""
    for link in _links(error):
        if isinstance(response := getattr(link, "response", None), dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _links(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__


def _first_line(error: BaseException) -> str:
    whole = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = (whole.strip().splitlines() or [""])[0].strip().rstrip(".")
    return text or type(error).__name__


_stores: dict[tuple[int, str], ObjectStore] = {}
_lock = Lock()
