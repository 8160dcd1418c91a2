"""A standalone Spark cluster of hosts: a master, workers, and a host that builds on it. All see one folder, which is the warehouse."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from tests.support.cluster import daemon, wait_until
from tests.support.jvm_options import options_of_young_jvms

from .hosts import HOME, ROOT, Host, Lab

PORT: Final = 7077
MASTER, BUILDER = "master", "builder"
WORKERS: Final = ("one", "two")
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
#: Of a session of the builder: small JVMs that start fast.
CONFIG: Final = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": options_of_young_jvms(),
}


class SparkCluster:
    """Use it as a context. `folder` must not exist."""

    def __init__(self, folder: Path) -> None:
        self.shared = folder / "shared"
        self.lab = Lab(folder / "hosts", [MASTER, BUILDER, *WORKERS], shared=self.shared)
        self.url = f"spark://{MASTER}:{PORT}"
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SparkCluster:
        self.shared.mkdir(parents=True)
        try:
            self.lab.__enter__()
            self._forget_the_builder()
            self._start(MASTER, "master.Master", "--port", str(PORT))
            log = self.lab[MASTER].folder / "spark.log"
            wait_until(lambda: "Starting Spark master" in log.read_text(), "the master listens")
            for name in WORKERS:
                self.start_worker(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lab.__exit__(kind, error, trace)

    def _forget_the_builder(self) -> None:
        """The other hosts do not know the builder's name, which is that of a container."""
        for name in (MASTER, *WORKERS):
            hosts = self.lab[name].folder / "etc-hosts"
            # In place: the file is mounted.
            hosts.write_text(hosts.read_text().replace(BUILDER, "forgotten"))

    @property
    def builder(self) -> Host:
        return self.lab[BUILDER]

    def start_worker(self, name: str) -> None:
        """A worker with one core, on its host."""
        log = self.lab[name].folder / "spark.log"
        log.unlink(missing_ok=True)
        of_worker = ("--cores", "1", "--memory", "1g", "--work-dir", str(HOME / "work"), self.url)
        self._workers[name] = self._start(name, "worker.Worker", *of_worker)
        wait_until(lambda: "Successfully registered with master" in log.read_text(), f"worker {name} is registered")

    def kill_executor(self, name: str) -> None:
        """The process in which a worker runs tasks. A worker has one for a session, and those that have ended."""
        for process in psutil.Process(self._workers[name].pid).children(recursive=True):
            with suppress(psutil.Error):
                if EXECUTOR in process.cmdline():
                    process.kill()

    def environment(self) -> dict[str, str]:
        """Of a command on the builder's host."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": "/root",
            "PYTHONPATH": str(ROOT),
            "DAGSTER_HOME": str(HOME / "home"),
            # The workers run Python functions by it; what they find as python3 may lack their modules.
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": options_of_young_jvms(),
        }

    def databuild(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command on the builder's host."""
        command = [sys.executable, "-m", "databuild_dagster", *arguments]
        return self.builder.run(command, environment=self.environment())

    def _start(self, host: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command, environment = daemon(name, str(self.lab[host].address), *arguments)
        environment |= {"PATH": os.environ["PATH"], "SPARK_DAEMON_JAVA_OPTS": options_of_young_jvms()}
        return self.lab[host].spawn(command, log="spark.log", environment=environment)
