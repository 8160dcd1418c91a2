"""The engine's `Launcher`: launch orders become Dagster runs of the implicit asset job.

The sensor returns run requests, which Dagster's daemon starts; the command line executes the runs itself (`inprocess`).
Both find runs by their tag, so that each sees the runs of the other.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME, PRIORITY_TAG
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.adapter.run_tags import (
    LAUNCH_TAG,
    OPERATION_TAG,
    PLAIN_TAG,
    PROCESS_TAG,
    WORKER_TAG,
    partition_tags,
)
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus, LaunchOrder
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.surroundings import Fate
from databuild_dagster.model.wording import one_line

#: Launches per query.
LAUNCHES_PER_QUERY = 200
#: How long a run may exist without being submitted, if Dagster's own start timeout is switched off.
FORGOTTEN_SECONDS = 180

_STATUS = {
    dg.DagsterRunStatus.NOT_STARTED: DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.QUEUED: DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING: DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.MANAGED: DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTED: DagsterRunStatus.RUNNING,
    dg.DagsterRunStatus.CANCELING: DagsterRunStatus.RUNNING,
    dg.DagsterRunStatus.SUCCESS: DagsterRunStatus.SUCCEEDED,
    dg.DagsterRunStatus.FAILURE: DagsterRunStatus.FAILED,
    dg.DagsterRunStatus.CANCELED: DagsterRunStatus.CANCELED,
}


#: How Dagster's code server, or an executor whose steps are processes, reports a process that ended without reporting its end.
_CRASH = re.compile(r"was terminated by signal \d+ \((\w+)\)|unexpectedly exited with code -?\d+")
#: Signals from outside: of a person, a container's end, or the kernel for want of memory, which cannot be told apart.
_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"})
#: In the names of errors of a database driver.
_OF_DATABASES = ("OperationalError", "InterfaceError")


class _End(NamedTuple):
    """How the process of a run ended."""

    #: What stopped a run outside of its steps, such as a folder that Dagster cannot write, or a library it lacks.
    error: str | None = None
    fate: Fate = Fate.KILLED
    #: Whether a different process marked the run as failed.
    is_marked: bool = False


class OrderCollector:
    """A `Launcher` that collects the orders of a tick; its owner starts them."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._orders: dict[str, LaunchOrder] = {}

    def launch(self, order: LaunchOrder) -> None:
        self._orders[order.launch_id] = order

    def take_orders(self) -> list[LaunchOrder]:
        """The orders since the last call, oldest first."""
        orders, self._orders = list(self._orders.values()), {}
        return orders

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        """The Dagster runs of launches. If re-executions have a launch's tag too, its first run counts."""
        found: dict[str, DagsterRunState] = {}
        by_run = {run_id: launch_id for launch_id, run_id in launches.items() if run_id is not None}
        for run_ids in _chunks(list(by_run)):
            for record in self._instance.get_run_records(filters=dg.RunsFilter(run_ids=run_ids)):
                found[by_run[record.dagster_run.run_id]] = self.state_of(record)
        for tags in _chunks([launch_id for launch_id, run_id in launches.items() if run_id is None]):
            for launch_id, record in runs_of_launches(self._instance, tags):
                if not self.was_forgotten(record):
                    found.setdefault(launch_id, self.state_of(record))
        return found

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        """Fail the Dagster run of a lost launch, because nothing else would end it. A canceled run gets the message in its log."""
        run = self._instance.get_run_by_id(dagster_run_id)
        if run is not None and not run.is_finished:
            self._instance.report_run_failed(run, message)
        elif run is not None and run.status is dg.DagsterRunStatus.CANCELED:
            self._instance.report_engine_event(message, run)

    def was_forgotten(self, record: dg.RunRecord) -> bool:
        """Whether a daemon created the run and was killed, or found no code server, before it submitted the run.

        Such a run counts as absent: at the next request with the same run key, Dagster submits it.
        """
        run = record.dagster_run
        if run.status is not dg.DagsterRunStatus.NOT_STARTED or run.tags.get(PROCESS_TAG) is not None:
            return False
        patience = self._instance.run_monitoring_start_timeout_seconds or FORGOTTEN_SECONDS
        return engine_for(self._instance).clock() - record.update_timestamp.timestamp() > patience

    def state_of(self, record: dg.RunRecord) -> DagsterRunState:
        """The state of a run and its process."""
        run = record.dagster_run
        end = self._end_of(run)
        return DagsterRunState(
            run.run_id,
            _STATUS[run.status],
            holder=run.tags.get(PROCESS_TAG),
            worker=run.tags.get(WORKER_TAG),
            begin_within=self._begin_within(record),
            error=end.error,
            fate=end.fate,
            is_disowned=end.is_marked and PROCESS_TAG in run.tags,
        )

    def _end_of(self, run: dg.DagsterRun) -> _End:
        if run.status is not dg.DagsterRunStatus.FAILURE:
            return _End()
        for event in self._last_events(run, dg.DagsterEventType.RUN_FAILURE):
            if event.event_specific_data is None:
                # Another process marked the run as failed: Dagster's code server or run monitoring, or a person.
                fate, sentence = self._crash_of(run) or (Fate.KILLED, "")
                return _End(one_line(f"{event.message or ''} {sentence}".strip()) or None, fate, is_marked=True)
            found = event.job_failure_data.error
            if found is None and (crash := self._crash_of(run)) is not None:
                # With an executor whose steps are processes, that of the step ended, and the run said so.
                return _End(crash[1], crash[0])
            while found is not None and found.cause is not None:
                found = found.cause
            error = None if found is None else one_line(found.message)
            is_of_database = any(name in (error or "") for name in _OF_DATABASES)
            return _End(error, Fate.KILLED if is_of_database else Fate.RAISED)
        return _End()

    def _crash_of(self, run: dg.DagsterRun) -> tuple[Fate, str] | None:
        """How the process of a run or a step ended, as its parent saw it, with a sentence about it."""
        for event in self._last_events(run, dg.DagsterEventType.ENGINE_EVENT):
            if found := _CRASH.search(event.message or ""):
                return Fate.KILLED if found[1] in _FROM_OUTSIDE else Fate.CRASHED, f"Its process {found[0]}."
        return None

    def _last_events(self, run: dg.DagsterRun, kind: dg.DagsterEventType) -> Iterator[dg.DagsterEvent]:
        page = self._instance.get_records_for_run(run.run_id, of_type=kind, ascending=False)
        return (event for record in page.records if (event := record.event_log_entry.dagster_event) is not None)

    def _begin_within(self, record: dg.RunRecord) -> float | None:
        """The seconds after which Dagster's run monitoring would give the run up; None if it is off, as by default."""
        patience = self._instance.run_monitoring_start_timeout_seconds
        run = record.dagster_run
        # With another executor the step may wait for its turn before it has a process that reports.
        is_in_process = run.run_config == IN_PROCESS or OPERATION_TAG in run.tags
        is_begun_at_once = run.status is dg.DagsterRunStatus.STARTED and is_in_process
        if patience <= 0 or not (run.status is dg.DagsterRunStatus.STARTING or is_begun_at_once):
            return None
        return float(patience)


