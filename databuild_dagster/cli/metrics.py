"""`databuild ledger metrics`: what became of each job's runs, and what delegation has spared (rule 8.5)."""

from __future__ import annotations

import click

from databuild_dagster.cli.options import tabular
from databuild_dagster.cli.output import emit, picked, table
from databuild_dagster.cli.state import the_store
from databuild_dagster.store.ledger import JobMetrics, Ledger

#: A port that Prometheus's own list of exporters leaves free.
DEFAULT_PORT = 9864


@click.command()
@click.option("--prometheus", is_flag=True, help="Print the metrics in Prometheus' format.")
@click.option(
    "--serve",
    is_flag=False,
    flag_value=DEFAULT_PORT,
    type=click.IntRange(0, 65535),
    help=f"Serve Prometheus on this port until Ctrl-C.  [default port: {DEFAULT_PORT}]",
)
@click.option(
    "--host",
    default=None,
    help="With --serve: the address to listen on; 0.0.0.0 for all addresses of this machine.  [default: 127.0.0.1]",
)
@tabular
def metrics(prometheus: bool, serve: int | None, host: str | None, as_json: bool) -> None:
    """Show success rates, and builds and seconds saved."""
    if sum((prometheus, serve is not None, as_json)) > 1:
        raise click.UsageError("--prometheus, --serve and --json exclude each other; give one of them.")
    if host is not None and serve is None:
        raise click.UsageError("--host says where --serve listens; give --serve too.")
    if host == "":
        raise click.UsageError("--host was given no address; name one, such as 0.0.0.0.")
    store = the_store()
    if prometheus or serve is not None:
        from databuild_dagster.cli import prometheus as exporter

        if serve is None:
            click.echo(exporter.text(store), nl=False)
        else:
            exporter.serve(store, exporter.DEFAULT_HOST if host is None else host, serve)
        return
    found = Ledger(store).metrics()
    if as_json:
        names = ("success_rate", "avoided", "seconds_saved", "median_seconds")
        emit({job.job: picked(job, *names) | {"job_runs": job.counts} for job in found})
        return
    states = ("ended well", "failed", "dep misses", "going on")
    columns = ("job", "success rate", *states, "builds avoided", "seconds saved")
    table(columns, [_row(job) for job in found], empty="No job has run yet.")


def _row(job: JobMetrics) -> tuple[object, ...]:
    def n(*states: str) -> int:
        return sum(job.counts.get(state, 0) for state in states)

    return (
        job.job,
        None if job.success_rate is None else f"{job.success_rate:.1%}",
        n("Succeeded", "Skipped"),
        n("Failed", "Lost", "Canceled"),
        n("DepMissed"),
        n("Queued", "Running"),
        job.avoided,
        None if job.seconds_saved is None else f"{job.seconds_saved:.1f}",
    )
