"""A standalone Spark cluster of real processes, from pip's PySpark alone, on this machine's loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from databuild_dagster.spark.installed import find_java
from databuild_dagster.spark.settings import worker_python

from .free_port import LOOPBACK, free_port

START_SECONDS = 200.0


class Cluster:
    """One master, and workers that come and go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self.url = f"spark://{LOOPBACK}:{self._port}"
        self._master = self._start("master.Master", LOOPBACK, "--port", str(self._port))
        wait_until(lambda: _listens(self._port), "the master listens")

    def add_worker(self, cores: int = 2, host: str = LOOPBACK) -> subprocess.Popen[bytes]:
        """A worker that the master knows. Spark runs a task a second time on another `host` alone."""
        name = f"worker-{len(self._processes)}"
        of_worker = ("-c", str(cores), "-m", "1g", "-d", str(self._folder / name), self.url)
        worker = self._start("worker.Worker", host, *of_worker)
        log = self._log_of(worker)
        wait_until(lambda: "Successfully registered with master" in log.read_text(), f"{name} is registered")
        return worker

    def stop(self) -> None:
        for process in reversed(self._processes):
            for child in _children_of(process.pid):
                _kill(child)
            process.kill()
            process.wait()

    def _start(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command, environment = daemon(name, host, *arguments)
        with open(self._folder / f"log-{len(self._processes)}", "wb") as log:
            process = subprocess.Popen(
                command,
                env=os.environ | environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def _log_of(self, process: subprocess.Popen[bytes]) -> Path:
        return self._folder / f"log-{self._processes.index(process)}"


def daemon(name: str, host: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command of a master or a worker that listens at an address, and the variables that it needs."""
    spark_home = _find_spark_home()
    command = [os.path.join(spark_home, "bin", "spark-class"), f"org.apache.spark.deploy.{name}"]
    return [*command, "--host", host, "--webui-port", "0", *arguments], {
        "JAVA_HOME": find_java().home,
        "SPARK_HOME": spark_home,
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": worker_python(),
    }


def wait_until(happened: object, what: str, seconds: float = START_SECONDS) -> None:
    """Poll until it has happened; fails with what was waited for."""
    assert callable(happened)
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not happened():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain until {what}"
        pause.wait(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as knock:
        return knock.connect_ex((LOOPBACK, port)) == 0


def _children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
