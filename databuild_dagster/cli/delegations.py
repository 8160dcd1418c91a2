"""`databuild delegations` and `databuild metrics`: what requests got from others' builds, and what that was worth (SPEC 8)."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import emit, table, when
from databuild_dagster.cli.state import the_store
from databuild_dagster.model.errors import NotFound
from databuild_dagster.store import JobMetrics, Ledger, LedgerEntry, Queries

#: A port that Prometheus's own list of exporters leaves free.
DEFAULT_PORT = 9864


@click.command()
@click.option("--request", help="Of one request: the id of a want's request, or of a Dagster run.")
@click.option("--ref", help="Of one ref: who asked for it.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many, the newest.")
@common
def delegations(request: str | None, ref: str | None, limit: int, as_json: bool) -> None:
    """The ledger: what each request got for each ref: built, joined, reused or refused, and how it ended."""
    if request is not None and ref is not None:
        raise click.UsageError("--request and --ref exclude each other; give one of them.")
    store = the_store()
    ledger = Ledger(store)
    if request is not None:
        entries = ledger.of_requester(request, most=limit)
        if not entries and not Queries(store).wants_named(request):
            raise NotFound(kind="request", name=request)
    elif ref is not None:
        entries = ledger.of_ref(ref, most=limit)
    else:
        entries = ledger.entries(most=limit)
    if as_json:
        emit([_as_json(each) for each in entries])
        return
    columns = ("asked", "requester", "ref", "kind", "job run", "instance", "outcome", "reason")
    rows = [
        (
            when(each.asked_at),
            each.requester,
            each.ref,
            each.kind.value,
            each.job_run,
            each.uuid,
            each.outcome.value,
            " ".join(each.reason.split())[:100],
        )
        for each in entries
    ]
    table(columns, rows, empty="Nobody has asked for anything yet.")


@click.command()
@click.option("--prometheus", is_flag=True, help="Print them as Prometheus reads them.")
@click.option(
    "--serve",
    is_flag=False,
    flag_value=DEFAULT_PORT,
    type=click.IntRange(0, 65535),
    help=f"Answer Prometheus on this port of 127.0.0.1, until Ctrl-C.  [default port: {DEFAULT_PORT}]",
)
@common
def metrics(prometheus: bool, serve: int | None, as_json: bool) -> None:
    """Success rate of each job, and the builds and seconds that delegation has saved."""
    if sum((prometheus, serve is not None, as_json)) > 1:
        raise click.UsageError("--prometheus, --serve and --json exclude each other; give one of them.")
    store = the_store()
    if prometheus or serve is not None:
        from databuild_dagster.cli import prometheus as exporter

        exporter.serve(store, serve) if serve is not None else click.echo(exporter.text(store), nl=False)
        return
    found = Ledger(store).metrics()
    if as_json:
        emit({each.job: _metrics_as_json(each) for each in found})
        return
    columns = (
        "job",
        "success rate",
        "ended well",
        "failed",
        "dep misses",
        "going on",
        "builds avoided",
        "seconds saved",
    )
    table(columns, [_row(each) for each in found], empty="No job has run yet.")


def _as_json(each: LedgerEntry) -> dict[str, object]:
    return {
        "requester": each.requester,
        "ref": each.ref,
        "kind": each.kind.value,
        "job_run": each.job_run,
        "uuid": each.uuid,
        "outcome": each.outcome.value,
        "asked_at": when(each.asked_at),
        "ended_at": when(each.ended_at),
        "dagster_run_id": each.dagster_run_id,
        "message": each.message,
        "reason": each.reason,
    }


def _metrics_as_json(each: JobMetrics) -> dict[str, object]:
    return {
        "success_rate": each.success_rate,
        "avoided": each.avoided,
        "seconds_saved": each.seconds_saved,
        "median_seconds": each.median_seconds,
        "job_runs": each.counts,
    }


def _row(each: JobMetrics) -> tuple[object, ...]:
    def n(*states: str) -> int:
        return sum(each.counts.get(state, 0) for state in states)

    return (
        each.job,
        None if each.success_rate is None else f"{each.success_rate:.1%}",
        n("Succeeded", "Skipped"),
        n("Failed", "Lost", "Canceled"),
        n("DepMissed"),
        n("Queued", "Running"),
        each.avoided,
        None if each.seconds_saved is None else f"{each.seconds_saved:.1f}",
    )
