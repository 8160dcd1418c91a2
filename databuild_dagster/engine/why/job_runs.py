"""Job runs as JSON has them: the matches of a filter, a job run with its outputs, canceled job runs (rules 15, 6.10)."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Annotated, Final, NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.built_again import wants_of
from databuild_dagster.engine.why.want_report import check_partition, who_asked
from databuild_dagster.model.commands import CancelJobRuns
from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.datasets import Catalog
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.records import Column, Time, extended, headline
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.ledger import Ledger
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.job_runs import JobRunFilter, JobRunView
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantView


class JobRun(msgspec.Struct, frozen=True):
    """A job run; `instances` are in the order of `refs`."""

    id: Annotated[str, Column("job run")]
    job: Annotated[str, Column(wide_only=True)]
    refs: Annotated[Sequence[Ref], Column()]
    state: Annotated[JobRunState, Column()]
    dagster_run_id: Annotated[str | None, Column("dagster run", wide_only=True)]
    started_at: Annotated[Time | None, Column("started", wide_only=True)]
    ended_at: Annotated[Time | None, Column("ended", wide_only=True)]
    error: Annotated[str | None, Column(narrow=headline)]
    instances: Annotated[Sequence[str], Column(wide_only=True)]


#: Requesters that are named.
MAX_ASKERS: Final = 3


class Build(msgspec.Struct, frozen=True):
    """A job run. The requesters are people, schedules and arcs, without the job runs in between."""

    job_run: JobRun
    asked_by: list[str]
    #: The median seconds of its past launches; null without past launches.
    usual_seconds: float | None
    #: From its start to its end; null if either is missing.
    seconds: float | None


def find_job_runs(
    queries: Queries, catalog: Catalog, which: JobRunFilter, *, open_only: bool, most: int
) -> list[JobRunView]:
    """The newest job runs of a filter, the newest first.

    Raises `UnknownAsset`, `UnknownPartition`, and `NotFound` for a job: a misspelled name has no job runs either.
    """
    found = queries.job_runs.newest(which, open_only=open_only, most=most)
    if not found and which.ref is not None:
        check_partition(queries, catalog, which.ref)
    if not found and which.job is not None:
        queries.job_runs.check_job(which.job)
    return found


class Output(msgspec.Struct, frozen=True):
    """An instance of a job run in its present state, with the inputs that it missed."""

    ref: Ref
    uuid: str
    state: InstanceState
    why: str | None
    missed: Sequence[Ref]


class JobRunReport(JobRun, frozen=True):
    """A job run with its outputs, and who asked for them."""

    launch_id: str
    buffered_at: Time
    seconds: float | None
    usual_seconds: float | None
    asked_by: list[str]
    outputs: list[Output]


def job_run_report(queries: Queries, name: str) -> JobRunReport:
    """A job run by its id, or the end of it, in the shape of `show --job-run`. Raises as `IdQueries.full`."""
    job_run = queries.job_runs.get(queries.ids.full(IdKind.JOB_RUN, name))
    assert job_run is not None, "the id is one of a job run"
    (build,) = builds_of(queries, [job_run])
    missed = queries.instances.missed(job_run.instances)
    outputs = [
        extended(Output, instance, why=instance.reason, missed=missed.get(instance.uuid, ()))
        for instance in queries.instances.named(job_run.instances)
    ]
    return extended(JobRunReport, job_run, build, outputs=outputs)


def builds_of(queries: Queries, job_runs: Sequence[JobRunView]) -> list[Build]:
    """Job runs with who asked for them, in their order."""
    askers = who_asked(queries, [uuid for job_run in job_runs for uuid in job_run.instances[:1]])
    usual: dict[str, float | None] = {}
    found: list[Build] = []
    for job_run in job_runs:
        asset = asset_of(job_run.refs[0])
        if asset not in usual:
            spans = queries.launches.spans(asset)
            usual[asset] = median(span.seconds for span in spans) if spans else None
        asked = [asker for uuid in job_run.instances[:1] for asker in askers[uuid] if asker.source != DERIVATIVE]
        names = list(dict.fromkeys(asker.actor for asker in asked))[:MAX_ASKERS]
        began, ended = job_run.started_at, job_run.ended_at
        seconds = None if began is None or ended is None else ended - began
        found.append(Build(extended(JobRun, job_run), names, usual[asset], seconds))
    return found


#: Refs of canceled job runs for which is looked who waits for them.
MAX_LOOKED_AT: Final = 100


class CanceledJobRun(JobRun, frozen=True):
    """A job run that a command canceled."""

    #: Dagster runs that wait for an output, and build it now.
    waiting_dagster_runs: list[str]
    #: Refs that wait for an output, which failed with it, and the wants for them.
    waiting_refs: list[Ref]
    waiting_wants: list[str]


class Waiting(NamedTuple):
    """The outputs that refs wait for, each with the waiting refs and their wants."""

    refs: dict[Ref, tuple[Ref, ...]]
    wants: dict[Ref, list[WantView]]


def cancel_command(queries: Queries, names: Iterable[str], *, reason: str, retry: bool) -> CancelJobRuns:
    """The command for job runs, named by their ids or the ends of their ids. Raises as `IdQueries.full`."""
    ids = tuple(queries.ids.full(IdKind.JOB_RUN, name) for name in names)
    return CancelJobRuns(job_run_ids=ids, reason=reason, keep_wants=retry, fail_missed=not retry)


def waiting_for(queries: Queries, command: CancelJobRuns) -> Waiting:
    """Who waits for the outputs, before the command fails them; empty if they are built again."""
    refs = queries.planning.waiting_for(_looked_at(queries, command))
    return Waiting(refs, wants_of(queries, refs))


def canceled_job_runs(engine: Engine, command: CancelJobRuns, waiting: Waiting) -> list[CanceledJobRun]:
    """The outcome in the shape of `want cancel --job-runs`."""
    queries = engine.queries
    waiting_runs = waiting_dagster_runs(engine.ledger, _looked_at(queries, command))
    return [
        extended(
            CanceledJobRun,
            job_run,
            waiting_dagster_runs=[id for id, refs in waiting_runs.items() if not set(refs).isdisjoint(job_run.refs)],
            waiting_refs=sorted({other for ref in job_run.refs for other in waiting.refs.get(ref, ())}),
            waiting_wants=sorted({want.id for ref in job_run.refs for want in waiting.wants.get(ref, ())}),
        )
        for job_run in _job_runs(queries, command)
    ]


def waiting_dagster_runs(ledger: Ledger, refs: Sequence[Ref]) -> dict[str, list[Ref]]:
    """Each Dagster run that joined a build and still waits, to its refs: it may build them if the build is canceled (rule 8.3)."""
    waiting: dict[str, list[Ref]] = {}
    for entry in (entry for ref in refs for entry in ledger.of_ref(ref)):
        if entry.kind is Answer.JOIN and entry.outcome is DelegationOutcome.WAITING:
            waiting.setdefault(entry.requester, []).append(entry.ref)
    return waiting


def _looked_at(queries: Queries, command: CancelJobRuns) -> list[Ref]:
    """The outputs that are not built again, as many as are looked at."""
    if command.keep_wants:
        return []
    return [ref for job_run in _job_runs(queries, command) for ref in job_run.refs][:MAX_LOOKED_AT]


def _job_runs(queries: Queries, command: CancelJobRuns) -> list[JobRunView]:
    return [known for id in command.job_run_ids if (known := queries.job_runs.get(id))]
