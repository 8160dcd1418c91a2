"""A real S3-compatible server (moto's) on 127.0.0.1, in front of it a gate through which a test makes it misbehave."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import pytest

from .serving import served

T = TypeVar("T")

#: What a WSGI server calls, and what it calls with.
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    # A test that takes the server away does not wait for five polite attempts.
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
    # Nor does it depend on whose machine this is.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


#: More than a test needs to kill a process and to build once more.
MAX_HELD_SECONDS = 300.0


@dataclass
class Hold:
    """The next request of a method to a part of a path, with an end of it, held back until the test answers it."""

    method: str
    path: str
    end: str = ""
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def answer(self) -> None:
        """Let the request take effect, whether its client is still there or not."""
        self.released.set()
        assert self.done.wait(MAX_HELD_SECONDS)


@dataclass
class S3Server:
    """The server's address, what it was asked, and how it is to misbehave."""

    url: str
    #: Method and path of each request, in order.
    requests: list[tuple[str, str]] = field(default_factory=list)
    #: Bytes of the answers' contents, by the first word of the asking program's name.
    sent: Counter[str] = field(default_factory=Counter)
    #: Takes no notice of `If-None-Match`, as older stores do.
    ignores_conditions: bool = False
    #: What it answers instead, request by request: status, S3's code, and a part of the method and path it is about.
    refusals: list[tuple[int, str, str]] = field(default_factory=list)
    #: Refuses every so many requests, if it is not zero.
    fails_every: int = 0
    #: It refuses everything while this file exists, also one that a function of a user has made.
    away: Path | None = None
    #: How long it waits before an answer, once for each: seconds, and a part of the method and path it is about.
    delays: list[tuple[float, str]] = field(default_factory=list)
    #: Requests that it holds back, each once.
    holds: list[Hold] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(self, method: str, path: str, end: str = "") -> Hold:
        self.holds.append(Hold(method, path, end))
        return self.holds[-1]

    def client(self, attempts: int | None = None) -> Any:
        """A client of boto3, which tries a request so often, by default as the environment has it."""
        import boto3
        from botocore.config import Config

        config = Config(retries={"total_max_attempts": attempts, "mode": "standard"}) if attempts else None
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", config=config, **_KEYS)

    def make_bucket(self, name: str) -> str:
        self.client().create_bucket(Bucket=name)
        return name

    def drop_bucket(self, name: str) -> None:
        """With all that is in it, as a person does by mistake."""
        for key in self.keys(name):
            self.client().delete_object(Bucket=name, Key=key)
        self.client().delete_bucket(Bucket=name)

    def keys(self, bucket: str) -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", ()))

    def downloads(self) -> list[str]:
        return [path for method, path in self.requests if method == "GET" and path.endswith(".parquet")]

    def gate(self, app: App) -> App:
        def gated(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests.append(request)
            if self.ignores_conditions:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            hold = self._taken(
                self.holds,
                lambda hold: hold.method == request[0] and hold.path in request[1] and request[1].endswith(hold.end),
            )
            if hold is not None:
                return held(hold, environ, start_response)
            return answered(environ, start_response)

        def held(hold: Hold, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            # A client that is killed sends no more of it.
            if length := environ.get("CONTENT_LENGTH"):
                environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(int(length)))
            hold.reached.set()
            hold.released.wait(MAX_HELD_SECONDS)
            try:
                return answered(environ, start_response)
            finally:
                hold.done.set()

        def answered(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            if self.away is not None and self.away.exists():
                return refused(503, "ServiceUnavailable", request, start_response)
            words = " ".join(request)
            if (refusal := self._taken(self.refusals, lambda refusal: refusal[2] in words)) is not None:
                return refused(refusal[0], refusal[1], request, start_response)
            if (delay := self._taken(self.delays, lambda delay: delay[1] in words)) is not None:
                threading.Event().wait(delay[0])
            if self.fails_every and len(self.requests) % self.fails_every == 0:
                return refused(503, "SlowDown", request, start_response)
            return self._counted(environ.get("HTTP_USER_AGENT", "").partition("/")[0], app(environ, start_response))

        def refused(status: int, code: str, request: tuple[str, str], start_response: Any) -> Iterable[bytes]:
            body = f"<Error><Code>{code}</Code><Message>{code} by the test</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response(f"{status} {code}", headers)
            # What follows the answer to a HEAD would be taken for the next answer, if it comes in time.
            return [] if request[0] == "HEAD" else [body]

        return gated

    def _taken(self, list_of: list[T], is_about: Callable[[T], bool]) -> T | None:
        """Remove the first one that is about a request, for this request alone: others are answered at the same time."""
        with self._lock:
            for number, one in enumerate(list_of):
                if is_about(one):
                    return list_of.pop(number)
            return None

    def _counted(self, asking: str, answer: Iterable[bytes]) -> Iterator[bytes]:
        for piece in answer:
            self.sent[asking] += len(piece)
            yield piece


_KEYS = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests"}


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server on a port that was free; it is gone afterwards."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any, **__: Any) -> None:
            pass

    server = S3Server(url="")
    app = server.gate(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    server.url = f"http://127.0.0.1:{http.server_port}"
    with served(http):
        yield server


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Server]:
    """One for all tests of a folder; each takes a bucket of its own."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(running_s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    """The server, this process's environment pointing to it, and an empty cache."""
    running_s3.requests.clear()
    running_s3.sent.clear()
    running_s3.refusals.clear()
    running_s3.delays.clear()
    running_s3.fails_every = 0
    running_s3.away = None
    running_s3.holds.clear()
    running_s3.ignores_conditions = False
    with used_by_this_process(running_s3, monkeypatch, tmp_path / "cache"):
        yield running_s3


@contextlib.contextmanager
def used_by_this_process(server: S3Server, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    """The environment points to a server and to a folder for copies, and no connection to another server is used."""
    from databuild_dagster.warehouse.object_store import forget_connections

    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABUILD_CACHE_DIR", str(cache))
    forget_connections()
    yield
    forget_connections()


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> str:
    return own_bucket(s3, request)


def own_bucket(server: S3Server, request: pytest.FixtureRequest) -> str:
    """A new bucket, which no other test has."""
    return server.make_bucket(f"b{abs(hash(request.node.nodeid))}")
