"""The stores of the bench, each behind a process that counts what the parties ask."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.object_store import S3Server
from tests.support.seaweedfs import seaweedfs_server


class Store:
    """A process that counts what comes through it, its urls by party, and its figures."""

    def __init__(self, process: subprocess.Popen[str], *behind: int) -> None:
        self._process = process
        #: The processes that work for a request: this one, and those behind it.
        self.pids = (process.pid, *behind)
        self.urls: dict[str, str] = self._line()

    def figures(self) -> dict[str, dict[str, Any]]:
        """For each party since the last call: bytes `sent` to it and `received` from it, as the kernel counts them.

        And its `requests` with the bytes of the answers' `contents`, by operation.
        """
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        found: dict[str, dict[str, Any]] = self._line()
        return found

    def client(self) -> Any:
        return S3Server(self.urls["spark"]).client()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def running_moto(latency: float, folder: Path) -> Iterator[Store]:
    """A store whose requests wait for `latency` milliseconds. It has no data in a folder."""
    with counting_process("bench.anywhere.store", "--latency", str(latency)) as process:
        yield Store(process)


@contextmanager
def running_seaweedfs(latency: float, folder: Path) -> Iterator[Store]:
    """A store whose answers are on the way for `latency` milliseconds (`bench.anywhere.way`)."""
    with (
        seaweedfs_server(folder) as server,
        counting_process("bench.anywhere.way", server.url, "--latency", str(latency)) as process,
    ):
        yield Store(process, server.pid)


@contextmanager
def counting_process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


STORES = {"moto": running_moto, "seaweedfs": running_seaweedfs}
