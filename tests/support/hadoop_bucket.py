"""Hadoop's access to a bucket, out of what pip's PySpark has: its WebHDFS client, and a gateway from there to S3.

No package registry has the jars of `s3a://`. Hadoop's client for WebHDFS is part of every Spark, speaks plain HTTP and takes
any scheme. So a JVM session with these settings writes and reads `s3a://bucket/…` through Hadoop's own interfaces, with
Spark's own committer, and through no disk. As with S3, a folder is a prefix, and a rename is a copy and a removal. What the
store refuses is an error in the words of Hadoop's client for S3, after as many attempts."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import punctuation
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from botocore.exceptions import ClientError

from .free_port import LOOPBACK
from .object_store import S3Server
from .serving import served

_PREFIX = "/webhdfs/v1/"
#: WebHDFS's port, where a url names none.
_PORT = 9870
#: How often one request is tried, as the clients of S3 do.
_ATTEMPTS = 5
#: Codes of an answer without contents, and with some, for an object that is not there.
_ABSENT = ("404", "NoSuchKey")


@contextlib.contextmanager
def hadoop_bucket(s3: S3Server, bucket: str, folder: Path) -> Iterator[dict[str, str]]:
    """A running gateway to one bucket; yields the settings by which a Spark finds it behind `s3a://<bucket>/…`."""
    client = s3.client(_ATTEMPTS)

    class Handler(_Gateway):
        store = _Bucket(client, bucket)

    server = _listening(Handler)
    address = server.server_address[0]
    hosts = folder / f"hosts-{bucket}"
    # Java asks this file alone.
    hosts.write_text(f"{LOOPBACK} localhost {socket.gethostname()}\n{address} {bucket}\n")
    with served(server):
        yield {
            "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.hdfs.web.WebHdfsFileSystem",
            "spark.driver.extraJavaOptions": f"-Djdk.net.hosts.file={hosts}",
        }


def _listening(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """A server on the port of WebHDFS, at an address of the loopback network that is free."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            return ThreadingHTTPServer((f"127.{random.randrange(1, 255)}.{random.randrange(256)}.2", _PORT), handler)
    raise AssertionError("no loopback address is free")


