"""The job runs that a step hosts: the job runs of its launch, or job runs that its Dagster run is granted on request (rule 8.1).

Every build passes here before user code runs: launches of the sensor, the UI, backfills, schedules, automation,
`dagster asset materialize`, `materialize()`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dagster import DagsterInstance, DagsterRun

from databuild_dagster.bindings.adapter.dagster_private import BACKFILL_ID_TAG, RESUME_RETRY_TAG, RETRY_NUMBER_TAG
from databuild_dagster.bindings.adapter.run_tags import REBUILD_TAG, is_by_person
from databuild_dagster.bindings.claims import run_messages
from databuild_dagster.bindings.declare.build_context import HostedRun
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.feature import rows
from databuild_dagster.model.commands import ClaimRefs, StartLaunch
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import AlreadyStarted, NotFound
from databuild_dagster.model.events import BufferedRun, MadeWith
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.states import JobRunState

#: Selects the refs that get separate job runs.
Apart = Callable[[Sequence[Ref]], set[Ref]]


@dataclass(frozen=True, slots=True)
class Asking:
    """A Dagster run as a requester of refs."""

    dagster_run_id: str
    #: A person's request builds failed refs again; other requests are refused.
    by_person: bool
    #: Instances from before this time are rebuilt; None if live instances are enough.
    rebuild_before: float | None = None
    #: The versions that it builds with; None for a run that does not build.
    made_with: MadeWith | None = None


@dataclass(frozen=True, slots=True)
class Hosting:
    """The answer to a step's request."""

    #: None when there is nothing to build, so no launch to keep alive.
    launch_id: str | None
    job_runs: tuple[HostedRun, ...]
    #: Every ref that the Dagster run asked for.
    asked: tuple[Ref, ...]
    #: Ref to the job run of a different launch that builds it.
    join: Mapping[Ref, str] = field(default_factory=dict)
    #: Ref to the live instance.
    reuse: Mapping[Ref, str] = field(default_factory=dict)
    #: Ref to the sentence about its refusal.
    refused: Mapping[Ref, str] = field(default_factory=dict)
    #: Whether the Dagster run hosts the launch that it was created for; any other run is a request (rule 8.1).
    is_launch: bool = False


def asking(
    instance: DagsterInstance, run: DagsterRun, *, rebuild: bool = False, ahead_seconds: Callable[[], float] = float
) -> Asking:
    """The requester by the run's tags; `rebuild` is the value of its Launchpad config.

    Dagster records the request by the clock, and the event log may be ahead of the clock. `ahead_seconds` returns by how
    much; it is called for a rebuild only.
    """
    rebuilds = rebuild or run.tags.get(REBUILD_TAG) == "true"
    return Asking(
        dagster_run_id=run.run_id,
        by_person=is_by_person(run.tags) or _is_re_executed(run),
        rebuild_before=_asked_at(instance, run) + ahead_seconds() if rebuilds else None,
    )


def _is_re_executed(run: DagsterRun) -> bool:
    """Whether a person re-executed the run in the UI. The run copies all tags of its parent, also of a sensor or schedule."""
    automatic = RETRY_NUMBER_TAG in run.tags or BACKFILL_ID_TAG in run.tags
    return run.parent_run_id is not None and not automatic


def _asked_at(instance: DagsterInstance, run: DagsterRun) -> float:
    """When the run, or the first run of its retries, was created. A retry keeps what the run before it has rebuilt."""
    is_retry = RETRY_NUMBER_TAG in run.tags or RESUME_RETRY_TAG in run.tags
    first = run.root_run_id if is_retry and run.root_run_id is not None else run.run_id
    record = instance.get_run_record_by_id(first) or instance.get_run_record_by_id(run.run_id)
    assert record is not None, "Dagster records every run that it executes"
    return record.create_timestamp.timestamp()


def begin(
    engine: Engine,
    datasets: Mapping[str, DatasetSpec],
    partition_keys: Iterable[str | None],
    *,
    asking: Asking,
    launch_id: str | None,
    apart: Apart,
    check: Callable[[Sequence[Ref]], None] = lambda refs: None,
) -> Hosting:
    """Start the launch that the Dagster run was created for, or else claim the refs of its selection.

    `datasets` are the selected outputs, by asset; `apart` is as for `claim`. `check` raises if the refs cannot be built
    here, and then nothing is recorded.
    """
    if launch_id is not None and (hosting := _start(engine, datasets, launch_id, asking)) is not None:
        return hosting
    refs = [make_ref(asset, key) for key in partition_keys for asset in datasets]
    check(refs)
    for provide in rows(lambda feature: feature.provides):
        provide(engine, refs, specs=datasets.values())
    return claim(engine, datasets, refs, asking=asking, apart=apart)


