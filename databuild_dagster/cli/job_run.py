"""`databuild history --job-runs`, `show --job-run` and `want cancel --job-runs` (rules 6)."""

from collections.abc import Sequence

import click

from databuild_dagster.cli.listing import SINCE, details, in_states
from databuild_dagster.cli.options import REF, Count, common, tabular
from databuild_dagster.cli.output import count, emit, listing, shown
from databuild_dagster.cli.state import the_catalog, the_engine, the_queries
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.why.job_runs import (
    MAX_LOOKED_AT,
    JobRun,
    cancel_command,
    canceled_job_runs,
    find_job_runs,
    job_run_report,
    waiting_dagster_runs,
    waiting_for,
)
from databuild_dagster.engine.wording import when
from databuild_dagster.model.records import columns_of, extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.wording import typed
from databuild_dagster.store.queries.job_runs import EVERY_JOB_RUN, JobRunFilter

#: Outputs of a job run that are printed.
MAX_OUTPUTS = 20


@click.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only job runs that have not ended.")
@in_states(JobRunState, "job runs")
@click.option("--job", help="Only runs of this job.")
@click.option("--ref", type=REF, help="Only job runs that built this ref, or tried to.")
@SINCE
@click.option(
    "--limit", type=Count(1), default=100, show_default=True, help="Number of job runs at most, newest first."
)
@tabular
def list_job_runs(
    open_only: bool,
    states: tuple[JobRunState, ...],
    job: str | None,
    ref: Ref | None,
    since: float | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the newest job runs.

    The time of a job run is its end, or its beginning if it has not ended. `databuild want cancel --job-runs ID` stops a job run.
    """
    which = JobRunFilter(states=states, job=job, ref=ref, since=since)
    found = find_job_runs(the_queries(), the_catalog(), which, open_only=open_only, most=limit)
    no_filter = "No job run is open." if open_only else "No job has run yet."
    empty = no_filter if which == EVERY_JOB_RUN else "No job run matches."
    listing([extended(JobRun, job_run) for job_run in found], columns_of(JobRun), empty=empty, as_json=as_json)


@click.command("show")
@click.argument("job_run")
@common
def show(job_run: str, as_json: bool) -> None:
    """Show a job run, its outputs, and who asked for it."""
    found = job_run_report(the_queries(), job_run)
    if as_json:
        emit(found)
        return
    outputs, usual = found.outputs, found.usual_seconds
    details(
        {
            "job run": found.id,
            "job": found.job,
            "state": found.state.in_words,
            "refs": shown(found.refs),
            "asked by": ", ".join(found.asked_by) or None,
            "dagster run": found.dagster_run_id,
            "launch": found.launch_id,
            "queued": when(found.buffered_at),
            "started": when(found.started_at),
            "ended": when(found.ended_at),
            "seconds": None if found.seconds is None else f"{found.seconds:.1f}",
            "usually": None if usual is None else f"{usual:.1f} seconds for a launch",
            "error": found.error,
        }
    )
    for output in outputs[:MAX_OUTPUTS]:
        missed = f", missed {shown(output.missed)}" if output.missed else ""
        click.echo(f"  {output.ref}  {output.state.in_words}  {output.uuid}{missed}")
    if len(outputs) > MAX_OUTPUTS:
        click.echo(f"  and {count(len(outputs) - MAX_OUTPUTS, 'more output')}; --json has every output")


@click.command("cancel")
@click.argument("job_run_ids", nargs=-1, required=True)
@click.option("--reason", default="canceled by a person", show_default=True, help="The reason, kept in the log.")
@click.option("--retry", is_flag=True, help="Keep the wants open, so that the refs are built again.")
@common
def cancel(job_run_ids: tuple[str, ...], reason: str, retry: bool, as_json: bool) -> None:
    """Cancel job runs, and the wants for what they build.

    If a waiting ref misses an output, the output fails, and so do the refs that wait for it. A Dagster run that waits for an
    output is a request of its own, and builds the output now. The command names this run.
    """
    engine = the_engine()
    command = cancel_command(engine.queries, job_run_ids, reason=reason, retry=retry)
    waiting = waiting_for(engine.queries, command)
    for ref, waiting_refs in waiting.refs.items():
        click.echo(
            f"{ref} fails, and {shown(waiting_refs)}, which {_wait(waiting_refs)} for it, "
            f"with {count(len(waiting.wants[ref]), 'want')}. `databuild retry {typed(ref)}` opens all of it.",
            err=True,
        )
    engine.handle(command, actor=this_user())
    done = canceled_job_runs(engine, command, waiting)
    if as_json:
        emit(done)
        return
    click.echo(f"Canceled {count(len(done), 'job run')}.")
    refs = [] if retry else [ref for job_run in done for ref in job_run.refs]
    for run_id, waited_for in waiting_dagster_runs(engine.ledger, refs[:MAX_LOOKED_AT]).items():
        click.echo(
            f"Dagster run {run_id} waits for {shown(waited_for)} and builds it now; terminate that run too if no run should."
        )


def _wait(refs: Sequence[Ref]) -> str:
    return "wait" if len(refs) > 1 else "waits"
