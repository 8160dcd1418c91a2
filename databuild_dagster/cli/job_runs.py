"""`databuild job-runs`: what ran, what runs, and stopping it."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import count, emit, shown, table, when
from databuild_dagster.cli.state import the_engine, the_queries
from databuild_dagster.model.commands import CancelJobRuns
from databuild_dagster.store.queries import JobRunView


@click.group("job-runs", invoke_without_command=True)
@click.option("--open", "open_only", is_flag=True, help="Only those that have not ended.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many, the newest.")
@common
@click.pass_context
def job_runs(context: click.Context, open_only: bool, limit: int, as_json: bool) -> None:
    """The newest job runs; `job-runs cancel ID` stops one."""
    if context.invoked_subcommand is not None:
        return
    found = the_queries().job_runs(open_only=open_only, most=limit)
    if as_json:
        emit([as_dict(each) for each in found])
        return
    columns = ("job run", "job", "refs", "state", "dagster run", "started", "ended", "error")
    rows = [
        (
            each.id,
            each.job,
            shown(each.refs, 2),
            each.state.value,
            each.dagster_run_id,
            when(each.started_at),
            when(each.ended_at),
            each.error and each.error.splitlines()[0][:100],
        )
        for each in found
    ]
    table(columns, rows, empty="No job has run yet.")


@job_runs.command("cancel")
@click.argument("job_run_ids", nargs=-1, required=True)
@click.option("--reason", default="canceled by a person", show_default=True, help="Why.")
@click.option("--retry", is_flag=True, help="Keep the wants that are open for it, so that it is built again.")
@common
def cancel(job_run_ids: tuple[str, ...], reason: str, retry: bool, as_json: bool) -> None:
    """Stop job runs, and the wants that are open for what they build."""
    engine = the_engine()
    engine.handle(CancelJobRuns(job_run_ids=job_run_ids, reason=reason, keep_wants=retry), actor="user")
    found = [each for job_run_id in job_run_ids if (each := engine.queries.job_run(job_run_id))]
    if as_json:
        emit([as_dict(each) for each in found])
    else:
        click.echo(f"Canceled {count(len(found), 'job run')}.")


def as_dict(each: JobRunView) -> dict[str, object]:
    return {
        "id": each.id,
        "job": each.job,
        "refs": list(each.refs),
        "state": each.state.value,
        "dagster_run_id": each.dagster_run_id,
        "started_at": when(each.started_at),
        "ended_at": when(each.ended_at),
        "error": each.error,
    }