def claim(
    engine: Engine,
    datasets: Mapping[str, DatasetSpec],
    refs: Iterable[Ref],
    *,
    asking: Asking,
    apart: Apart = lambda refs: set(),
) -> Hosting:
    """Claim refs. Decision and lease are one transaction, so only one of several concurrent requests builds.

    The refs that `apart` selects get separate job runs.
    """
    asked = tuple(refs)
    if not asked:
        return Hosting(None, (), ())
    command = claim_of(engine, next(iter(datasets.values())), asked, asking, apart=apart)
    given = engine.handle(command, actor=f"dagster run {asking.dagster_run_id}").claim
    assert given is not None, "a claim that was not repeated has an answer"
    refs_of_run: dict[str, list[Ref]] = {}
    for ref, job_run_id in given.build.items():
        refs_of_run.setdefault(job_run_id, []).append(ref)
    job_runs = _hosted(engine, refs_of_run)
    launch_id = command.launch_id if job_runs else None
    refused = {ref: run_messages.refused(ref, why) for ref, why in given.refused.items()}
    refused |= {ref: run_messages.paused(ref, pause) for ref, pause in given.paused.items()}
    return Hosting(launch_id, job_runs, asked, given.join, given.reuse, refused)


def claim_of(
    engine: Engine,
    dataset: DatasetSpec,
    refs: Sequence[Ref],
    asking: Asking,
    *,
    apart: Apart = lambda refs: set(),
    may_build: bool = True,
) -> ClaimRefs:
    """The command that claims refs of a job, with a job run per partition key and `apart`."""
    set_apart = apart(refs)
    together: dict[tuple[str | None, bool], list[Ref]] = {}
    for ref in refs:
        together.setdefault((partition_key_of(ref), ref in set_apart), []).append(ref)
    return ClaimRefs(
        launch_id=engine.new_id(),
        job=dataset.job,
        location=dataset.location,
        dagster_run_id=asking.dagster_run_id,
        holder=this_process(),
        runs=tuple(BufferedRun(engine.new_id(), tuple(refs), key) for (key, _), refs in together.items()),
        by_person=asking.by_person,
        may_build=may_build,
        rebuild_before=asking.rebuild_before,
        code_version=dataset.code_version,
        made_with=asking.made_with,
    )


def take_over(engine: Engine, datasets: Mapping[str, DatasetSpec], job_run_id: str, asking: Asking) -> Hosting | None:
    """Start the launch of a queued job run instead of its own Dagster run (rule 8.2).

    None when the launch has begun, or has outputs that this step cannot build.
    """
    job_run = engine.queries.job_runs.get(job_run_id)
    if job_run is None or job_run.state is not JobRunState.QUEUED:
        return None
    runs = engine.queries.job_runs.of_launch(job_run.launch_id)
    if not all(asset_of(ref) in datasets for run in runs for ref in run.refs):
        return None
    return _start(engine, datasets, job_run.launch_id, asking)


def _start(engine: Engine, datasets: Mapping[str, DatasetSpec], launch_id: str, asking: Asking) -> Hosting | None:
    """None when the launch is not of this asset, or has started already (a re-execution)."""
    job_runs = engine.queries.job_runs.of_launch(launch_id)
    if not any(asset_of(ref) in datasets for run in job_runs for ref in run.refs):
        return None
    try:
        outcome = engine.handle(
            StartLaunch(
                launch_id=launch_id,
                dagster_run_id=asking.dagster_run_id,
                holder=this_process(),
                made_with=asking.made_with,
            ),
            actor=f"dagster run {asking.dagster_run_id}",
        )
    except (AlreadyStarted, NotFound):
        return None
    started = set(outcome.job_run_ids)
    hosted = _hosted(engine, {run.id: run.refs for run in job_runs if run.id in started})
    asked = tuple(ref for run in job_runs for ref in run.refs)
    return Hosting(launch_id if hosted else None, hosted, asked, is_launch=True)


def _hosted(engine: Engine, refs_of_run: Mapping[str, Sequence[Ref]]) -> tuple[HostedRun, ...]:
    """Job runs with their refs and the number of their attempt (rule 10.2)."""
    before = engine.queries.instances.attempts_since_live([ref for refs in refs_of_run.values() for ref in refs])
    n_failed = {ref: sum(attempt.is_failed for attempt in attempts) for ref, attempts in before.items()}
    return tuple(
        HostedRun(id, tuple(refs), 1 + max(n_failed.get(ref, 0) for ref in refs)) for id, refs in refs_of_run.items()
    )
