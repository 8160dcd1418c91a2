"""A Spark on a JVM that shares no disk with the tests: PySpark's server of Spark Connect, with mounts of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from databuild_dagster.spark import reach
from databuild_dagster.spark.installed import find_java
from databuild_dagster.spark.session import open_session

from .child_environment import child_environment
from .free_port import LOOPBACK, free_port
from .hadoop_bucket import hadoop_bucket
from .object_store import S3Server
from .spark_elsewhere import Elsewhere, skip_without_mounts, started

StartJvm = Callable[[], Elsewhere]

#: The bucket that these servers reach.
JVM_BUCKET = "jvm"
#: A JVM takes minutes beside other work.
JVM_TIMEOUT = pytest.mark.timeout(1200)

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Two tasks at once, and four attempts at each, as on a cluster.
_MASTER = "local[2,4]"


@pytest.fixture(scope="module")
def start_jvm(running_s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartJvm]:
    """Its servers end with the module: an idle one holds most of a gigabyte."""
    running_s3.make_bucket(JVM_BUCKET)
    with jvm_elsewhere(running_s3, JVM_BUCKET, [tmp_path_factory.getbasetemp()]) as start:
        yield start


@pytest.fixture(scope="module")
def running_jvm(start_jvm: StartJvm) -> Elsewhere:
    """It has run a job: a probe judges no Spark whose first one takes long."""
    server = start_jvm()
    session = open_session(server.settings())
    session.range(1).collect()
    session.stop()
    return server


@pytest.fixture
def jvm(running_jvm: Elsewhere, patient: None) -> Elsewhere:
    return running_jvm


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe has more time here than a person has: these tests look at what follows it."""
    monkeypatch.setattr(reach, "MAX_PROBE_SECONDS", 300.0)


@contextmanager
def jvm_elsewhere(s3: S3Server, bucket: str, hidden: list[Path]) -> Iterator[StartJvm]:
    """Yields what starts a server that reaches one bucket, as `s3a://<bucket>/…`, and sees nothing in the folders `hidden`.

    Servers end with the block. They have no setting of this package.
    """
    skip_without_mounts()
    servers: list[Elsewhere] = []
    with tempfile.TemporaryDirectory(prefix="databuild-jvm-") as name, hadoop_bucket(s3, bucket, Path(name)) as config:

        def start() -> Elsewhere:
            port = free_port()
            server = started(_command(config, port), port, hidden, Path(name, f"log-{len(servers)}"), _environment())
            servers.append(server)
            return server

        try:
            yield start
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()


def _command(config: dict[str, str], port: int) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    settings = {
        **config,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    command = [os.path.join(_find_spark_home(), "bin", "spark-submit"), "--master", _MASTER, "--class", _SERVER]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "spark-internal"]


def _environment() -> dict[str, str]:
    """Without credentials of this process, and without the marks that PySpark leaves in a client."""
    from pyspark.find_spark_home import _find_spark_home

    own = {name: value for name, value in child_environment().items() if not name.startswith("AWS_")}
    return own | {
        "JAVA_HOME": find_java().home,
        "SPARK_HOME": _find_spark_home(),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
    }