class _Bucket:
    """The few operations of a file system over the keys of a bucket."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def below(self, path: str) -> list[dict[str, Any]]:
        """Every object below a folder; a made folder is an object whose key ends in a slash."""
        prefix = f"{path}/" if path else ""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        return [entry for page in pages for entry in page.get("Contents", ())]

    def status(self, path: str) -> dict[str, Any] | None:
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=path) if path else None
        except ClientError as error:
            if error.response["Error"]["Code"] not in _ABSENT:
                raise
            found = None
        if found is not None:
            return _status("", found["ContentLength"], found["LastModified"].timestamp())
        return _status("", None) if not path or self.below(path) else None

    def children(self, path: str) -> list[dict[str, Any]]:
        start = len(path) + 1 if path else 0
        found: dict[str, dict[str, Any]] = {}
        for entry in self.below(path):
            name, deeper, _ = entry["Key"][start:].partition("/")
            if name:
                modified = entry["LastModified"].timestamp()
                found[name] = _status(name, None if deeper else entry["Size"], modified)
        return list(found.values())

    def read(self, path: str, offset: int, length: int | None) -> bytes:
        end = "" if length is None else str(offset + length - 1)
        if length == 0:
            return b""
        found = self._client.get_object(Bucket=self._bucket, Key=path, Range=f"bytes={offset}-{end}")
        contents: bytes = found["Body"].read()
        return contents

    def write(self, path: str, contents: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=path, Body=contents)

    def rename(self, path: str, to: str) -> bool:
        if (there := self.status(path)) is None:
            return False
        if (target := self.status(to)) is not None:
            if target["type"] == "FILE":
                return False
            to = f"{to}/{path.rpartition('/')[2]}"
        keys = [path] if there["type"] == "FILE" else [entry["Key"] for entry in self.below(path)]
        for key in keys:
            source = {"Bucket": self._bucket, "Key": key}
            self._client.copy_object(Bucket=self._bucket, Key=to + key[len(path) :], CopySource=source)
        self._remove(keys)
        return True

    def remove(self, path: str) -> bool:
        keys = [path, *(entry["Key"] for entry in self.below(path))]
        existed = self.status(path) is not None
        self._remove(keys)
        return existed

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self._client.delete_object(Bucket=self._bucket, Key=key)


class _Gateway(BaseHTTPRequestHandler):
    """WebHDFS, as far as Spark asks for it."""

    protocol_version = "HTTP/1.1"
    store: _Bucket

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answered(
            {
                "OPEN": self._open,
                "LISTSTATUS": self._list,
                "GETFILESTATUS": self._stat,
                "GETFILEBLOCKLOCATIONS": lambda: self._json({"BlockLocations": {"BlockLocation": []}}),
            }
        )

    def do_PUT(self) -> None:
        self._answered({"CREATE": self._create, "MKDIRS": self._mkdirs, "RENAME": self._rename})

    def do_DELETE(self) -> None:
        self._answered({"DELETE": lambda: self._boolean(self.store.remove(self.path_asked))})

    def _answered(self, operations: dict[str, Any]) -> None:
        # The client sends a character as its bytes in UTF-8, each of which is a character here.
        self.path = quote(self.path.encode("latin-1"), safe=punctuation)
        url = urlsplit(self.path)
        self.parameters = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.path_asked = unquote(url.path).removeprefix(_PREFIX.rstrip("/")).strip("/")
        operation = operations.get(self.parameters["op"].upper())
        if operation is None:
            self._error(400, "UnsupportedOperationException", f"{self.parameters['op']} is not in this gateway")
            return
        try:
            operation()
        except ClientError as error:
            self._error(500, "IOException", self._in_words_of_s3a(error))
        except Exception as error:
            self._error(500, "IOException", f"{type(error).__name__}: {error}")

    def _in_words_of_s3a(self, error: ClientError) -> str:
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        message = error.response["Error"].get("Message")
        if code.isdigit():  # An answer without contents, to HEAD.
            code = message = "null"
        place = f"s3a://{self.headers['Host'].partition(':')[0]}/{self.path_asked}"
        reason = f"{message} (Service: S3, Status Code: {status}, Request ID: 7)"
        return f"{self.command} on {place}: software.amazon.awssdk.services.s3.model.S3Exception: {reason}:{code}"

    def _open(self) -> None:
        length = self.parameters.get("length")
        offset = int(self.parameters.get("offset", 0))
        if self.store.status(self.path_asked) is None:
            return self._absent()
        contents = self.store.read(self.path_asked, offset, None if length is None else int(length))
        self._send(200, contents)

    def _list(self) -> None:
        status = self.store.status(self.path_asked)
        if status is None:
            return self._absent()
        found = [status] if status["type"] == "FILE" else self.store.children(self.path_asked)
        self._json({"FileStatuses": {"FileStatus": found}})

    def _stat(self) -> None:
        status = self.store.status(self.path_asked)
        if status is None:
            return self._absent()
        self._json({"FileStatus": status})

    def _create(self) -> None:
        if "data" not in self.parameters:
            # The client sends the contents to the place that this answer names.
            host, port = self.server.server_address[:2]
            self._send(307, b"", Location=f"http://{host}:{port}{self.path}&data=1")
            return
        contents = self._body()
        if self.parameters.get("overwrite") != "true" and self.store.status(self.path_asked) is not None:
            return self._error(403, "FileAlreadyExistsException", f"{self.path_asked} exists")
        self.store.write(self.path_asked, contents)
        self._send(201, b"")

    def _mkdirs(self) -> None:
        self.store.write(f"{self.path_asked}/", b"")
        self._boolean(True)

    def _rename(self) -> None:
        self._boolean(self.store.rename(self.path_asked, self.parameters["destination"].strip("/")))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _absent(self) -> None:
        self._error(404, "FileNotFoundException", f"File does not exist: /{self.path_asked}")

    def _boolean(self, answer: bool) -> None:
        self._json({"boolean": answer})

    def _error(self, status: int, name: str, message: str) -> None:
        package = "java.lang" if name.startswith("Unsupported") else "java.io"
        fault = {"exception": name, "javaClassName": f"{package}.{name}", "message": message}
        self._json({"RemoteException": fault}, status)

    def _json(self, answer: dict[str, Any], status: int = 200) -> None:
        self._send(status, json.dumps(answer).encode())

    def _send(self, status: int, contents: bytes, **headers: str) -> None:
        self.send_response(status)
        # No content type: the shaded client of pip's Spark lacks the class that would parse one.
        for name, value in {"Content-Length": str(len(contents)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(contents)


def _status(name: str, size: int | None, modified: float = 0.0) -> dict[str, Any]:
    """A file with its size, or a folder."""
    return {
        "pathSuffix": name,
        "type": "DIRECTORY" if size is None else "FILE",
        "length": size or 0,
        "modificationTime": int(modified * 1000),
        "accessTime": 0,
        "blockSize": 128 << 20,
        "childrenNum": 0,
        "fileId": 0,
        "group": "tests",
        "owner": "tests",
        "permission": "755",
        "replication": 1,
        "storagePolicy": 0,
    }
