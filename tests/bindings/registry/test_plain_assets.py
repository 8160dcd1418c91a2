"""Plain Dagster assets beside ours, builds elsewhere, and job runs that are ended from outside."""

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import DagsterExecutionInterruptedError
from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute_order
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.engine import launch_heartbeat as heartbeat
from databuild_dagster.model.commands import CancelJobRuns
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.spark.session import spark_ui_url
from tests.support.cluster import wait_until
from tests.support.endless import ENDLESS
from tests.support.spark_ui import spark_jobs

LIVE = InstanceState.LIVE
daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAY, NEXT = "2013-01-01", "2013-01-02"


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key], "n": [int(context.partition_key[-2:])]})


@dg.asset(partitions_def=daily)
def drops(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Plain, with Dagster's own IO manager."""
    return pd.DataFrame({"day": [context.partition_key], "drops": [1]})


@pytest.mark.long("only Spark takes a frame of another asset as its own")
def test_ours_reads_a_plain_asset_which_is_launched_when_it_is_missing(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily)
    def rain(drops: DataFrame) -> DataFrame:
        return drops.selectExpr("day", "drops * 10 as mm")

    site = deploy(drops, rain)

    site.build(f"rain@{DAY}")

    assert site.rows(f"rain@{DAY}") == [{"day": DAY, "mm": 10}]
    assert site.engine.queries.datasets.get("drops").kind is DatasetKind.PLAIN
    assert [run.status for run in site.runs] == [dg.DagsterRunStatus.SUCCESS] * 2


def test_a_plain_asset_that_dagster_has_materialized_already_is_not_launched(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily)
    def rain(drops: pd.DataFrame) -> pd.DataFrame:
        return drops

    site = deploy(drops, rain)
    site.launch(["drops"], [DAY])

    site.build(f"rain@{DAY}")

    assert len(site.runs) == 2
    (instance,) = [one for one in site.engine.queries.instances.history(f"rain@{DAY}") if one.canonical]
    assert instance.inputs == (site.engine.queries.canonical.of([f"drops@{DAY}"])[f"drops@{DAY}"].uuid,)


def test_an_external_asset_is_waited_for_until_it_is_reported(deploy: Any) -> None:
    delivery = dg.AssetSpec("delivery", partitions_def=daily)

    @databuild_asset(partitions_def=daily, deps=[delivery])
    def unpacked(context: BuildContext) -> pd.DataFrame:
        return pd.DataFrame({"day": [context.partition_key]})

    site = deploy(delivery, unpacked)
    site.build(f"unpacked@{DAY}")
    assert site.state(f"unpacked@{DAY}") is InstanceState.UPSTREAM_BUILDING

    site.instance.report_runless_asset_event(dg.AssetMaterialization("delivery", partition=DAY))
    site.build()

    assert site.state(f"unpacked@{DAY}") is LIVE


@pytest.mark.long("only Spark reads a frame of Spark")
def test_plain_assets_and_checks_read_ours_as_one_frame(deploy: Any) -> None:
    seen: dict[str, Any] = {}

    @dg.asset(partitions_def=daily, backfill_policy=dg.BackfillPolicy.single_run())
    def report(numbers: pd.DataFrame) -> None:
        seen["pandas"] = sorted(numbers["n"])

    @dg.asset(partitions_def=daily, backfill_policy=dg.BackfillPolicy.single_run())
    def chart(numbers: DataFrame) -> None:
        seen["spark"] = sorted(row.n for row in numbers.collect())

    @dg.asset_check(asset=numbers)
    def positive(numbers: pd.DataFrame) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=bool((numbers["n"] > 0).all()))

    site = deploy(numbers, report, chart, asset_checks=[positive])

    run = site.launch(["numbers", "report", "chart"], [DAY, NEXT])

    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert seen == {"pandas": [1, 2], "spark": [1, 2]}
    assert site.steps["numbers_positive"] == "success"


def test_a_plain_asset_that_reads_a_missing_ref_is_refused(deploy: Any) -> None:
    @dg.asset(partitions_def=daily)
    def report(numbers: pd.DataFrame) -> None: ...

    site = deploy(numbers, report)

    run = site.launch(["report"], [DAY])

    assert run.status is dg.DagsterRunStatus.FAILURE
    (failure,) = site.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    assert "NotLive" in str(failure.dagster_event.event_specific_data.error)


@pytest.mark.long("only Spark has work to stop")
def test_a_job_run_canceled_from_outside_stops_its_spark_work(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 0.2)

    @databuild_asset
    def endless(spark: SparkSession) -> DataFrame:
        cancelers.append(elsewhere.submit(cancel, spark))
        spark.sql(ENDLESS).collect()
        raise AssertionError("it was to be interrupted")

    def cancel(spark: SparkSession) -> None:
        try:
            ui = spark_ui_url(spark)
            assert ui is not None
            (running,) = [run for run in site.engine.queries.job_runs.newest() if run.state is JobRunState.RUNNING]
            # Spark forgets to cancel what it has not begun to run yet.
            wait_until(lambda: spark_jobs(ui, running.id, running=True), "Spark works for the job run", 120)
            site.engine.handle(CancelJobRuns(job_run_ids=(running.id,), reason="enough"))
        except BaseException:
            spark.interruptAll()
            raise

    site = deploy(endless)
    cancelers: list[Future[None]] = []

    with ThreadPoolExecutor(1) as elsewhere:
        site.build("endless")
    (canceler,) = cancelers
    canceler.result(0)

    assert site.state("endless") is InstanceState.UP_FOR_RETRY
    assert site.runs[-1].tags[OUTCOME_TAG] == "stopped"
    assert site.runs[-1].status is dg.DagsterRunStatus.SUCCESS


def test_an_interrupted_launch_leaves_its_wants_to_the_next_one(deploy: Any, caplog: pytest.LogCaptureFixture) -> None:
    interrupted: list[str] = []

    @databuild_asset(partitions_def=daily)
    def steady(context: BuildContext) -> pd.DataFrame:
        if context.partition_key == NEXT and not interrupted:
            interrupted.append(NEXT)
            # To the process, as Ctrl-C is: a signal to this thread would not wake the main one.
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: "Stopping" in caplog.text, "the step logs the interrupt", 120)
        return pd.DataFrame({"n": [1]})

    site = deploy(steady, threads=1)
    site.want(f"steady@{DAY}", f"steady@{NEXT}")
    launcher = OrderCollector(site.instance)
    run_tick(site.instance, site.repository, site.deployment, launcher)
    (order,) = launcher.take_orders()

    with pytest.raises((KeyboardInterrupt, DagsterExecutionInterruptedError)):
        list(execute_order(site.instance, site.repository, order))
    states = [run.state for run in site.engine.queries.job_runs.of_launch(order.launch_id)]
    assert JobRunState.CANCELED in states
    assert not site.engine.queries.launches.open()

    site.build()
    assert [site.state(f"steady@{day}") for day in (DAY, NEXT)] == [LIVE, LIVE]
