"""A launch whose Dagster run is terminated or interrupted (rules 6.9, 6.10)."""

import os
import signal
import threading
from contextlib import suppress
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import DagsterExecutionInterruptedError
from databuild_dagster.bindings.claims.launcher import OrderCollector, selected_keys
from databuild_dagster.bindings.orchestration.inprocess import create_run, execute
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.model.states import InstanceState, WantState
from tests.support.cluster import wait_until


def launched(site: Any, *refs: str) -> tuple[dg.DagsterRun, Any]:
    """The Dagster run that a tick has launched for refs, and its events once it is executed."""
    site.want(*refs)
    launcher = OrderCollector(site.instance)
    run_tick(site.instance, site.repository, site.deployment, launcher)
    (order,) = launcher.take_orders()
    run = create_run(site.instance, site.repository, order)
    return run, execute(site.instance, site.repository, run, selected_keys(order))


def test_the_log_of_a_terminated_run_names_what_is_built_again_and_what_prevents_it(
    deploy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[dg.DagsterRun] = []

    @databuild_asset
    def day() -> pd.DataFrame:
        site.instance.report_run_canceling(runs[0])
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: "Stopping" in caplog.text, "the step logs the interrupt", 120)
        return pd.DataFrame({"n": [1]})

    @databuild_asset
    def month(day: pd.DataFrame) -> pd.DataFrame:
        return day

    site = deploy(day, month)
    run, events = launched(site, "month")
    runs.append(run)

    with pytest.raises((KeyboardInterrupt, DagsterExecutionInterruptedError)):
        list(events)

    (want,) = site.engine.queries.wants.of_ref("month")
    log = [entry.user_message for entry in site.instance.all_logs(run.run_id)]
    assert [text for text in log if "month" in text and f"`databuild want cancel {want.id[-8:]}`" in text]
    assert (site.state("day"), want.state) == (InstanceState.UP_FOR_RETRY, WantState.UPSTREAM_BUILDING)


def test_an_interrupt_while_dagster_records_a_result_waits_for_the_other_calls(
    deploy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 6.9: Dagster drops the generator of the step without closing it."""
    slow_runs, was_waited_for = threading.Event(), threading.Event()

    @databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["fast", "slow"]))
    def day(context: BuildContext) -> pd.DataFrame:
        if context.partition_key == "fast":
            slow_runs.wait(120)
        else:
            slow_runs.set()
            wait_until(lambda: "Stopping day@slow" in caplog.text, "the step logs the interrupt", 120)
            was_waited_for.set()
        return pd.DataFrame({"n": [1]})

    site = deploy(day)
    _, events = launched(site, "day@fast", "day@slow")
    while next(events).event_type is not dg.DagsterEventType.ASSET_MATERIALIZATION:
        pass

    with pytest.raises(KeyboardInterrupt):
        events.throw(KeyboardInterrupt())

    assert was_waited_for.is_set()
    assert site.state("day@fast") is InstanceState.LIVE
    assert site.state("day@slow") is InstanceState.UP_FOR_RETRY


def test_a_traceback_that_all_partitions_have_is_in_the_log_once(deploy: Any) -> None:
    @databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b", "c"]))
    def day() -> pd.DataFrame:
        raise OSError("the shop is closed")

    site = deploy(day)
    run, events = launched(site, "day@a", "day@b", "day@c")
    with suppress(dg.Failure):
        list(events)

    log = [entry.user_message for entry in site.instance.all_logs(run.run_id)]
    failed = [text for text in log if "the shop is closed" in text and text.startswith("day@")]
    assert ["Traceback" in text for text in failed] == [True, False, False]
    assert [" did: " in text for text in failed] == [False, True, True]
