"""Dagster runs that a command executes itself, such as `databuild build`, in the eyes of Dagster's daemon.

Dagster knows no run without a launcher. Its queue counts every started run for `max_concurrent_runs`, and its run monitoring
asks the run launcher, which started no pod or container for such runs, and marks them as failed. The daemon of a deployment with
`DatabuildRunCoordinator` does neither; without it the heartbeat decides (rule 6.9). Only names of Dagster are imported here at
once, because the daemon imports this module.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from databuild_dagster.bindings.adapter.dagster_storage import CheckRunHealthResult, WorkerStatus
from databuild_dagster.bindings.adapter.run_tags import PROCESS_TAG
from databuild_dagster.model.logs import log_failure, logger

#: A run whose process has not beaten for so long is left to the launcher's answer. Far above a lease, because the clocks of hosts
#: differ; the tick loses a launch long before.
SILENT_SECONDS: Final = 900.0
#: The statuses that Dagster's queue counts.
_COUNTED: Final = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]

_log = logger(__name__)


def n_beside_the_queue(instance: DagsterInstance) -> int:
    """The number of runs that Dagster's queue counts although it did not start them."""
    return sum(PROCESS_TAG in run.tags for run in instance.get_runs(RunsFilter(statuses=_COUNTED)))


def with_more_runs(limit: int, n_more: int) -> int:
    """A limit of Dagster's queue that does not count `n_more` runs; the limit -1 is no limit, and the limit 0 stops the queue."""
    return limit + n_more if limit > 0 else limit


def vouch_for_runs(instance: DagsterInstance) -> None:
    """Let run monitoring of this process find the runs healthy whose processes beat. A second call changes nothing."""
    if not instance.run_monitoring_enabled:
        return
    try:
        launcher: Any = instance.run_launcher
    except Exception:
        # The daemon says so itself when it launches the first run.
        return
    if not isinstance(launcher.check_run_worker_health, partial):
        launcher.check_run_worker_health = partial(_health, instance, launcher.check_run_worker_health)


def _health(
    instance: DagsterInstance, of_launcher: Callable[[DagsterRun], CheckRunHealthResult], run: DagsterRun
) -> CheckRunHealthResult:
    process = run.tags.get(PROCESS_TAG)
    if process is None or not _beats(instance, run, process):
        return of_launcher(run)
    return CheckRunHealthResult(WorkerStatus.RUNNING, f"databuild: process {process} executes it.")


def _beats(instance: DagsterInstance, run: DagsterRun, process: str) -> bool:
    try:
        from databuild_dagster.bindings.registry.instance import engine_for
        from databuild_dagster.engine.holders import surely_gone

        engine = engine_for(instance)
        beat_at = engine.heartbeats.last([run.run_id]).get(run.run_id, 0.0)
        return not surely_gone(process) and abs(engine.clock() - beat_at) <= SILENT_SECONDS
    except Exception as error:
        # Monitoring asks again, and what it marks as failed stays so.
        log_failure(_log, f"nothing is known of the process of run {run.run_id}", error)
        return True
