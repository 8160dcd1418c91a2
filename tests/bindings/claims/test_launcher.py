"""The orchestrator's view of a launch that Dagster has to start (rule 6.9)."""

import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._core.events import RunFailureReason
from dagster._core.storage.tags import TagType, get_tag_type
from dagster._utils import get_run_crash_explanation
from dagster._utils.error import SerializableErrorInfo, serializable_error_info_from_exc_info

from databuild_dagster import databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME, DagsterEvent
from databuild_dagster.bindings.adapter.run_tags import (
    PARTITIONS_TAG,
    WORKER_TAG,
    partition_tags,
)
from databuild_dagster.bindings.claims.launcher import (
    OrderCollector,
    run_config,
    run_request,
    run_tags,
    selected_keys,
)
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.surroundings import Fate


@databuild_asset
def alone() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@pytest.fixture
def site(deploy: Any) -> Any:
    return deploy(alone)


def requested(site: Any) -> tuple[str, dg.DagsterRun]:
    """A launch, and the Dagster run that the daemon has made for it."""
    launcher = OrderCollector(site.instance)
    site.want("alone")
    run_tick(site.instance, site.repository, site.deployment, launcher)
    (order,) = launcher.take_orders()
    job = site.repository.get_job(IMPLICIT_ASSET_JOB_NAME).get_subset(asset_selection=selected_keys(order))
    run = site.instance.create_run_for_job(
        job, run_config=run_config(job), tags=run_tags(order), asset_selection=selected_keys(order)
    )
    return order.launch_id, run


def report(site: Any, run: dg.DagsterRun, event_type: dg.DagsterEventType) -> None:
    event = DagsterEvent(event_type_value=event_type.value, job_name=run.job_name)
    site.instance.report_dagster_event(event, run_id=run.run_id)


def reports_after(
    seconds: Iterable[int], site: Any, launcher: OrderCollector, monkeypatch: pytest.MonkeyPatch
) -> dict[int, TickReport]:
    """The report of a tick at each of these times."""
    began, reports = time.time() + 1, {}
    for passed in seconds:
        monkeypatch.setattr(site.engine, "clock", lambda now=began + passed: now)
        monkeypatch.setattr(site.engine, "steady", lambda now=float(passed): now)
        reports[passed] = run_tick(site.instance, site.repository, site.deployment, launcher)
    return reports


def test_a_started_run_has_a_deadline_to_report_its_process(site: Any) -> None:
    launch_id, run = requested(site)
    launcher = OrderCollector(site.instance)

    def begin_within() -> float | None:
        return launcher.dagster_runs({launch_id: None})[launch_id].begin_within

    assert begin_within() is None
    report(site, run, dg.DagsterEventType.PIPELINE_STARTING)
    assert begin_within() == 180.0
    report(site, run, dg.DagsterEventType.PIPELINE_START)
    assert begin_within() is not None, "its process may die before it has said which one it is"


def test_a_run_over_several_partitions_shows_them_and_hides_the_tags_of_machines(site: Any) -> None:
    _, run = requested(site)

    assert [tag for tag in run.tags if get_tag_type(tag) is not TagType.HIDDEN] == []
    assert partition_tags(["a", "b", "d"])[PARTITIONS_TAG] == "a..d (3)"


def test_a_worker_says_which_process_it_is_before_its_step_begins(site: Any) -> None:
    _, run = requested(site)
    site.launch(["alone"], tags=run.tags)

    (_, executed) = site.instance.get_runs(filters=dg.RunsFilter(tags=dict(run.tags)))[::-1]

    assert executed.tags[WORKER_TAG] == this_process()
    assert site.state("alone") is InstanceState.LIVE


