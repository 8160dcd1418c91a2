"""`databuild job-run list`: what ran, what runs, and stopping it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from databuild_dagster.cli.options import Count, common, tabular
from databuild_dagster.cli.output import Column, count, emit, headline, listing, shown
from databuild_dagster.cli.state import the_engine, the_queries
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.why.built_again import wants_of
from databuild_dagster.model.commands import CancelJobRuns
from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.job_runs import job_run_shape
from databuild_dagster.store.ledger import Ledger
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.job_runs import JobRunView

#: Refs of canceled job runs for which is looked who waits for them.
MAX_LOOKED_AT = 100


COLUMNS = (
    Column("job run", "id"),
    Column("job", wide_only=True),
    Column("refs"),
    Column("state"),
    Column("dagster run", "dagster_run_id", wide_only=True),
    Column("started", "started_at", wide_only=True),
    Column("ended", "ended_at", wide_only=True),
    Column("error", narrow=headline),
    Column("instances", wide_only=True),
)


@click.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only job runs that have not ended.")
@click.option(
    "--limit", type=Count(1), default=100, show_default=True, help="Number of job runs at most, newest first."
)
@tabular
def list_job_runs(open_only: bool, limit: int, as_json: bool) -> None:
    """List the newest job runs.

    `databuild job-run cancel ID` stops one.
    """
    found = the_queries().job_runs(open_only=open_only, most=limit)
    empty = "No job run is open." if open_only else "No job has run yet."
    listing([job_run_shape(job_run) for job_run in found], COLUMNS, empty=empty, as_json=as_json)


@click.command("cancel")
@click.argument("job_run_ids", nargs=-1, required=True)
@click.option("--reason", default="canceled by a person", show_default=True, help="The reason, kept in the log.")
@click.option("--retry", is_flag=True, help="Keep the wants open, so that the refs are built again.")
@common
def cancel(job_run_ids: tuple[str, ...], reason: str, retry: bool, as_json: bool) -> None:
    """Cancel job runs, and the wants for what they build.

    An output that a waiting ref misses fails, and with it what waits for it. A Dagster run that waits for an output is a request
    of its own, and builds it now: it is named.
    """
    engine = the_engine()
    queries = engine.queries
    ids = tuple(queries.full_id(IdKind.JOB_RUN, text) for text in job_run_ids)
    runs = [known for id in ids if (known := queries.job_run(id))]
    refs = [] if retry else [ref for job_run in runs for ref in job_run.refs][:MAX_LOOKED_AT]
    waiters = queries.waiting_for(refs)
    wants = wants_of(queries, waiters)
    for ref, waiting_refs in waiters.items():
        click.echo(
            f"{ref} fails, and {shown(waiting_refs)}, which {_wait(waiting_refs)} for it, with {count(len(wants[ref]), 'want')}."
            f" `databuild retry {ref}` opens all of it.",
            err=True,
        )
    command = CancelJobRuns(job_run_ids=ids, reason=reason, keep_wants=retry, fail_missed=not retry)
    engine.handle(command, actor=this_user())
    found = [known for id in ids if (known := queries.job_run(id))]
    waiting = _still_waiting(engine.ledger, refs)
    if as_json:
        emit(
            [
                {
                    **job_run_shape(job_run),
                    "waiting_dagster_runs": _waiting_for(job_run, waiting),
                    "waiting_refs": sorted({other for ref in job_run.refs for other in waiters.get(ref, ())}),
                    "waiting_wants": sorted({want.id for ref in job_run.refs for want in wants.get(ref, ())}),
                }
                for job_run in found
            ]
        )
        return
    click.echo(f"Canceled {count(len(found), 'job run')}.")
    for run_id, waited_for in waiting.items():
        click.echo(
            f"Dagster run {run_id} waits for {shown(waited_for)} and builds it now; terminate that run too if no run should."
        )


def _wait(refs: Sequence[Ref]) -> str:
    return "wait" if len(refs) > 1 else "waits"


def _still_waiting(ledger: Ledger, refs: Sequence[Ref]) -> dict[str, list[Ref]]:
    """Dagster run to what it waits for: of all who joined a build, canceling it leaves only these (rule 8.3)."""
    waiting: dict[str, list[Ref]] = {}
    for entry in (entry for ref in refs for entry in ledger.of_ref(ref)):
        if entry.kind is Answer.JOIN and entry.outcome is DelegationOutcome.WAITING:
            waiting.setdefault(entry.requester, []).append(entry.ref)
    return waiting


def _waiting_for(job_run: JobRunView, waiting: Mapping[str, Sequence[Ref]]) -> list[str]:
    """The Dagster runs that wait for a ref of a job run."""
    return [run_id for run_id, refs in waiting.items() if not set(refs).isdisjoint(job_run.refs)]
