"""Orders for which Dagster would make no run, or a run that never executes: their refs fail with a sentence (rule 6.8).

Dagster checks a run's configuration, resources and tags when it makes the run, which is after the lease. Its error would end the
tick, and the lease would stay.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME, create_execution_plan
from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG, PROCESS_TAG, partition_tags
from databuild_dagster.bindings.claims.launcher import OrderCollector, run_request, selected_keys
from databuild_dagster.bindings.display.partition_status import plan_runs
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.ports import LaunchOrder
from databuild_dagster.model.commands import FailJobRuns, RunFailure, StartLaunch
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.wording import few_of, one_line, typed

_CONFIG = "a launch has no run configuration. Give each field of its Config and of its resources a default, or a value in the code."


def fail_refused(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, launcher: OrderCollector
) -> list[str]:
    """Fail the refs of each order that Dagster refuses, and take the order back; returns a sentence for each."""
    sentences = []
    for order in launcher.take_orders():
        if why := _why_refused(instance, repository, order):
            sentences.append(f"Dagster starts no run of {few_of(order.assets)}: {why}")
            _fail(instance, order, sentences[-1])
        else:
            launcher.launch(order)
    return sentences


@dataclass
class _Accepted:
    """Selections of a repository that Dagster accepts, remembered because a check takes as long as to plan the run."""

    repository: dg.RepositoryDefinition
    selections: set[frozenset[dg.AssetKey]] = field(default_factory=set)


def _why_refused(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, order: LaunchOrder) -> str | None:
    keys, memory = selected_keys(order), engine_for(instance).memory
    accepted = memory.of(_Accepted, lambda: _Accepted(repository))
    if accepted.repository is not repository:
        memory.put(_Accepted, accepted := _Accepted(repository))
    try:
        request = run_request(order, repository)
        if keys not in accepted.selections:
            job = repository.get_job(IMPLICIT_ASSET_JOB_NAME).get_subset(asset_selection=keys)
            create_execution_plan(job, run_config=request.run_config)
            accepted.selections.add(keys)
    except dg.DagsterInvalidConfigError as error:
        return _of_config(error)
    except Exception as error:  # Dagster raises many kinds, and the user's resources and hooks any.
        return f"{type(error).__name__}: {one_line(error)}"
    for pool in _closed_pools(instance, repository, keys):
        return f"its pool {pool!r} has the limit 0. `dagster instance concurrency set {typed(pool)} 1` raises it."
    return None


def _of_config(error: dg.DagsterInvalidConfigError) -> str:
    """The values that are set and cannot be read, such as variables of the environment; if there are none, the missing values."""
    unread = [found.error_data.message for found in error.errors if hasattr(found.error_data, "message")]
    if unread:
        return one_line(" ".join(message.partition(": ")[2] for message in unread))
    return f"{_CONFIG} {one_line(' '.join(found.message for found in error.errors))}"


def _closed_pools(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, keys: frozenset[dg.AssetKey]
) -> Iterator[str]:
    """Pools whose limit lets no step begin: a step in this process would wait without end."""
    definitions = {id(found := repository.asset_graph.get(key).assets_def): found for key in keys}.values()
    for pool in sorted({pool for definition in definitions for pool in definition.node_def.pools}):
        if instance.event_log_storage.get_concurrency_info(pool).limit == 0:
            yield pool


def _fail(instance: dg.DagsterInstance, order: LaunchOrder, why: str) -> None:
    """Record a Dagster run of the launch and fail it at once, so that Dagster shows the run and its partitions."""
    engine, actor = engine_for(instance), "orchestrator"
    tags = {LAUNCH_TAG: order.launch_id, PROCESS_TAG: this_process(), **partition_tags(order.partition_keys)}
    run = instance.add_run(dg.DagsterRun(IMPLICIT_ASSET_JOB_NAME, tags=tags, asset_selection=selected_keys(order)))
    try:
        engine.handle(
            StartLaunch(launch_id=order.launch_id, dagster_run_id=run.run_id, holder=this_process()), actor=actor
        )
        job_runs = engine.queries.job_runs.of_launch(order.launch_id)
        running = [job_run for job_run in job_runs if job_run.state is JobRunState.RUNNING]
        if running:
            engine.handle(FailJobRuns(failures=tuple(RunFailure(found.id, why) for found in running)), actor=actor)
        plan_runs(instance, {ref: run.run_id for found in running for ref in found.refs})
    except Refused:  # Another process was faster.
        why = "Another process has started or ended this launch."
    instance.report_run_failed(run, why)
