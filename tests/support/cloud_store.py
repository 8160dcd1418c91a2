"""Stores of Google and of Azure on 127.0.0.1: as much of their protocols as gcsfs and adlfs use here, with a gate for trouble.

Both libraries are the real ones. The servers keep objects in memory, and refuse to overwrite one as the real stores do:
`ifGenerationMatch=0` is answered with 412, `If-None-Match: *` with 409."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from .free_port import LOOPBACK
from .serving import served

#: The account of Azure's own emulator; its key is public.
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_generations = itertools.count(1_700_000_000_000_000)


@dataclass
class Blob:
    """An object of a bucket."""

    contents: bytes
    metadata: dict[str, str] = field(default_factory=dict)
    generation: int = field(default_factory=lambda: next(_generations))
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def md5(self) -> str:
        return base64.b64encode(hashlib.md5(self.contents).digest()).decode()

    @property
    def crc32c(self) -> str:
        import google_crc32c

        return base64.b64encode(google_crc32c.Checksum(self.contents).digest()).decode()


@dataclass
class CloudStore:
    """A running server, what it was asked, and how it is to misbehave."""

    #: A bucket becomes the root of a warehouse by this pattern.
    pattern: str
    #: How its listings give a checksum.
    algorithm: str
    url: str = ""
    buckets: dict[str, dict[str, Blob]] = field(default_factory=dict)
    #: Method and path of each request, in order.
    requests: list[tuple[str, str]] = field(default_factory=list)
    #: Takes no notice of conditions.
    ignores_conditions: bool = False
    #: What it answers instead, request by request: status, the store's code, and a part of the method and path it is about.
    refusals: list[tuple[int, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def root(self, bucket: str) -> str:
        return self.pattern.format(bucket)

    def keys(self, bucket: str) -> list[str]:
        return sorted(self.buckets[bucket])

    def write(self, bucket: str, key: str, blob: Blob, *, create_only: bool) -> bool:
        """False if the object exists and is not to be overwritten."""
        with self.lock:
            if create_only and not self.ignores_conditions and key in self.buckets[bucket]:
                return False
            self.buckets[bucket][key] = blob
            return True

    def below(self, bucket: str, prefix: str, delimiter: str) -> tuple[list[tuple[str, Blob]], list[str]]:
        """The objects below a prefix, and the folders that a delimiter makes of the others."""
        found, folders = [], set()
        with self.lock:
            for key, blob in sorted(self.buckets[bucket].items()):
                if not key.startswith(prefix):
                    continue
                name, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if cut:
                    folders.add(f"{prefix}{name}{delimiter}")
                else:
                    found.append((key, blob))
        return found, sorted(folders)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: CloudStore

    def log_message(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        self.asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = (self.command, unquote(parts.path))
        self.store.requests.append(request)
        for refusal in self.store.refusals:
            status, code, about = refusal
            if about in " ".join(request):
                self.store.refusals.remove(refusal)
                return self.refuse(status, code, f"{code} by the test")
        # A name of a bucket or an object has no slash that is not escaped.
        self.respond([unquote(name) for name in parts.path.strip("/").split("/")])

    def respond(self, names: list[str]) -> None:
        raise NotImplementedError

    def refuse(self, status: int, code: str, message: str) -> None:
        raise NotImplementedError

    def send(self, status: int, contents: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(contents)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(contents)

    def send_part(self, contents: bytes, asked: str | None, **headers: str) -> None:
        """The whole contents, or the bytes of a range."""
        if asked is None:
            return self.send(200, contents, **headers)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(contents)), len(contents) - 1)
        if start >= len(contents):
            return self.refuse(416, "InvalidRange", "the range is behind the end")
        around = f"bytes {start}-{end}/{len(contents)}"
        self.send(206, contents[start : end + 1], Content_Range=around, **headers)


class _Google(_Handler):
    """Google's JSON interface."""

    uploads: dict[str, tuple[str, str, bool, bytearray]]

    def respond(self, names: list[str]) -> None:
        at = names.index("b")
        bucket, rest = names[at + 1], names[at + 3 :]
        if bucket not in self.store.buckets:
            return self.refuse(404, "notFound", "The specified bucket does not exist.")
        if names[0] == "upload":
            return self._upload(bucket)
        if len(names) == at + 2:
            return self._json({"name": bucket})
        if not rest:
            return self._list(bucket)
        blob = self.store.buckets[bucket].get(rest[0])
        if blob is None:
            return self.refuse(404, "notFound", f"No such object: {bucket}/{rest[0]}")
        if self.command == "DELETE":
            del self.store.buckets[bucket][rest[0]]
            return self.send(204)
        if rest[1:2] == ["rewriteTo"]:
            self.store.write(rest[3], rest[5], Blob(blob.contents), create_only=False)
            return self._json({"done": True})
        if self.asked.get("alt") == "media":
            return self.send_part(blob.contents, self.headers.get("Range"))
        self._json(_resource(bucket, rest[0], blob))

    def refuse(self, status: int, code: str, message: str) -> None:
        self._json({"error": {"code": status, "message": message, "errors": [{"reason": code}]}}, status)

    def _upload(self, bucket: str) -> None:
        create_only = self.asked.get("ifGenerationMatch") == "0"
        if self.asked["uploadType"] == "multipart":
            # A boundary, the name, the boundary, the contents, the boundary.
            _, described, contents = self.body.split(b"--==0==", 2)
            key = json.loads(described.partition(b"\n\n")[2])["name"]
            return self._store(bucket, key, contents.partition(b"\n\n")[2].rpartition(b"\n--==0==--")[0], create_only)
        if "upload_id" not in self.asked:
            name = str(next(_generations))
            self.uploads[name] = (bucket, json.loads(self.body)["name"], create_only, bytearray())
            return self.send(200, Location=f"{self.store.url}{self.path}&upload_id={name}")
        bucket, key, create_only, received = self.uploads[self.asked["upload_id"]]
        received += self.body
        last, _, size = self.headers["Content-Range"].rpartition("-")[2].partition("/")
        if int(last) + 1 < int(size):
            return self.send(308, Range=f"bytes=0-{last}")
        self._store(bucket, key, bytes(received), create_only)

    def _store(self, bucket: str, key: str, contents: bytes, create_only: bool) -> None:
        blob = Blob(contents)
        if not self.store.write(bucket, key, blob, create_only=create_only):
            return self.refuse(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
        self._json(_resource(bucket, key, blob))

    def _list(self, bucket: str) -> None:
        found, folders = self.store.below(bucket, self.asked.get("prefix", ""), self.asked.get("delimiter", ""))
        first, most = int(self.asked.get("pageToken", 0)), int(self.asked["maxResults"])
        answer: dict[str, Any] = {"kind": "storage#objects", "prefixes": folders}
        answer["items"] = [_resource(bucket, key, blob) for key, blob in found[first : first + most]]
        if first + most < len(found):
            answer["nextPageToken"] = str(first + most)
        self._json(answer)

    def _json(self, answer: dict[str, Any], status: int = 200) -> None:
        self.send(status, json.dumps(answer).encode(), Content_Type="application/json")


def _resource(bucket: str, key: str, blob: Blob) -> dict[str, str]:
    return {
        "bucket": bucket,
        "name": key,
        "size": str(len(blob.contents)),
        "generation": str(blob.generation),
        "metageneration": "1",
        "updated": blob.modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "crc32c": blob.crc32c,
        "md5Hash": blob.md5,
        "etag": "CPj=",
    }


class _Azure(_Handler):
    """Azure's REST interface of blobs, below the path of an account."""

    def respond(self, names: list[str]) -> None:
        container, key = names[1], "/".join(names[2:])
        blobs = self.store.buckets.get(container)
        if blobs is None:
            return self.refuse(404, "ContainerNotFound", "The specified container does not exist.")
        if self.asked.get("comp") == "list":
            return self._list(container)
        if not key:
            return self.send(200, **_headers(Blob(b"")))
        if self.command == "PUT":
            return self._put(container, key)
        if key not in blobs:
            return self.refuse(404, "BlobNotFound", "The specified blob does not exist.")
        blob = blobs[key]
        if self.command == "DELETE":
            del blobs[key]
            return self.send(202)
        if self.command == "HEAD":
            return self.send(200, blob.contents, **_headers(blob))
        self.send_part(blob.contents, self.headers.get("x-ms-range") or self.headers.get("Range"), **_headers(blob))

    def refuse(self, status: int, code: str, message: str) -> None:
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
        self.send(status, body.encode(), Content_Type="application/xml", x_ms_error_code=code)

    def _put(self, container: str, key: str) -> None:
        contents = self.body
        if (source := self.headers.get("x-ms-copy-source")) is not None:
            within, _, copied = unquote(urlsplit(source).path).removeprefix(f"/{ACCOUNT}/").partition("/")
            if copied not in self.store.buckets[within]:
                return self.refuse(404, "BlobNotFound", "The specified blob does not exist.")
            contents = self.store.buckets[within][copied].contents
        prefix = "x-ms-meta-"
        metadata = {name[len(prefix) :]: value for name, value in self.headers.items() if name.startswith(prefix)}
        blob = Blob(contents, metadata)
        if not self.store.write(container, key, blob, create_only=self.headers.get("If-None-Match") == "*"):
            return self.refuse(409, "BlobAlreadyExists", "The specified blob already exists.")
        copied_now = {} if source is None else {"x_ms_copy_status": "success", "x_ms_copy_id": "1"}
        self.send(201 if source is None else 202, **_headers(blob), **copied_now)

    def _list(self, container: str) -> None:
        found, folders = self.store.below(container, self.asked.get("prefix", ""), self.asked.get("delimiter", ""))
        entries = [_entry(key, blob) for key, blob in found]
        entries += [f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>" for folder in folders]
        place = f'ServiceEndpoint="{self.store.url}/{ACCOUNT}/" ContainerName="{container}"'
        listing = f"<Blobs>{''.join(entries)}</Blobs><NextMarker />"
        body = f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults {place}>{listing}</EnumerationResults>'
        self.send(200, body.encode(), Content_Type="application/xml")


def _headers(blob: Blob) -> dict[str, str]:
    return {
        "ETag": f'"0x{blob.generation:X}"',
        "Last_Modified": format_datetime(blob.modified, usegmt=True),
        "x_ms_blob_type": "BlockBlob",
        **{f"x_ms_meta_{name}": value for name, value in blob.metadata.items()},
    }


def _entry(key: str, blob: Blob) -> str:
    properties = (
        f"<Creation-Time>{format_datetime(blob.modified, usegmt=True)}</Creation-Time>"
        f"<Last-Modified>{format_datetime(blob.modified, usegmt=True)}</Last-Modified><Etag>0x{blob.generation:X}</Etag>"
        f"<Content-Length>{len(blob.contents)}</Content-Length><BlobType>BlockBlob</BlobType>"
        f"<Content-MD5>{blob.md5}</Content-MD5>"
    )
    metadata = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in blob.metadata.items())
    return (
        f"<Blob><Name>{escape(key)}</Name><Properties>{properties}</Properties><Metadata>{metadata}</Metadata></Blob>"
    )


@contextlib.contextmanager
def google_store() -> Iterator[CloudStore]:
    """A running store of Google's kind on a port that was free; it is gone afterwards."""
    handler = type("Google", (_Google,), {"uploads": {}})
    with _serving(CloudStore("gs://{}", "crc32c"), handler) as store:
        yield store


@contextlib.contextmanager
def azure_store() -> Iterator[CloudStore]:
    """A running store of Azure's kind on a port that was free; it is gone afterwards."""
    with _serving(
        CloudStore(f"abfss://{{}}@{ACCOUNT}.dfs.core.windows.net", "md5"), type("Azure", (_Azure,), {})
    ) as store:
        yield store


@contextlib.contextmanager
def _serving(store: CloudStore, handler: type[Any]) -> Iterator[CloudStore]:
    handler.store = store
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    server.daemon_threads = True
    store.url = f"http://{LOOPBACK}:{server.server_port}"
    with served(server):
        yield store


def environment(store: CloudStore) -> dict[str, str]:
    """The variables by which gcsfs and adlfs find a store."""
    if store.algorithm == "crc32c":
        return {
            "STORAGE_EMULATOR_HOST": store.url,
            # Without credentials, which it looks for on the network, too.
            "NO_GCE_CHECK": "true",
            # It asks Google over another protocol for the kind of a bucket.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }
    address = f"AccountName={ACCOUNT};AccountKey={_KEY};BlobEndpoint={store.url}/{ACCOUNT};"
    return {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{address}"}


def without_pauses(monkeypatch: pytest.MonkeyPatch, store: CloudStore) -> None:
    """The libraries try again after pauses of up to half a minute, which a test leaves out."""

    async def at_once(*_: object) -> None:
        pass

    if store.algorithm == "crc32c":
        import gcsfs.retry

        monkeypatch.setattr(gcsfs.retry, "asyncio", type("Impatient", (), {"sleep": at_once}))
        return
    from azure.storage.blob._shared.policies import ExponentialRetry
    from azure.storage.blob._shared.policies_async import ExponentialRetry as ExponentialRetryAsync

    for kind in (ExponentialRetry, ExponentialRetryAsync):
        monkeypatch.setattr(kind, "get_backoff_time", lambda *_: 0)
