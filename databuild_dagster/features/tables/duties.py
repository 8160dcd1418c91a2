"""Published tables as duties of each tick, and at the end of a build (rule 10.10)."""

from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.features.tables.table_check import report_table_checks
from databuild_dagster.features.tables.table_publishing import BUILD_WAIT_SECONDS, TICK_WAIT_SECONDS, publish_tables


def _publish(work: Work) -> None:
    publish_tables(work.instance, work.deployment, work.datasets, wait_seconds=TICK_WAIT_SECONDS, head=work.head)


def _finish(place: Place, seconds: float | None) -> None:
    wait_seconds = BUILD_WAIT_SECONDS if seconds is None else seconds
    publish_tables(place.instance, place.deployment, place.datasets, wait_seconds=wait_seconds, is_last=True)


def _report_checks(work: Work) -> None:
    report_table_checks(work.instance, work.deployment.location, work.repository.asset_graph, work.datasets)


DUTIES = (
    Duty(
        "publish tables",
        _publish,
        why="it waits for catalogs on other machines, and only the next duty depends on it, so it comes late",
        finish=_finish,
    ),
    Duty(
        "report table checks",
        _report_checks,
        why="a table that this tick has brought up to date passes at once",
    ),
)
