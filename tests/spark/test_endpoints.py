"""Whether something answers at a host and port."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from databuild_dagster.spark import endpoints
from databuild_dagster.spark.endpoints import check_answers, check_reachable
from databuild_dagster.spark.errors import SparkUnreachable


def test_a_port_without_a_listener_is_refused_at_once() -> None:
    began = time.monotonic()

    with pytest.raises(SparkUnreachable, match=r"No Spark server answers at localhost:1 .*databuild spark stop"):
        check_reachable("localhost", 1)

    assert time.monotonic() - began < 60


@pytest.mark.parametrize("reply", [b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", b""])
def test_a_server_that_answers_or_closes_is_not_frozen(reply: bytes) -> None:
    def answer() -> None:
        with server.accept()[0] as connection:
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        check_answers("127.0.0.1", server.getsockname()[1])
        thread.join(250)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"HTTP/1.1 505 HTTP Version Not Supported", "a web server answers there, and no Spark Connect"),
        (b"\x15\x03\x01\x00\x02\x02F", "it speaks TLS, and the url lacks /;use_ssl=true"),
    ],
    ids=["web server", "TLS"],
)
def test_a_server_of_another_kind_is_named(reply: bytes, why: str) -> None:
    def answer() -> None:
        with server.accept()[0] as connection:
            connection.recv(1)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SparkUnreachable, match=why):
            check_answers("127.0.0.1", server.getsockname()[1])
        thread.join(250)


def test_a_server_whose_connections_only_the_kernel_accepts_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "ANSWER_SECONDS", 0.2)

    with socket.create_server(("127.0.0.1", 0)) as server:
        assert check_reachable("127.0.0.1", server.getsockname()[1]) == "127.0.0.1"
        with pytest.raises(SparkUnreachable, match="it accepts connections and has been silent"):
            check_answers("127.0.0.1", server.getsockname()[1])
