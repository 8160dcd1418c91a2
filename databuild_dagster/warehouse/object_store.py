"""A warehouse behind a url: S3, or any other store of whole objects that fsspec has a file system for.

Objects appear whole, so nothing is renamed. A manifest is written only if no other is there (`If-None-Match: *`):
where a store does not keep that promise, nothing is written at all. Who may do what, and where the store is,
comes from the environment that its own tools read; there are no settings of ours."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Lock
from typing import Any, BinaryIO, TypeVar

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

Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Uploads, downloads and looks at once in one process.
MAX_THREADS = 8
#: S3 asks to try again when two conditional writes of one object overlap.
MAX_OVERLAPS = 5

#: Proves that the store keeps its promise; the same object for all processes, so that it is written only once.
MARKER_NAME = ".create-only"
_MARKER = b"databuild checks with this object that what exists here is not overwritten.\n"

#: What to install for a protocol that is not there.
_EXTRAS = {"s3": "databuild-dagster[s3]", "s3a": "databuild-dagster[s3]", "gs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}

#: Large files go in pieces of 50 MB, so many at once for each of the threads above.
_OPTIONS: dict[str, dict[str, Any]] = {"s3": {"max_concurrency": 2}, "s3a": {"max_concurrency": 2}}

#: Where the file systems of fsspec say when an object was written, and what its contents are called.
_MODIFIED = ("LastModified", "updated", "last_modified", "mtime", "created")
_VERSION = ("ETag", "etag", "generation")

#: What libraries raise that share no base class with what it means; by name, so that none has to be imported.
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
    """The one for a protocol in this process, new after a fork: its connections have threads.

    Raises `StorageLibraryMissing`, `InvalidWarehouse`.
    """
    key = (os.getpid(), protocol)
    with _lock:
        if key not in _stores:
            _stores[key] = ObjectStore(_file_system(protocol))
        return _stores[key]


def forget_connections() -> None:
    """The next use reads the environment anew."""
    with _lock:
        _stores.clear()


class ObjectStore:
    """`storage.Storage` over one of fsspec's file systems. May be used from many threads."""

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system
        #: Roots of which it is known that they can be written to.
        self._proven: set[str] = set()

    def staging_parent(self, root: str) -> str:
        """Raises what writing would raise, before anything has been computed."""
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
            # Within the store, and whole or not at all: no byte comes to this machine.
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
            self.for_each(lambda each: local_copies.fetch(*each, self._download), absent)
            local_copies.prune_sometimes()
        return [local_copies.copy_path(url) for url, _ in files]

    def sizes(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        # One request, whatever the number of files; what the folder holds besides is not looked at.
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
                    found.update({each["name"]: each["size"] for each in inside if each["type"] == "file"})
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
                # A prefix is there as soon as there is an object; only a bucket can be absent.
                if not self._has_bucket(folder, error):
                    raise
                found = []
        return [_listed(protocol, each) for each in found if each["type"] == "file"]

    def open_binary(self, path: str) -> BinaryIO:
        with self._reading(path):
            opened: BinaryIO = self._file_system.open(path, "rb")
            return opened

    def remove_files(self, paths: Sequence[str], within: str) -> None:
        def remove(path: str) -> None:
            with self._writing(path, "removed"), suppress(FileNotFoundError):
                self._file_system.rm_file(path)

        self.for_each(remove, paths)

    def remove_tree(self, path: str) -> None:
        with self._writing(path, "removed"):
            found: list[str] = self._file_system.find(path)
            # The manifest first: it never lists what is not there.
            found.sort(key=lambda each: not each.endswith("/manifest.json"))
            for first in found[:1]:
                self._file_system.rm_file(first)
            self.for_each(self._file_system.rm_file, found[1:])
        disk.remove_tree(local_copies.copies_of(path))

    def for_each(self, do: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        """At most eight at once; the first error is raised when those that were started have ended."""
        if len(items) < 2:
            return [do(item) for item in items]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(MAX_THREADS, len(items))) as threads:
            started = [threads.submit(do, item) for item in items]
            try:
                return [each.result() for each in started]
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    def _prove(self, root: str) -> None:
        """That `root` can be written to, and that the second to write an object is told. Raises `NotCreateOnly`.

        A store that knows no conditions takes the second write too, and says nothing.
        """
        method = self._file_system._pipe_file if self._file_system.async_impl else self._file_system.pipe_file
        marker = f"{root}/{MARKER_NAME}"
        if "mode" not in inspect.signature(method).parameters or _looks_first(method):
            raise NotCreateOnly(path=marker)
        # Usually one request: some process before this one has written the marker.
        if self.create_only(marker, _MARKER) and self.create_only(marker, _MARKER):
            raise NotCreateOnly(path=marker)

    def _download(self, url: str, path: str) -> None:
        with self._reading(url):
            self._file_system.get_file(url, path)

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """As `_writing`, but that an object is not there stays a FileNotFoundError."""
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
        """Say what could not be done to what; a store has no folders, so only a bucket can be not there."""
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
            # Who may not look at a bucket may still read what is in it.
            return True

    def _explained(self, error: Exception, path: str, done: str) -> Exception:
        """The error to raise instead: one sentence, and a type that says whether trying again may help."""
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
        # Ours is one per process and not fsspec's one per thread. A listing that is remembered would be another
        # process's past.
        return kind(**_OPTIONS.get(protocol, {}), skip_instance_cache=True, use_listings_cache=False)
    except Exception as error:
        # It wants to be told more than a url says, and fsspec's configuration does not.
        raise InvalidWarehouse(root=f"{protocol}://…", why=_first_line(error)) from error


def _listed(protocol: str, entry: Mapping[str, Any]) -> disk.Listed:
    """An entry of fsspec's, whose file systems agree on name and size only."""
    told = next((entry[key] for key in _MODIFIED if entry.get(key) is not None), 0.0)
    if isinstance(told, str):
        told = datetime.fromisoformat(told)
    modified = told.timestamp() if isinstance(told, datetime) else float(told)
    version = str(next((entry[key] for key in _VERSION if entry.get(key)), modified))
    return disk.Listed(f"{protocol}://{entry['name']}", int(entry["size"]), modified, version)


def _looks_first(method: Any) -> bool:
    """Whether it is fsspec's own, which looks and then writes: two writers may both have looked."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    return getattr(method, "__func__", None) in (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file)


def _bucket(path: str) -> str:
    protocol, _, rest = path.partition("://")
    return f"{protocol}://{rest.partition('/')[0]}"


def _code(error: BaseException) -> str:
    """What the store answered, as botocore keeps it; empty where nothing of the kind is known."""
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
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = (told.strip().splitlines() or [""])[0].strip().rstrip(".")
    return text or type(error).__name__


_stores: dict[tuple[int, str], ObjectStore] = {}
_lock = Lock()
