"""Tasks that fail or run twice while a Spark on a JVM writes an attempt into a bucket (rule 10.9)."""

import os
from pathlib import Path

import pytest

from databuild_dagster.model.refs import parse_ref
from databuild_dagster.spark.reach import reach_of
from databuild_dagster.spark.server import stop_server, use_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.spark.staging import stage_instance
from databuild_dagster.warehouse.layout import Warehouse

from ..support.cluster import Cluster
from ..support.hadoop_bucket import hadoop_bucket

pytestmark = [pytest.mark.long("tasks run twice on a cluster"), pytest.mark.timeout(3600)]

BUCKET = "committers"
N_ROWS = 200
N_RUNS = 100
#: How long a task waits for its second attempt.
MAX_SECONDS = 120
#: The version of Hadoop's committer: 1 moves the files at the commit of the job, 2 at the commit of each task.
VERSION = "mapreduce.fileoutputcommitter.algorithm.version"
#: A task is started twice as soon as the other one is done. A local master has no speculation.
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # A server that this package starts leaves no mark otherwise.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}


@pytest.fixture(scope="module")
def jvm(running_s3, tmp_path_factory):
    """A session on two executors, which write and read the bucket without a disk of ours."""
    home = tmp_path_factory.mktemp("jvm")
    running_s3.make_bucket(BUCKET)
    cluster = Cluster(home)
    with hadoop_bucket(running_s3, BUCKET, home) as config:
        of_executors = {"spark.executor.extraJavaOptions": config["spark.driver.extraJavaOptions"]}
        settings = SparkSettings(home=home, master=cluster.url, config={**config, **of_executors, **EAGER})
        try:
            for host in ("127.0.0.1", "127.0.0.3"):
                cluster.add_worker(cores=1, host=host)
            session = open_session(SparkSettings(mode="remote", url=use_server(settings).url))
            yield session
            session.stop()
        finally:
            stop_server(home)
            cluster.stop()


@pytest.fixture
def warehouse(s3):
    return Warehouse(f"s3://{BUCKET}/warehouse")


def troubled(spark, folder: Path):
    """Rows in two tasks: the first fails after its last row, the second ends when it runs a second time beside itself."""
    place = str(folder)

    def trouble(batches):
        import time

        from pyspark import TaskContext

        task = TaskContext.get()
        yield from batches
        Path(f"{place}/{task.partitionId()}-{task.attemptNumber()}").touch()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            raise OSError("failed after its last row")
        until = time.monotonic() + MAX_SECONDS
        while task.partitionId() == 1 and not os.path.exists(f"{place}/1-1"):
            assert time.monotonic() < until, "the second task was not started again"
            time.sleep(0.05)

    return spark.range(N_ROWS, numPartitions=2).mapInPandas(trouble, "id long")


@pytest.mark.extended
@pytest.mark.parametrize("version", ["1", "2"], ids=["committer 1", "committer 2"])
def test_no_row_is_there_twice_when_tasks_fail_and_run_twice(jvm, s3, warehouse, tmp_path, version) -> None:
    reach = reach_of(jvm, warehouse.root, "jvm", start_seconds=120)
    assert (reach.leaves_mark, reach.names_files, reach.counts_rows, reach.reads_keys) == (True, True, True, True)
    jvm.conf.set(VERSION, version)

    for number in range(N_RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        attempt = warehouse.new_attempt_dir("days", "run")
        staged = stage_instance(troubled(jvm, folder), attempt, ref=parse_ref("days"), reach=reach)

        assert {"0-0", "0-1", "1-0", "1-1"} <= set(os.listdir(folder))
        read = jvm.read.schema("id long").parquet(*[reach.url_of(path) for path in staged.paths])
        assert sorted(row.id for row in read.collect()) == list(range(N_ROWS))
        assert sum(file.rows for file in staged.files) == N_ROWS
