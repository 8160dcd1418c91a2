"""A proxy between this machine and the world is not between a process and its own Spark server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from databuild_dagster.spark.pyspark_names import leave_proxies_out
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings


@pytest.fixture
def silent_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A proxy that takes connections and never answers, named by the environment as companies do it."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        url = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, url)
        for name in ("no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield proxy


def test_a_session_of_the_local_server_asks_no_proxy(silent_proxy: socket.socket, spark_home: str) -> None:
    spark = open_session(SparkSettings(home=spark_home, app_name="behind a proxy"))

    assert spark.range(3).count() == 3
    with pytest.raises(BlockingIOError):
        silent_proxy.accept()
    spark.stop()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, "localhost,127.0.0.1"),
        ({"no_proxy": "corp.example, localhost"}, "corp.example,localhost,127.0.0.1"),
        ({"no_proxy": "ignored.example", "no_grpc_proxy": "grpc.example"}, "grpc.example,localhost,127.0.0.1"),
    ],
)
def test_the_hosts_that_were_left_out_stay_left_out(
    given: dict[str, str], kept: str, silent_proxy: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    leave_proxies_out()
    leave_proxies_out()

    assert os.environ.get("no_grpc_proxy") == kept  # noqa: SIM112