def runs_of_launches(instance: dg.DagsterInstance, launch_ids: Sequence[str]) -> list[tuple[str, dg.RunRecord]]:
    """Each Dagster run with the tag of any of the launches, the oldest first, with its launch."""
    found = instance.get_run_records(filters=dg.RunsFilter(tags={LAUNCH_TAG: list(launch_ids)}))
    # Dagster lists the newest first.
    return [(record.dagster_run.tags[LAUNCH_TAG], record) for record in reversed(found)]


def run_request(order: LaunchOrder, repository: dg.RepositoryDefinition) -> dg.RunRequest:
    """The run request of an order. Dagster starts a single run per run key, however often it is requested.

    A plain asset's run has its author's configuration.
    """
    job = repository.get_job(IMPLICIT_ASSET_JOB_NAME)
    return dg.RunRequest(
        run_key=order.launch_id,
        asset_selection=[asset_key(asset) for asset in order.assets],
        run_config=run_config(job) if order.kind is DatasetKind.OURS else {},
        tags=run_tags(order),
    )


def run_tags(order: LaunchOrder) -> dict[str, str]:
    """The tags of an order's run; everything else about the launch is in the store."""
    tags = {**order.tags, LAUNCH_TAG: order.launch_id, **partition_tags(order.partition_keys)}
    if order.kind is DatasetKind.PLAIN:
        tags[PLAIN_TAG] = "true"
    if order.priority:
        tags[PRIORITY_TAG] = str(order.priority)
    return tags


#: Executes all steps in the process of the run.
IN_PROCESS: Final[dict[str, object]] = {"execution": {"config": {"in_process": {}}}}


def run_config(job: dg.JobDefinition) -> dict[str, object]:
    """Execute all steps in a single process, because a process per step costs 4.5 s. A job with a different executor keeps it."""
    return IN_PROCESS if job.executor_def.name == "multi_or_in_process_executor" else {}


def selected_keys(order: LaunchOrder) -> frozenset[dg.AssetKey]:
    return frozenset(asset_key(asset) for asset in order.assets)


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), LAUNCHES_PER_QUERY):
        yield list(ids[start : start + LAUNCHES_PER_QUERY])
