"""Builds on a standalone Spark cluster of real processes, some of which are killed (rule 6.8)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, wait_until
from tests.support.project import MAX_SECONDS, PLAIN_DAGSTER_YAML, Project

from .sources import of_spark

pytestmark = [pytest.mark.long("the executors and workers of a cluster are processes"), pytest.mark.timeout(400)]

DEFINITIONS = of_spark("""
import threading

@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    # In here, and so sent along: the workers have no module named `definitions`.
    def wait_and_pass_on(frames):
        for frame in frames:
            for task in frame.id:
                (HERE / f"begun-{{task}}").touch()
            for _ in range(30_000):
                if (HERE / "go").exists():
                    break
                threading.Event().wait(0.01)
            else:
                raise TimeoutError("go was not created within 300 s")
            yield frame

    return spark.range(0, 4, numPartitions=4).mapInPandas(wait_and_pass_on, "id long")


@databuild_asset
def total(numbers: DataFrame) -> DataFrame:
    return numbers.agg(F.sum("id").alias("total"))


@databuild_asset
def too_much(spark: SparkSession) -> DataFrame:
    return spark.sql("select size(collect_list(repeat(sha2(string(id), 512), 25))) as n from range(0, 9000000, 1, 1)")


spark = DatabuildSpark(
    mode="remote",
    url={url!r},
    spark_config={{"spark.executor.memory": "512m", "spark.executor.cores": "2", "spark.task.maxFailures": {failures}}},
)
defs = build_definitions([numbers, total, too_much], spark=spark)
""")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    yield cluster
    cluster.stop()


def deploy(project: Project, cluster: Cluster, failures: int = 4) -> None:
    project.define(DEFINITIONS.format(url=cluster.url, failures=failures))
    (project.home / "dagster.yaml").write_text(PLAIN_DAGSTER_YAML)


def all_begun(project: Project, n: int) -> bool:
    return len(list(project.folder.glob("begun-*"))) >= n


@pytest.mark.extended
def test_a_build_survives_the_death_of_an_executor_and_of_a_worker(project: Project, cluster: Cluster) -> None:
    first = cluster.add_worker()
    deploy(project, cluster)

    process = project.start("build", "total", "--json")
    wait_until(lambda: all_begun(project, 2) or process.poll() is not None, "two tasks run")
    (executor,) = cluster.executors_of(first)
    os.kill(executor, signal.SIGKILL)
    wait_until(lambda: cluster.executors_of(first) not in ([], [executor]), "there is another executor")
    second = cluster.add_worker()
    wait_until(lambda: bool(cluster.executors_of(second)), "the second worker works too")
    first.kill()
    (project.folder / "go").touch()
    out, err = process.communicate(timeout=MAX_SECONDS)

    assert process.returncode == 0, err
    assert '"live": 1' in out
    assert project.ask("read", "total") == [{"total": 6}]
    assert project.is_sound()


@pytest.mark.extended
def test_an_executor_out_of_memory_is_named_and_retried_twice(project: Project, cluster: Cluster) -> None:
    """Rule 6.8: the executor is lost, which is transient; three attempts, then Failed."""
    cluster.add_worker()
    deploy(project, cluster, failures=1)

    done = project.run("build", "too_much", "--json")

    assert done.code == 1, done
    runs = project.ask("job-run", "list")
    assert [run["state"] for run in runs] == ["Failed"] * 3
    for run in runs:
        assert "executor" in run["error"]
        assert "ran out of memory" in run["error"]
        assert "spark.executor.memory" in run["error"]
    assert project.is_sound()
