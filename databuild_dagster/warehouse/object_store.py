"""A warehouse behind a url: S3, Google, Azure, or any other store of whole objects that fsspec has a file system for.

Objects appear whole, so nothing is renamed. A manifest is created on the condition that it does not exist
(`If-None-Match: *`, `ifGenerationMatch=0`); to a store that ignores it, nothing is written at all. Credentials and the
store's address come from the environment that the store's own tools read; databuild has no settings for them."""

from __future__ import annotations

import base64
import inspect
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, BinaryIO, Generic, NamedTuple

from databuild_dagster.warehouse import disk, errors, local_copies
from databuild_dagster.warehouse.object_store_errors import (
    KINDS,
    OVERLAP_CODES,
    bucket_of,
    codes_of,
    explained,
    first_line,
    is_there_already,
    kind_of,
)
from databuild_dagster.warehouse.threads import R, T, in_threads

#: Requests that are open at a time. A store in a data center answers after tens of milliseconds, in which a request takes half a
#: millisecond of this processor.
OPEN_REQUESTS = 32

#: How long the open requests may take to end after an interrupt. Half a request may have taken effect or not.
INTERRUPTED_SECONDS = 5.0

#: S3 asks for a retry when two conditional writes of one object overlap.
MAX_OVERLAPS = 5

#: Proves that the store refuses to overwrite; all processes share the object, so that it is written only once.
MARKER_NAME = ".create-only"
_MARKER = b"databuild checks with this object that what exists here is not overwritten.\n"


_S3_NAMES = ("s3", "s3a")
#: Large files go in pieces of 50 MB, so many at once for each thread of `in_threads`.
_OPTIONS: dict[str, dict[str, Any]] = {name: {"max_concurrency": 2} for name in _S3_NAMES}
#: Of a read of a small object. Otherwise s3fs asks for the size first.
_WHOLE: dict[str, dict[str, Any]] = {"s3": {"max_concurrency": 1}}

#: Names in fsspec's file systems for the time of the write, and for the version of the contents.
_MODIFIED = ("LastModified", "updated", "last_modified", "mtime", "created")
_VERSION = ("ETag", "generation", "etag")

#: Bytes of a request for a part of a file of which all bytes are read, by each of several threads.
CHECKSUM_BLOCK_BYTES = 8 << 20


def object_store(protocol: str, account: str = "") -> ObjectStore:
    """This process's store for a protocol and the host of an account, made again after a fork, because connections have threads.

    Raises `StorageLibraryMissing`, `InvalidWarehouse`.
    """
    key = (os.getpid(), protocol, account)
    with _lock:
        if key not in _stores:
            _stores[key] = ObjectStore(_file_system(protocol, account))
        return _stores[key]


def forget_connections() -> None:
    """Let the next use read the environment again."""
    with _lock:
        _stores.clear()


