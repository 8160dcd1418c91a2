"""A Spark that shares no disk with the tests: Sail, which speaks Spark Connect, with mounts of its own.

Sail writes Parquet to S3 by itself; of a Spark on a JVM see `jvm_elsewhere`. In its mount namespace the folders of the tests
are empty, so a path that a test and Sail both name is two places."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings

from .free_port import LOOPBACK, free_port
from .object_store import ENVIRONMENT, S3Server
from .processes import with_parent

START_SECONDS = 200.0


@dataclass
class Elsewhere:
    """The server and its address."""

    url: str
    process: subprocess.Popen[bytes]

    def settings(self, **more: Any) -> SparkSettings:
        return SparkSettings(mode="remote", url=self.url, **more)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server answers nothing meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def running_sail(running_s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """One for all tests of a worker: it starts in two seconds."""
    base = tmp_path_factory.getbasetemp()
    with sail_by(running_s3, [base], base / "sail.log") as server:
        yield server


@pytest.fixture
def sail_by_seaweedfs(seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """One for a test."""
    base = tmp_path_factory.getbasetemp()
    with sail_by(seaweedfs, [base], base / "sail-by-seaweedfs.log") as server:
        yield server


@contextmanager
def sail_by(s3: S3Server, hidden: list[Path], log: Path) -> Iterator[Elsewhere]:
    """A server for which the folders `hidden` are empty; it is gone afterwards."""
    skip_without_mounts()
    server = start_sail(s3, hidden, log)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def sail(running_sail: Elsewhere, s3: S3Server) -> Iterator[Any]:
    """A session of its own on the server, and this process's access to the same store."""
    session = open_session(running_sail.settings())
    yield session
    session.stop()


def start_sail(
    s3: S3Server,
    hidden: list[Path],
    log: Path,
    *,
    program: str = "-m databuild_dagster.spark.sail_server",
    port: int | None = None,
    **more: str,
) -> Elsewhere:
    """Start a server for which the folders `hidden` are empty; `more` is of its environment, and an empty text takes it away."""
    port = free_port() if port is None else port
    command = [*shlex.split(program), "spark", "server", "--ip", LOOPBACK, "--port", str(port)]
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "AWS_ENDPOINT": s3.url,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "RUST_LOG": "warn",
        **more,
    }
    return started([sys.executable, *command], port, hidden, log, environment)


def started(command: list[str], port: int, hidden: list[Path], log: Path, environment: dict[str, str]) -> Elsewhere:
    """A server that listens at a port of its own, in its own mounts. An empty text in the environment takes the name away."""
    mounts = "".join(f"mount -t tmpfs tmpfs '{folder}' && " for folder in hidden)
    with log.open("wb") as output:
        process = subprocess.Popen(
            with_parent([*_own_mounts(), "sh", "-c", f"{mounts}exec {shlex.join(command)}"], signal.SIGKILL),
            env={name: value for name, value in environment.items() if value},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    _wait_for(port, process, log)
    return Elsewhere(f"sc://{LOOPBACK}:{port}", process)


def skip_without_mounts() -> None:
    if subprocess.run([*_own_mounts(), "true"], capture_output=True, check=False).returncode:
        pytest.skip("a process may not have mounts of its own here")


def _own_mounts() -> list[str]:
    """Begins a command whose mounts are its own: without the rights of root, as root of a namespace of users."""
    return ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    process.kill()
    raise AssertionError(f"the server does not listen: {log.read_text()}")