def test_a_launch_whose_worker_died_before_its_first_report_is_launched_again(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut: Dagster shows the run as starting without end."""
    launch_id, run = requested(site)
    report(site, run, dg.DagsterEventType.PIPELINE_STARTING)
    launcher = OrderCollector(site.instance)

    reports = reports_after(range(0, 200, 10), site, launcher, monkeypatch)

    assert [seconds for seconds, report in reports.items() if report.lost] == [190]
    assert list(reports[190].lost) == [launch_id]
    assert site.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    (order,) = launcher.take_orders()
    assert order.launch_id != launch_id


def test_a_run_that_failed_outside_of_its_steps_gives_its_error_as_the_reason(site: Any) -> None:
    """Rule 6.9: nothing of databuild ran, so Dagster's record is all there is."""
    launch_id, run = requested(site)
    try:
        try:
            raise FileNotFoundError(2, "No such file or directory", "/nowhere/.dagster")
        except OSError as error:
            raise RuntimeError("the run could not begin") from error
    except RuntimeError:
        error = serializable_error_info_from_exc_info(sys.exc_info())
    failure = DagsterEvent.job_failure(run.job_name, "", RunFailureReason.RUN_EXCEPTION, error)
    site.instance.report_dagster_event(failure, run_id=run.run_id)

    report = run_tick(site.instance, site.repository, site.deployment, OrderCollector(site.instance))

    assert report.lost[launch_id] == (
        f"its Dagster run {run.run_id} ended (failed) without reporting: FileNotFoundError: [Errno 2] No such file or directory: "
        "'/nowhere/.dagster'"
    )


def test_a_run_that_another_process_marked_as_failed_gives_its_message_as_the_reason(site: Any) -> None:
    """Rule 6.9: run monitoring writes a message, and no error."""
    launch_id, run = requested(site)
    site.instance.report_run_failed(run, "Run timed out due to taking longer than 60 seconds to start.")

    report = run_tick(site.instance, site.repository, site.deployment, OrderCollector(site.instance))

    assert report.lost[launch_id].endswith(
        "(failed) without reporting: Run timed out due to taking longer than 60 seconds to start."
    )


@pytest.mark.parametrize(
    ("exit_code", "fate"),
    [(-signal.SIGSEGV, Fate.CRASHED), (-signal.SIGKILL, Fate.KILLED), (1, Fate.CRASHED), (None, Fate.KILLED)],
)
def test_the_exit_of_a_process_that_dagster_has_seen_is_the_fate_of_its_launch(site: Any, exit_code, fate) -> None:
    """Rule 6.18: as Dagster's code server marks a run whose process is gone."""
    launch_id, run = requested(site)
    if exit_code is not None:
        message = get_run_crash_explanation(f"Run execution process for {run.run_id}", exit_code)
        site.instance.report_engine_event(message, run)
    site.instance.report_run_failed(run)

    state = OrderCollector(site.instance).dagster_runs({launch_id: None})[launch_id]

    assert state.fate is fate


def test_the_exit_of_a_step_whose_executor_saw_it_is_the_fate_of_its_launch(site: Any) -> None:
    """Rule 6.18: the run itself ended in order, and recorded no error of its own."""
    launch_id, run = requested(site)
    message = get_run_crash_explanation("Multiprocess executor: child process for step alone", -signal.SIGKILL)
    site.instance.report_engine_event(message, run)
    failure = DagsterEvent.job_failure(run.job_name, "", RunFailureReason.STEP_FAILURE)
    site.instance.report_dagster_event(failure, run_id=run.run_id)

    state = OrderCollector(site.instance).dagster_runs({launch_id: None})[launch_id]

    assert (state.fate, state.is_disowned) == (Fate.KILLED, False)
    assert state.error is not None
    assert "SIGKILL" in state.error


@pytest.mark.parametrize(
    ("error", "n_losses"), [("KeyError: 'token'", 3), ("OperationalError: the server is gone", 20)]
)
def test_an_error_of_a_run_fails_its_refs_soon_and_one_of_a_database_late(site: Any, error, n_losses) -> None:
    """Rule 6.18: a resource that raises is a fault of the code; a database that is away is none."""
    for n in range(1, 30):
        _, run = requested(site)
        info = SerializableErrorInfo(error, [], None)
        failure = DagsterEvent.job_failure(run.job_name, "", RunFailureReason.RUN_EXCEPTION, info)
        site.instance.report_dagster_event(failure, run_id=run.run_id)
        run_tick(site.instance, site.repository, site.deployment, OrderCollector(site.instance))
        if site.state("alone") is InstanceState.FAILED:
            break
        site.engine.clock = lambda n=n: time.time() + 700.0 * n

    assert n == n_losses


def test_a_run_that_a_dead_daemon_did_not_submit_is_requested_again_by_the_same_key(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's sensor daemon resumes an interrupted tick once, and then never starts the run."""
    launch_id, run = requested(site)
    launcher = OrderCollector(site.instance)

    reports = reports_after((0, 60, 120, 170, 180), site, launcher, monkeypatch)

    assert [seconds for seconds, report in reports.items() if report.launched] == [180]
    (order,) = launcher.take_orders()
    assert run_request(order, site.repository).run_key == launch_id
    assert len(site.engine.queries.job_runs.of_launch(launch_id)) == 1
    assert site.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.NOT_STARTED, "Dagster submits it"