class ObjectStore:
    """`storage.Storage` over a file system of fsspec. May be used from many threads."""

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system
        names = file_system.protocol
        self._protocol = names if isinstance(names, str) else names[0]
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
                if is_there_already(error):
                    return False
                if codes_of(error) & OVERLAP_CODES:
                    continue
                raise explained(error, path, "written") from error
            else:
                return True
        why = f"{MAX_OVERLAPS} attempts overlapped with others"
        raise errors.StorageUnreachable(path=path, done="written", why=why, address=kind_of(path).address)

    def replace(self, path: str, contents: bytes) -> None:
        with self._writing(path):
            self._file_system.pipe_file(path, contents)

    def read_bytes(self, path: str) -> bytes:
        with self._reading(path):
            return bytes(self._file_system.cat_file(path, **_WHOLE.get(self._protocol, {})))

    def local_copies(self, files: Sequence[tuple[str, int]]) -> list[str]:
        def download(url: str, path: str) -> None:
            with self._reading(url):
                self._file_system.get_file(url, path)

        absent = [
            (url, size_bytes)
            for url, size_bytes in files
            if not local_copies.is_there(local_copies.copy_path(url), size_bytes)
        ]
        if absent:
            self.for_each(lambda copy: local_copies.fetch(*copy, download), absent)
            local_copies.prune_sometimes()
        return [local_copies.copy_path(url) for url, _ in files]

    def sizes(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        # One request for any number of files.
        with self._reading(folder):
            found = self._found(folder)
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
        return [(_url_of(name, pattern), int(data[name])) for name in sorted(data)]

    def list_files(self, folder: str, *, deep: bool, prefix: str = "") -> list[disk.Listed]:
        with self._reading(folder):
            try:
                if deep:
                    found = list(self._found(folder, prefix).values())
                else:
                    found = self._file_system.ls(folder, detail=True)
            except FileNotFoundError as error:
                # A prefix exists as soon as an object does; only a bucket can be absent.
                if not _has_bucket(self._file_system, folder, error):
                    raise
                found = []
        listed = [_listed(folder, entry) for entry in found if entry["type"] == "file"]
        # Not every file system narrows its listing.
        return [file for file in listed if file.path.startswith(f"{folder}/{prefix}")] if prefix else listed

    def open_binary(self, path: str) -> BinaryIO:
        with self._reading(path):
            opened: BinaryIO = self._file_system.open(path, "rb")
            return opened

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with self._reading(path):
            return bytes(self._file_system.cat_file(path, start=start, end=end))

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
            found = list(self._found(path))
            # The manifest first: it never lists an absent file.
            found.sort(key=lambda path: not path.endswith("/manifest.json"))
            for first in found[:1]:
                self._file_system.rm_file(first)
            self.for_each(self._file_system.rm_file, found[1:])
        disk.remove_tree(local_copies.copies_of(path))

    def seal(self, files: Sequence[disk.Listed], within: str) -> list[str]:
        return [file.checksum or self.checksum(file.path) for file in files]

    # Many objects at once: several requests in the loop of the file system, or in threads for one without a loop.

    def for_each(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Several items at once; the first error is raised after all started calls have ended."""
        return in_threads(do, items)

    def create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool]:
        created = []
        for answer in self.try_to_create_each(files):
            if isinstance(answer, Exception):
                raise answer
            created.append(answer)
        return created

    def try_to_create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool | Exception]:
        if not has_loop(self._file_system):
            return self.for_each(self._try_to_create, files)
        pipe = self._file_system._pipe_file
        answers = in_loop(self._file_system, [partial(pipe, path, contents, mode="create") for path, contents in files])
        created: list[bool | Exception] = []
        overlapped = []
        for place, ((path, _), (_, error)) in enumerate(zip(files, answers, strict=True)):
            if error is None or is_there_already(error):
                created.append(error is None)
                continue
            created.append(explained(error, path, "written"))
            if codes_of(error) & OVERLAP_CODES:
                overlapped.append(place)
        again = self.for_each(self._try_to_create, [files[place] for place in overlapped])
        for place, answer in zip(overlapped, again, strict=True):
            created[place] = answer
        return created

    def _try_to_create(self, file: tuple[str, bytes]) -> bool | Exception:
        try:
            return self.create_only(*file)
        except (errors.DiskTrouble, errors.StorageTrouble) as error:
            return error

    def replace_each(self, files: Sequence[tuple[str, bytes]]) -> None:
        if not has_loop(self._file_system):
            self.for_each(lambda file: self.replace(*file), files)
            return
        pipe = self._file_system._pipe_file
        answers = in_loop(self._file_system, [partial(pipe, path, contents) for path, contents in files])
        for (path, _), answer in zip(files, answers, strict=True):
            if answer.error is not None:
                raise explained(answer.error, path, "written") from answer.error

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        if not has_loop(self._file_system):
            return self.for_each(lambda wanted: self.read_range(*wanted), ranges)
        cat = self._file_system._cat_file
        answers = in_loop(self._file_system, [partial(cat, path, start=start, end=end) for path, start, end in ranges])
        found = []
        for (path, _, _), answer in zip(ranges, answers, strict=True):
            with self._reading(path):
                if answer.error is not None:
                    raise answer.error
                found.append(bytes(answer.value or b""))
        return found

    def _prove(self, root: str) -> None:
        """Prove that `root` can be written to, and that the store refuses the second write of an object.

        A store without conditions accepts the second write without an error. Raises `NotCreateOnly`.
        """
        method = self._file_system._pipe_file if self._file_system.async_impl else self._file_system.pipe_file
        marker = f"{root}/{MARKER_NAME}"
        parameters = inspect.signature(method).parameters
        # adlfs has it among the options of its method.
        takes_mode = "mode" in parameters or any(taken.kind is taken.VAR_KEYWORD for taken in parameters.values())
        if not takes_mode or _looks_first(method):
            raise errors.NotCreateOnly(path=marker)
        # Usually one request: an earlier process has written the marker.
        if self.create_only(marker, _MARKER) and self.create_only(marker, _MARKER):
            raise errors.NotCreateOnly(path=marker)

    def _found(self, folder: str, prefix: str = "") -> dict[str, Mapping[str, Any]]:
        """Every object below a folder, by fsspec's name. Raises FileNotFoundError if there is no bucket."""
        parent, _, name = folder.rpartition("/")
        found: dict[str, Mapping[str, Any]]
        if self._protocol == "s3" and not parent.endswith("/"):
            # One request, also where s3fs would look for an object of the folder's name.
            found = self._file_system.find(parent, detail=True, prefix=f"{name}/{prefix}")
            return found
        narrowed = {"prefix": prefix} if prefix else {}
        found = self._file_system.find(folder, detail=True, **narrowed)
        # adlfs finds nothing in a container that is not there.
        if not found and not _has_bucket(self._file_system, folder):
            raise FileNotFoundError(folder)
        return found

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """As `_writing`, but an absent object stays a FileNotFoundError."""
        try:
            yield
        except FileNotFoundError as error:
            if _has_bucket(self._file_system, path, error):
                raise FileNotFoundError(path) from error
            raise explained(error, path, "read") from error
        except Exception as error:
            raise explained(error, path, "read") from error

    @contextmanager
    def _writing(self, path: str, done: str = "written") -> Iterator[None]:
        """Turn errors into sentences about `path`; a store has no folders, so only a bucket can be absent."""
        try:
            yield
        except Exception as error:
            raise explained(error, path, done) from error


def _file_system(protocol: str, account: str) -> Any:
    import fsspec

    options = _OPTIONS.get(protocol, {})
    if account:
        # adlfs uses the interface of blobs, which has another host than the one of Hadoop's file system.
        host = account.replace(".dfs.", ".blob.", 1)
        options = {**options, "account_name": account.partition(".")[0], "account_host": host}

    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = KINDS[protocol].package if protocol in KINDS else f"fsspec[{protocol}]"
        raise errors.StorageLibraryMissing(protocol=protocol, package=package, why=first_line(error)) from error
    except ValueError as error:
        raise errors.InvalidWarehouse(root=f"{protocol}://…", why=first_line(error)) from error
    try:
        if protocol in _S3_NAMES:
            options = {**options, "config_kwargs": _client_of_s3()}
        # One per process, where fsspec keeps one per thread. A cached listing would miss the writes of other processes.
        made = kind(**options, skip_instance_cache=True, use_listings_cache=False)
    except Exception as error:
        # It needs more than the url and fsspec's configuration contain.
        raise errors.InvalidWarehouse(root=f"{protocol}://…", why=first_line(error)) from error
    if account and (found := made.service_client.account_name) != options["account_name"]:
        why = f"AZURE_STORAGE_CONNECTION_STRING is of the account {found}"
        raise errors.InvalidWarehouse(root=f"{protocol}://…@{account}", why=why)
    return made


def _client_of_s3() -> dict[str, Any]:
    """The configuration of botocore's client: a connection for each request in the loop, if fsspec's configuration has no number."""
    import fsspec

    of_user = {key: value for name in _S3_NAMES for key, value in fsspec.config.conf.get(name, {}).items()}
    return {"max_pool_connections": OPEN_REQUESTS, **(of_user.get("config_kwargs") or {})}


def _listed(folder: str, entry: Mapping[str, Any]) -> disk.Listed:
    """An entry of fsspec, whose file systems agree on name and size only."""
    modified_at = next((entry[key] for key in _MODIFIED if entry.get(key) is not None), 0.0)
    if isinstance(modified_at, str):
        modified_at = datetime.fromisoformat(modified_at)
    modified = modified_at.timestamp() if isinstance(modified_at, datetime) else float(modified_at)
    version = str(next((entry[key] for key in _VERSION if entry.get(key)), modified))
    return disk.Listed(_url_of(entry["name"], folder), int(entry["size"]), modified, version, _checksum(entry))


def _checksum(entry: Mapping[str, Any]) -> str | None:
    """What a listing says of an object's bytes; None if it says nothing."""
    if crc32c := entry.get("crc32c"):
        return f"crc32c:{crc32c}"
    # Azure has none for an object that was written in pieces.
    if md5 := getattr(entry.get("content_settings"), "content_md5", None):
        return f"md5:{base64.b64encode(md5).decode()}"
    etag = entry.get("ETag") or entry.get("etag")
    return f"etag:{etag.strip(chr(34))}" if etag else None


def _looks_first(method: Any) -> bool:
    """Whether it is fsspec's own method, which checks and then writes: two writers may both pass the check."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    return getattr(method, "__func__", None) in (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file)


def _url_of(name: str, folder: str) -> str:
    """The url of an object that a listing of `folder` names `bucket/key`; the bucket's url may have an account."""
    return f"{bucket_of(folder)}/{name.partition('/')[2]}"


def _has_bucket(file_system: Any, path: str, error: BaseException | None = None) -> bool:
    if error is not None and "NoSuchKey" in codes_of(error):
        return True
    try:
        return bool(file_system.exists(bucket_of(path)))
    except Exception:
        # A user without the right to list a bucket may still read its objects.
        return True


_stores: dict[tuple[int, str, str], ObjectStore] = {}
_lock = Lock()


class Answer(NamedTuple, Generic[R]):
    """The result of a request, or its error."""

    value: R | None
    error: Exception | None


def has_loop(file_system: Any) -> bool:
    """Whether a file system has a loop of its own, whose thread runs."""
    return bool(getattr(file_system, "async_impl", False)) and not getattr(file_system, "asynchronous", False)


def in_loop(file_system: Any, requests: Sequence[Callable[[], Awaitable[R]]]) -> list[Answer[R]]:
    """The answers to all requests, in order, when the last answer is there.

    After an interrupt no further request begins. Open requests have a few seconds to end, then they are cancelled.
    """
    import asyncio

    from fsspec.asyn import sync

    answers: dict[int, Answer[R]] = {}
    left = deque(enumerate(requests))
    workers: list[asyncio.Task[None]] = []
    ended: Future[None] = Future()

    async def work() -> None:
        while left:
            place, request = left.popleft()
            try:
                answers[place] = Answer(await request(), None)
            except Exception as error:  # The caller explains it.
                answers[place] = Answer(None, error)

    async def work_together() -> None:
        try:
            workers.extend(asyncio.create_task(work()) for _ in range(min(OPEN_REQUESTS, len(left))))
            await asyncio.gather(*workers)
        finally:
            ended.set_result(None)

    def cancel() -> None:
        for worker in workers:
            worker.cancel()

    try:
        sync(file_system.loop, work_together)
    except BaseException:
        left.clear()
        try:
            wait([ended], INTERRUPTED_SECONDS)
        finally:
            file_system.loop.call_soon_threadsafe(cancel)
        raise
    return [answers[place] for place in range(len(requests))]
