"""The state as Prometheus reads it: counted from the store at each scrape, so that nothing is kept twice."""

from collections.abc import Iterator
from functools import cache
from threading import Event

import click
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric

from databuild_dagster.cli.state import the_instance
from databuild_dagster.feature import rows
from databuild_dagster.store.job_metrics import JobTotals
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

#: Not reachable from other machines unless --host says so.
DEFAULT_HOST = "127.0.0.1"


class StoreCollector:
    """A collector of prometheus-client over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._instance = cache(the_instance)
        self._totals = JobTotals(store)

    def collect(self) -> Iterator[Metric]:
        job_runs = GaugeMetricFamily(
            "databuild_job_runs", "Job runs by job and state; a reuse is a skipped one.", labels=["job", "state"]
        )
        rate = GaugeMetricFamily(
            "databuild_job_success_ratio", "Share of a job's ended runs that went well.", labels=["job"]
        )
        # Gauges, for both may fall: who asks again may have it built, and the median moves.
        avoided = GaugeMetricFamily(
            "databuild_builds_avoided", "Builds that were not needed because another's served.", labels=["job"]
        )
        cut_off = GaugeMetricFamily(
            "databuild_builds_cut_off", "Builds that were not needed because an input got equal rows.", labels=["job"]
        )
        saved = GaugeMetricFamily(
            "databuild_seconds_saved", "What those builds would have taken, by the job's median.", labels=["job"]
        )
        for job in self._totals.metrics():
            for state, n in job.counts.items():
                job_runs.add_metric([job.job, state], n)
            if job.success_rate is not None:
                rate.add_metric([job.job], job.success_rate)
            avoided.add_metric([job.job], job.avoided)
            cut_off.add_metric([job.job], job.cut_off)
            if job.seconds_saved is not None:
                saved.add_metric([job.job], job.seconds_saved)
        queries = Queries(self._store)
        refs = GaugeMetricFamily("databuild_refs", "Refs by dataset and canonical state.", labels=["dataset", "state"])
        for asset, state, n in queries.datasets.ref_counts():
            refs.add_metric([asset, state], n)
        wants = GaugeMetricFamily("databuild_open_wants", "Wants that are open.")
        wants.add_metric([], queries.wants.n_open())
        yield from (job_runs, rate, avoided, cut_off, saved, refs, wants)
        yield from self._of_features(queries)

    def _of_features(self, queries: Queries) -> Iterator[Metric]:
        for measure in rows(lambda feature: feature.measures):
            families = {
                gauge.name: GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels) for gauge in measure.gauges
            }
            for sample in measure.samples(queries, self._instance):
                families[sample.gauge].add_metric(sample.labels, sample.value)
            yield from families.values()


def text(store: Store) -> str:
    """What a scrape answers."""
    return generate_latest(_registry(store)).decode()


def serve(store: Store, host: str, port: int) -> None:
    """Answer scrapes until Ctrl-C. Raises a click error where the host is not this machine's, or the port is taken."""
    try:
        server, thread = start_http_server(port, addr=host, registry=_registry(store))
    except OSError as error:
        raise click.UsageError(
            f"Port {port} of {host} cannot be had: {error.strerror}; give another by --serve, or by --host."
        ) from error
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Metrics on http://{shown}:{server.server_port}/metrics; Ctrl-C ends it.", err=True)
    try:
        Event().wait()
    finally:
        server.shutdown()
        thread.join()


def _registry(store: Store) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(StoreCollector(store))
    return registry
