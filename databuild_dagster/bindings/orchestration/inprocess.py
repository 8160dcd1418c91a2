"""Launches executed in this process, as ordinary Dagster runs that the UI shows meanwhile. For the command line.

The main thread executes one launch at a time: there Ctrl-C reaches the step. After `allow_runs_in_threads`, several other threads
execute launches at once. `tune_dagster_writes` makes Dagster's writes cheap.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial

from dagster import AssetKey, DagsterEventType, DagsterInstance, DagsterRun, JobDefinition, RepositoryDefinition

from databuild_dagster.bindings.adapter import dagster_private
from databuild_dagster.bindings.adapter.dagster_private import CapturedLogContext
from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG, PROCESS_TAG
from databuild_dagster.bindings.building.hosted_launch import end_open_launches
from databuild_dagster.bindings.claims.launcher import run_config, run_tags, selected_keys
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.launch_heartbeat import Beating
from databuild_dagster.engine.ports import LaunchOrder
from databuild_dagster.model.datasets import DatasetKind

#: Dagster's console lines would bury ours; its event log has all of them.
QUIET = "CRITICAL"


def create_run(
    instance: DagsterInstance, repository: RepositoryDefinition, order: LaunchOrder, *, log_level: str = QUIET
) -> DagsterRun:
    """The Dagster run of an order, not started; `log_level` is that of its console."""
    job = _job_of(repository, selected_keys(order))
    with _planned_in_one_event(order.kind is DatasetKind.OURS):
        return instance.create_run_for_job(
            job,
            run_config={**run_config(job), **_console(job, log_level)},
            tags={**run_tags(order), PROCESS_TAG: this_process()},
            asset_selection=selected_keys(order),
            repository_load_data=repository.repository_load_data,
        )


@lru_cache(maxsize=256)
def _job_of(repository: RepositoryDefinition, assets: frozenset[AssetKey]) -> JobDefinition:
    """The job of some assets. Dagster takes its subset of the same assets for each run, and a snapshot of each subset."""
    job = repository.get_job(dagster_private.IMPLICIT_ASSET_JOB_NAME).get_subset(asset_selection=assets)
    job.get_subset = lambda **_: job  # type: ignore[method-assign]
    return job


def execute(
    instance: DagsterInstance, repository: RepositoryDefinition, run: DagsterRun, assets: frozenset[AssetKey]
) -> Iterator[dagster_private.DagsterEvent]:
    """Execute a run here, event by event. A failing run ends; Ctrl-C ends it and raises.

    It beats from here to its end, also while it waits: no run launcher knows it, so Dagster's run monitoring may mark it as
    failed meanwhile. Its own last event then gives it its true status (rule 6.9).
    """
    job = _job_of(repository, assets)
    interrupted = False
    launch_id = run.tags.get(LAUNCH_TAG)
    names = [run.run_id] if launch_id is None else [run.run_id, launch_id]
    with Beating(f"Dagster run {run.run_id}", partial(engine_for(instance).beat, names), lambda: None):
        try:
            for event in dagster_private.execute_run_iterator(dagster_private.InMemoryJob(job), run, instance):
                interrupted = interrupted or _is_interrupt(event)
                yield event
        finally:
            end_open_launches(run.run_id)
    if interrupted:
        # For Dagster, Ctrl-C ends one run; here it ends the command.
        raise KeyboardInterrupt


def execute_order(
    instance: DagsterInstance, repository: RepositoryDefinition, order: LaunchOrder, *, log_level: str = QUIET
) -> Iterator[dagster_private.DagsterEvent]:
    """Create an order's run and execute it here."""
    run = create_run(instance, repository, order, log_level=log_level)
    yield from execute(instance, repository, run, selected_keys(order))


def _is_interrupt(event: dagster_private.DagsterEvent) -> bool:
    if event.event_type is DagsterEventType.PIPELINE_CANCELED:
        return True
    # Of a step, or of the whole run if it waited for a pool.
    error = getattr(event.event_specific_data, "error", None)
    return error is not None and error.cls_name == dagster_private.DagsterExecutionInterruptedError.__name__


def _console(job: JobDefinition, log_level: str) -> dict[str, object]:
    return {"loggers": {"console": {"config": {"log_level": log_level}}}} if "console" in job.loggers else {}


@contextmanager
def _planned_in_one_event(one: bool) -> Iterator[None]:
    """Dagster reads the variable when it creates a run. Our step plans its partitions itself; a plain asset cannot."""
    before: Mapping[str, str] = dict(os.environ)
    if one:
        os.environ[dagster_private.ONE_PLANNED_EVENT_PER_RUN] = "1"
    try:
        yield
    finally:
        if one and dagster_private.ONE_PLANNED_EVENT_PER_RUN not in before:
            del os.environ[dagster_private.ONE_PLANNED_EVENT_PER_RUN]


def allow_runs_in_threads(instance: DagsterInstance) -> None:
    """Let several Dagster runs of the instance execute at once, each in a thread of this process, which Dagster does not foresee.

    It changes two habits of Dagster. Call it before the first run; a second call changes nothing.

    - Dagster configures Python's logging for each run. That takes logging's lock and then the locks of all handlers. A handler
      that writes an event in a different thread takes them in the reverse order: a deadlock. So the handlers of dagster.yaml
      (`python_logs`) are made once.
    - Dagster sends stdout and stderr of the whole process to a file of the run. Runs that do not end in the order of their start
      would leave both in the file of an ended run. So what a step prints stays in the output of the process.
    """
    handlers = list(instance.get_yaml_python_handlers())
    instance.get_yaml_python_handlers = lambda: handlers  # type: ignore[method-assign]
    instance.compute_log_manager.capture_logs = _nothing_captured  # type: ignore[method-assign]


def forbid_runs_in_threads(instance: DagsterInstance) -> None:
    """Give Dagster its habits back, for later runs of this process on the same instance."""
    vars(instance).pop("get_yaml_python_handlers", None)
    vars(instance.compute_log_manager).pop("capture_logs", None)


@contextmanager
def _nothing_captured(log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
    yield CapturedLogContext(log_key)
