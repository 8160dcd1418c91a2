"""SeaweedFS on 127.0.0.1: an S3 server in Go, which answers requests at the same time and keeps connections open.

moto has one lock and closes each connection. What a test makes misbehave is moto (`object_store`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from .free_port import LOOPBACK, free_port
from .object_store import S3Server, used_by_this_process
from .processes import with_parent

PROGRAM = Path(sys.executable).with_name("weed")
START_SECONDS = 120.0
SOCKETS = Path("/tmp")
#: The servers of one process, each with a second port for the others.
SERVERS = ("s3", "filer", "master", "volume")


class Seaweed(NamedTuple):
    """The address of its S3, and its process."""

    url: str
    pid: int


@contextmanager
def seaweedfs_server(folder: Path) -> Iterator[Seaweed]:
    """A running server with its data in an empty folder; no server is left afterwards."""
    data = folder / "seaweedfs"
    data.mkdir()
    ports = {name: free_port() for server in SERVERS for name in (f"{server}.port", f"{server}.port.grpc")}
    command = [
        str(PROGRAM),
        "server",
        f"-dir={data}",
        f"-ip={LOOPBACK}",
        f"-ip.bind={LOOPBACK}",
        "-s3",
        *(f"-{name}={port}" for name, port in ports.items()),
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        # Each bucket has seven volumes of its own, which take no space on the disk before they have contents.
        "-volume.max=1000",
    ]
    log = folder / "seaweedfs.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            with_parent(command, signal.SIGKILL), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        server = Seaweed(f"http://{LOOPBACK}:{ports['s3.port']}", process.pid)
        _wait_for(server, process, log)
        yield server
    finally:
        process.kill()
        process.wait()
        # It has sockets beside its ports, and leaves them there.
        for port in ports.values():
            for left in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


def _wait_for(server: Seaweed, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it has a bucket: it listens before that."""
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            S3Server(server.url).client(attempts=1).create_bucket(Bucket="ready")
        except (BotoCoreError, ClientError):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        else:
            return
    raise AssertionError(f"SeaweedFS does not answer: {log.read_text()}")


@pytest.fixture(scope="session")
def running_seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """One for all tests of a worker; each takes a bucket of its own."""
    with seaweedfs_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def seaweedfs(running_seaweedfs: Seaweed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    """The server, this process's environment pointing to it, and an empty cache."""
    server = S3Server(running_seaweedfs.url)
    with used_by_this_process(server, monkeypatch, tmp_path / "cache"):
        yield server
