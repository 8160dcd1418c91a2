"""Launches that the command line executes in its own process."""

import logging
import os
import signal
import threading
from collections import Counter
from types import SimpleNamespace

import dagster as dg
import pandas as pd
import pytest
from dagster._core.launcher import WorkerStatus
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration

from databuild_dagster import databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import interrupt_waits_for_pools
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute_order
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.data.home import DB_URL_VARIABLE
from databuild_dagster.model.states import InstanceState
from tests.support.held import held
from tests.support.launchers import Unknowing
from tests.support.postgres import postgres_server

#: With DATABUILD_LONG=1 the figures of docs/reliability.md.
BUILDS = 1_000 if os.environ.get("DATABUILD_LONG") else 10
#: Sixteen files of Dagster runs stay open, and each of these builds has two runs.
WARM_UP = 8
#: Descriptors of one kind that threads have opened at the same moment; SQLite uses them again.
AT_ONCE = 5


@pytest.mark.long("many builds of one process, beside the server of a database")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_builds_of_one_process_leave_no_file_thread_or_session(deploy, monkeypatch, database):
    days = dg.DynamicPartitionsDefinition(name="days")

    @databuild_asset(partitions_def=days)
    def source() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    @databuild_asset(partitions_def=days)
    def copied(source: pd.DataFrame) -> pd.DataFrame:
        return source

    if database == "postgres":
        server = postgres_server()
        monkeypatch.setenv(DB_URL_VARIABLE, server.fresh_url())
    site = deploy(source, copied)
    site.instance.add_dynamic_partitions("days", [str(day) for day in range(WARM_UP + BUILDS)])

    def held_after(days):
        for day in days:
            site.build(f"copied@{day}")
        sessions = {"session": len(server.sessions())} if database == "postgres" else {}
        return held() + Counter(sessions)

    before = held_after(range(WARM_UP))
    more = held_after(range(WARM_UP, WARM_UP + BUILDS)) - before

    assert {kind: n for kind, n in more.items() if n > AT_ONCE} == {}


@pytest.mark.parametrize("answer", [WorkerStatus.NOT_FOUND, WorkerStatus.UNKNOWN], ids=["Docker", "Kubernetes"])
def test_a_build_whose_run_the_launcher_does_not_know_is_not_lost(deploy, answer):
    """Rule 6.9: Dagster's run monitoring marks it as failed; its heartbeat decides, and its own end gives it its status."""
    seen = {}

    @databuild_asset
    def slow() -> pd.DataFrame:
        monitored = SimpleNamespace(instance=site.instance, create_request_context=lambda: None)
        list(execute_run_monitoring_iteration(monitored, logging.getLogger("tests")))
        (run,) = site.instance.get_runs()
        seen["status"] = run.status
        beside = OrderCollector(site.instance)
        seen["report"] = run_tick(site.instance, site.repository, site.deployment, beside)
        return pd.DataFrame({"n": [1]})

    site = deploy(slow)
    site.instance._run_launcher = Unknowing(answer)

    site.build("slow")

    assert seen["status"] is dg.DagsterRunStatus.FAILURE
    assert (seen["report"].lost, seen["report"].launched) == ({}, [])
    assert site.state("slow") is InstanceState.LIVE
    assert [run.status for run in site.instance.get_runs()] == [dg.DagsterRunStatus.SUCCESS]


def test_ctrl_c_ends_the_wait_for_a_slot_of_a_pool(deploy):
    """Rule 6.10. Dagster keeps the interrupt until a step runs, and SIGTERM has the same handler."""
    events = []

    @databuild_asset(pool="licences")
    def numbers() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    interrupt_waits_for_pools()
    site = deploy(numbers)
    slots = site.instance.event_log_storage
    slots.set_concurrency_slots("licences", 1)
    slots.claim_concurrency_slot("licences", "another run", "its step")
    site.want("numbers")
    launcher = OrderCollector(site.instance)
    run_tick(site.instance, site.repository, site.deployment, launcher)
    (order,) = launcher.take_orders()

    # A test that waits nevertheless ends.
    freeing = threading.Timer(60, slots.set_concurrency_slots, ("licences", 2))
    freeing.start()
    with pytest.raises(KeyboardInterrupt):
        for event in execute_order(site.instance, site.repository, order):
            events.append(event.event_type)
            if "blocked by limit for pool" in (event.message or ""):
                os.kill(os.getpid(), signal.SIGINT)
    freeing.cancel()

    assert dg.DagsterEventType.STEP_START not in events
    assert slots.get_concurrency_info("licences").pending_step_count == 0
