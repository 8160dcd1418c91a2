"""A step whose Spark, which others run, does not see the warehouse: it claims nothing (rule 10.9)."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from threading import Barrier
from typing import Any

import dagster as dg
import pandas as pd
import pyspark.sql.functions as F
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, DatabuildSpark, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import (
    DagsterExecutionInterruptedError,
)
from databuild_dagster.bindings.building import builds, outputs
from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark import reach
from tests.bindings.conftest import Site, deployed
from tests.support.cluster import wait_until
from tests.support.object_store import S3Server
from tests.support.spark_elsewhere import Elsewhere

pytestmark = pytest.mark.long("only another Spark shares no disk with this process")

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2013-01-04")
DAYS = daily.get_partition_keys()
SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
#: More refusals than one probe takes.
MANY = 100


@databuild_asset(partitions_def=daily)
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)


@databuild_asset(partitions_def=daily)
def by_pandas(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture(autouse=True)
def on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe has more time here than a person has."""
    monkeypatch.setattr(reach, "MAX_PROBE_SECONDS", 60.0)


@pytest.fixture
def elsewhere(instance: dg.DagsterInstance, running_sail: Elsewhere) -> Iterator[Callable[..., Site]]:
    """Deploys assets on a Spark that shares no disk with this process."""
    yield partial(deployed, instance, "", spark=DatabuildSpark(mode="remote", url=running_sail.url))
    close_sessions()


@pytest.fixture
def blind(elsewhere: Callable[..., Site], tmp_path: Path) -> Site:
    """The warehouse is a folder of this machine."""
    return elsewhere(numbers, by_pandas, warehouse=str(tmp_path / "warehouse"))


def recorded(site: Site) -> tuple[list[Any], list[Any]]:
    return list(site.engine.queries.job_runs.newest()), list(site.engine.queries.wants.newest())


def test_a_pressed_run_fails_with_one_sentence_and_records_nothing(blind: Site, tmp_path: Path) -> None:
    run = blind.launch(["numbers"], DAYS[:2])

    assert run.status is FAILURE
    assert f"{tmp_path}/warehouse" in blind.failure()
    assert recorded(blind) == ([], [])


def test_a_launch_of_the_orchestrator_fails_for_the_same_reason_and_does_not_spin(blind: Site, tmp_path: Path) -> None:
    refs = [f"numbers@{day}" for day in DAYS]

    blind.build(*refs)

    assert [blind.state(ref) for ref in refs] == [InstanceState.UP_FOR_RETRY] * 3
    assert f"{tmp_path}/warehouse" in str(blind.engine.queries.canonical.of(refs)[refs[0]].reason)
    assert len(recorded(blind)[0]) == 3


def test_an_asset_without_spark_is_built_beside_a_spark_that_sees_nothing(blind: Site) -> None:
    run = blind.launch(["by_pandas"], DAYS[:1])

    assert run.status is SUCCESS
    assert blind.state(f"by_pandas@{DAYS[0]}") is InstanceState.LIVE


@pytest.mark.feature("operations")
def test_a_job_of_an_operation_cannot_be_executed(blind: Site) -> None:
    from databuild_dagster.features.operations.job import CannotExecute
    from databuild_dagster.features.operations.operations import operation_resources

    resources = operation_resources(blind.instance, blind.deployment)

    with pytest.raises(CannotExecute):
        _ = resources.spark


def test_the_next_run_asks_again_once_the_warehouse_can_be_written(
    elsewhere: Callable[..., Site], s3: S3Server, bucket: str
) -> None:
    site = elsewhere(numbers, warehouse=f"s3://{bucket}/warehouse")
    s3.refusals += [(403, "AccessDenied", ".zst.parquet")] * MANY
    assert site.launch(["numbers"], DAYS[:1]).status is FAILURE
    assert recorded(site) == ([], [])
    s3.refusals.clear()

    run = site.launch(["numbers"], DAYS[:1])

    assert run.status is SUCCESS
    assert site.rows(f"numbers@{DAYS[0]}") == [{"id": 0}, {"id": 1}, {"id": 2}]


# Results by portions


@databuild_asset(partitions_def=daily, batched=True)
def at_once(context: BuildContext, spark: SparkSession) -> DataFrame:
    frames = [spark.range(1).select("id", F.lit(key).alias("partition_key")) for key in context.partition_keys]
    return reduce(DataFrame.unionAll, frames)


def unlisted(s3: S3Server, bucket: str) -> list[str]:
    """Files of attempts that no manifest lists."""
    keys = s3.keys(bucket)
    manifests = [
        s3.client().get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        for key in keys
        if key.endswith("/manifest.json")
    ]
    files = [key.partition("/data/")[2] for key in keys if "/data/attempt=" in key]
    return [file for file in files if not any(file in text for text in manifests)]


def published_one_by_one(monkeypatch: pytest.MonkeyPatch, *, at: int, act: Callable[[], None]) -> list[int]:
    """Publish one result at a time, and act before one of them; the numbers of those that were begun."""
    write_ahead, calls = outputs.write_ahead, list[int]()

    def watched(*arguments: Any) -> Any:
        calls.append(len(calls) + 1)
        if calls[-1] == at:
            act()
        return write_ahead(*arguments)

    monkeypatch.setattr(builds, "PUBLISHED_AT_ONCE", 1)
    monkeypatch.setattr(outputs, "write_ahead", watched)
    return calls


def test_an_interrupt_while_results_are_published_leaves_no_file_without_a_manifest(
    elsewhere: Callable[..., Site],
    s3: S3Server,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = elsewhere(at_once, warehouse=f"s3://{bucket}/warehouse")

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: "Stopping" in caplog.text, "the step logs the interrupt", 120)

    calls = published_one_by_one(monkeypatch, at=1, act=interrupt)

    with pytest.raises((KeyboardInterrupt, DagsterExecutionInterruptedError)):
        site.build(*(f"at_once@{day}" for day in DAYS))

    assert calls, "the manifests were about to be written"
    assert unlisted(s3, bucket) == []


def test_manifests_that_could_not_be_written_together_are_written_again_side_by_side(
    elsewhere: Callable[..., Site], s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = elsewhere(at_once, warehouse=f"s3://{bucket}/warehouse")
    refs = [f"at_once@{day}" for day in DAYS]
    write_manifest, all_write = outputs.write_manifest, Barrier(len(DAYS))

    def beside_the_others(*arguments: Any) -> Any:
        all_write.wait(250)
        return write_manifest(*arguments)

    monkeypatch.setattr(outputs, "write_manifest", beside_the_others)
    s3.refusals += [(403, "AccessDenied", "/manifest.json")] * len(DAYS)

    site.build(*refs)

    assert s3.refusals == []
    assert [site.state(ref) for ref in refs] == [InstanceState.LIVE] * len(DAYS)


def test_an_unexpected_error_fails_the_results_that_are_published_together_and_no_others(
    elsewhere: Callable[..., Site], s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = elsewhere(at_once, warehouse=f"s3://{bucket}/warehouse")
    refs = [f"at_once@{day}" for day in DAYS]

    def fail() -> None:
        raise RuntimeError("out of luck")

    calls = published_one_by_one(monkeypatch, at=2, act=fail)

    site.build(*refs)

    states = [site.state(ref) for ref in refs]
    (failed,) = (ref for ref, state in zip(refs, states, strict=True) if state is not InstanceState.LIVE)
    assert site.state(failed) is InstanceState.FAILED
    assert "out of luck" in str(site.engine.queries.canonical.of([failed])[failed].reason)
    assert len(calls) == len(DAYS)
    assert unlisted(s3, bucket) == []
