"""`databuild metrics`: what became of each job's runs, and what delegation has spared (rule 8.5)."""

import click

from databuild_dagster.cli.listing import SINCE
from databuild_dagster.cli.options import PAST, tabular
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.state import the_store
from databuild_dagster.engine.why.ledger import metrics_shape
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import JobRunState
from databuild_dagster.store.job_metrics import MAX_TIME, JobMetrics, metrics_of_jobs

#: A port that Prometheus's own list of exporters leaves free.
DEFAULT_PORT = 9864
#: Column to the states that it counts.
STATES = {
    "ended well": (JobRunState.SUCCEEDED, JobRunState.SKIPPED),
    "failed": (JobRunState.FAILED,),
    "canceled": (JobRunState.CANCELED,),
    "lost": (JobRunState.LOST,),
    "dep misses": (JobRunState.DEP_MISSED,),
    "open": (JobRunState.QUEUED, JobRunState.RUNNING),
}


class MetricsLibraryMissing(Refused):
    """Metrics for Prometheus need prometheus-client, which is not installed here."""

    hint = "Install it: pip install 'databuild-dagster[metrics]'. Without --prometheus and --serve it is not needed."


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
@click.option("--job", help="Only this job.")
@SINCE
@click.option("--until", type=PAST, metavar="TIME|DURATION", help="Only before this time, given like --since.")
@tabular
def metrics(
    prometheus: bool,
    serve: int | None,
    host: str | None,
    job: str | None,
    since: float | None,
    until: float | None,
    as_json: bool,
) -> None:
    """Show success rates, and builds and seconds saved.

    A request for what is live counts as a skipped job run. The time is the end of a job run, or that of the request.
    """
    if sum((prometheus, serve is not None, as_json)) > 1:
        raise click.UsageError("--prometheus, --serve and --json exclude each other; give one of them.")
    if host is not None and serve is None:
        raise click.UsageError("--host says where --serve listens; give --serve too.")
    if host == "":
        raise click.UsageError("--host was given no address; name one, such as 0.0.0.0.")
    if (prometheus or serve is not None) and (job, since, until) != (None, None, None):
        raise click.UsageError("Prometheus reads all jobs and all times; leave out --job, --since and --until.")
    store = the_store()
    if prometheus or serve is not None:
        try:
            from databuild_dagster.features.notices.commands import prometheus as exporter
        except ImportError as error:
            raise MetricsLibraryMissing() from error
        if serve is None:
            click.echo(exporter.text(store), nl=False)
        else:
            exporter.serve(store, exporter.DEFAULT_HOST if host is None else host, serve)
        return
    found = metrics_of_jobs(store, job, since=since or 0.0, until=MAX_TIME if until is None else until)
    if as_json:
        emit(metrics_shape(found))
        return
    columns = ("job", "success", *STATES, "avoided", "cut off", "seconds saved")
    empty = "No job has run yet." if (job, since, until) == (None, None, None) else "No job run or request matches."
    table(columns, [_row(of_job) for of_job in found], empty=empty, wide_only=("open", "cut off"))


def _row(job: JobMetrics) -> tuple[object, ...]:
    return (
        job.job,
        None if job.success_rate is None else f"{job.success_rate:.1%}",
        *(sum(job.counts.get(state, 0) for state in states) for states in STATES.values()),
        job.avoided,
        job.cut_off,
        None if job.seconds_saved is None else f"{job.seconds_saved:.1f}",
    )
