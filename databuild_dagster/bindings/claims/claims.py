"""Which job runs a step hosts: those of its launch, or those that its Dagster run is given when it asks (SPEC
8.1).

This is where every build passes, whoever started it: the sensor's launches, the UI, a backfill, a schedule,
automation, `dagster asset materialize`, `materialize()`. Nothing of the user's has run yet.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from databuild_dagster.bindings.claims.run_request import Asking
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.commands import ClaimRefs, StartLaunch
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import AlreadyStarted, NotFound
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import asset_of, make_ref, partition_key_of
from databuild_dagster.model.states import JobRunState

#: Of some refs, those that are to have job runs of their own.
Apart = Callable[[Sequence[str]], set[str]]


@dataclass(frozen=True, slots=True)
class HostedRun:
    """One job run that this step executes: the outputs of one partition key that are to be built (SPEC 6.2)."""

    id: str
    refs: tuple[str, ...]

    @property
    def partition_key(self) -> str | None:
        return partition_key_of(self.refs[0])


@dataclass(frozen=True, slots=True)
class Hosting:
    """What a step was given."""

    #: None when there is nothing to build, so nothing to keep alive.
    launch_id: str | None
    job_runs: tuple[HostedRun, ...]
    #: Every ref that the Dagster run asked for.
    asked: tuple[str, ...]
    #: Ref to the job run elsewhere that is building it.
    join: Mapping[str, str] = field(default_factory=dict)
    #: Ref to the live instance that serves.
    reuse: Mapping[str, str] = field(default_factory=dict)
    #: Ref to why it was not given.
    refused: Mapping[str, str] = field(default_factory=dict)


def begin(
    engine: Engine,
    datasets: Mapping[str, DatasetSpec],
    partition_keys: Iterable[str | None],
    *,
    asking: Asking,
    launch_id: str | None,
    apart: Apart,
) -> Hosting:
    """Start the launch that the Dagster run was made for, if it was, or claim the refs it is about.

    `datasets` are the outputs that were selected, by asset; `apart` is as for `claim`.
    """
    if launch_id is not None and (hosting := _start(engine, datasets, launch_id, asking)) is not None:
        return hosting
    refs = [make_ref(asset, key) for key in partition_keys for asset in datasets]
    return claim(engine, datasets, refs, asking=asking, apart=apart)


def claim(
    engine: Engine,
    datasets: Mapping[str, DatasetSpec],
    refs: Iterable[str],
    *,
    asking: Asking,
    apart: Apart = lambda refs: set(),
) -> Hosting:
    """Ask for refs: decision and lease are one transaction, so of any number of askers one builds.

    What `apart` says of the refs gets a job run of its own.
    """
    asked = tuple(refs)
    if not asked:
        return Hosting(None, (), ())
    dataset = next(iter(datasets.values()))
    launch_id = engine.new_id()
    set_apart = apart(asked)
    together: dict[tuple[str | None, bool], list[str]] = {}
    for ref in asked:
        together.setdefault((partition_key_of(ref), ref in set_apart), []).append(ref)
    outcome = engine.handle(
        ClaimRefs(
            launch_id=launch_id,
            job=dataset.job,
            location=dataset.location,
            dagster_run_id=asking.dagster_run_id,
            holder=this_process(),
            runs=tuple(BufferedRun(engine.new_id(), tuple(refs), key) for (key, _), refs in together.items()),
            by_person=asking.by_person,
            rebuild_before=asking.rebuild_before,
            code_version=dataset.code_version,
            made_with=asking.made_with,
        ),
        actor=f"dagster run {asking.dagster_run_id}",
    )
    given = outcome.claim
    assert given is not None, "a claim that was not repeated is answered"
    refs_of_run: dict[str, list[str]] = {}
    for ref, job_run_id in given.build.items():
        refs_of_run.setdefault(job_run_id, []).append(ref)
    job_runs = tuple(HostedRun(job_run_id, tuple(refs)) for job_run_id, refs in refs_of_run.items())
    return Hosting(launch_id if job_runs else None, job_runs, asked, given.join, given.reuse, given.refused)


def take_over(engine: Engine, datasets: Mapping[str, DatasetSpec], job_run_id: str, asking: Asking) -> Hosting | None:
    """Start the launch of a job run that is still queued, in place of the Dagster run that was to do it (SPEC 8.2).

    None when it has begun, or makes more than this step can.
    """
    job_run = engine.queries.job_run(job_run_id)
    if job_run is None or job_run.state is not JobRunState.QUEUED:
        return None
    runs = engine.queries.job_runs_of_launch(job_run.launch_id)
    if not all(asset_of(ref) in datasets for run in runs for ref in run.refs):
        return None
    return _start(engine, datasets, job_run.launch_id, asking)


def _start(engine: Engine, datasets: Mapping[str, DatasetSpec], launch_id: str, asking: Asking) -> Hosting | None:
    """None when the launch is not ours to start: another asset's, or started already (a re-execution)."""
    job_runs = engine.queries.job_runs_of_launch(launch_id)
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
    hosted = tuple(HostedRun(run.id, run.refs) for run in job_runs if run.id in started)
    return Hosting(launch_id if hosted else None, hosted, tuple(ref for run in job_runs for ref in run.refs))
