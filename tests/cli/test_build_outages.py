"""A build outlasts an outage of the object store or of Spark, and nothing fails by it (rule 6.17)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from databuild_dagster.model.set_aside import Subject
from tests.support.project import Project, wait_until
from tests.support.spark_elsewhere import start_sail

from .sources import of_pandas, of_spark

DAYS = """
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-09")
"""

#: The first call of all takes the store away, so that its result cannot be written.
ON_A_STORE = of_pandas(
    DAYS
    + """
@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    if not (HERE / "called").exists():
        (HERE / "called").touch()
        (HERE / "away").touch()
    return pd.DataFrame({{"n": [1]}})


defs = build_definitions([orders], warehouse={warehouse!r})
"""
)

ON_SPARK = of_spark(
    DAYS
    + """
import os, signal

@databuild_asset(partitions_def=daily)
def orders(spark: SparkSession) -> DataFrame:
    if not (HERE / "called").exists():
        (HERE / "called").touch()
        os.kill({pid}, signal.SIGKILL)
    return spark.range(3)


defs = build_definitions([orders], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
"""
)


def build_during_an_outage(project: Project, come_back: Callable[[], None], *arguments: str) -> list[str]:
    """Build, and end the outage once it is recorded; returns the words about it that were recorded."""
    seen: list[str] = []

    def end_the_outage() -> None:
        wait_until(lambda: bool(project.queries.planning.set_aside()), "an outage")
        seen.extend(aside.name for aside in project.queries.planning.set_aside() if aside.kind is Subject.OUTAGE)
        come_back()

    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(end_the_outage)
        done = project.call("build", *arguments)
        ending.result()
    assert done.code == 0, done
    return seen


def is_unharmed(project: Project) -> bool:
    """No ref has failed, and nothing is set aside any longer."""
    assert project.queries.planning.set_aside() == []
    states = {run.state.value for run in project.queries.job_runs.newest()}
    return "Failed" in states and project.ask("status")["assets"][0]["failed"] == 0 and project.is_sound()


def test_a_build_waits_for_a_store_that_is_away(project: Project, s3, bucket) -> None:
    """Given a store that goes away in the first of eight builds, when it is back, then all are live."""
    project.define(ON_A_STORE.format(warehouse=f"s3://{bucket}/warehouse"))
    s3.away = project.folder / "away"

    seen = build_during_an_outage(project, s3.away.unlink, "orders@2024-01-01..2024-01-08")

    assert seen == ["outage of warehouse"]
    assert is_unharmed(project)
    assert not [key for key in s3.keys(bucket) if "/.probe" in key]


@pytest.mark.long("a Spark server that is killed and started again")
@pytest.mark.usefixtures("closed_sessions")
def test_a_build_waits_for_a_spark_that_is_away(project: Project, s3, bucket, tmp_path) -> None:
    """Given a Spark that is killed in the first of eight builds, when another answers in its place, then all are live."""
    log = tmp_path.parent / "sail.log"
    server = start_sail(s3, [tmp_path], log)
    port = int(server.url.rpartition(":")[2])
    project.define(ON_SPARK.format(url=server.url, warehouse=f"s3://{bucket}/warehouse", pid=server.process.pid))
    others = []

    def start_again() -> None:
        server.process.wait()
        others.append(start_sail(s3, [tmp_path], log, port=port))

    try:
        seen = build_during_an_outage(project, start_again, "orders@2024-01-01..2024-01-08")
    finally:
        for other in (server, *others):
            other.process.kill()
            other.process.wait()

    assert seen == ["outage of spark"]
    assert is_unharmed(project)
