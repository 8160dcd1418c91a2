"""A Spark Connect server as a cluster's operators run one: without a token, since PySpark before 4.0 sends one by TLS alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from databuild_dagster.spark.endpoints import accepts
from databuild_dagster.spark.installed import find_java
from databuild_dagster.spark.settings import LOOPBACK
from tests.support.free_port import free_port

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
READY_SECONDS = 120.0


@contextmanager
def connect_server(folder: str, python: Path) -> Iterator[str]:
    """The url of a server of an interpreter's PySpark, which sees this machine's disk; it ends with the block."""
    port, log = free_port(), Path(folder) / "server.log"
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    asked = [str(python), "-c", "import pyspark; print(pyspark.__path__[0])"]
    spark = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    command = [f"{spark}/bin/spark-submit", "--class", _SERVER, "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    # Python functions run in that interpreter, and not in the `python3` of the PATH.
    environment = {**os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": str(python)}
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(process, port, log)
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not accepts(LOOPBACK, port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(
                f"The Spark server did not come up within {READY_SECONDS} s: {log.read_text()[-2000:]}"
            )
        time.sleep(0.2)
