"""Published tables: each tick publishes what is new since the last one, table by table (rule 10.10).

A table that cannot be reached delays nothing else: its reason is set aside as those of refs are (rule 11.7), it rests for a
growing time, and then publication continues from the table's own mark.

Libraries of catalogs may wait without a bound. So each table has a thread, for which a look waits so long and no longer. A thread
that still runs at the next look is asked again, and none is begun beside it. A tick does not wait for such a thread a second time,
so a silent catalog delays one tick. The end of a build does, because the thread ends with the process.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for, warehouse_of
from databuild_dagster.engine.follower import apart
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.set_aside import TableReasons
from databuild_dagster.features.tables.errors import PublishingContinues
from databuild_dagster.features.tables.live_files import Touches
from databuild_dagster.features.tables.publisher import Published, follow
from databuild_dagster.features.tables.table_check import report_table_checks
from databuild_dagster.features.tables.table_snapshots import report_snapshot
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.warehouse.threads import in_own_thread

#: The seconds for which a tick waits for all tables of its location. Dagster gives an evaluation sixty.
TICK_WAIT_SECONDS: Final = 20.0
#: The seconds for which a build waits at its end, because its process may be the only one that publishes.
BUILD_WAIT_SECONDS: Final = 300.0
#: A log line announces the wait of a build for a table that takes longer.
SILENT_SECONDS: Final = 5.0

_log = logger(__name__)


@apart("published tables could not be brought up to date")
def publish_tables(
    instance: DagsterInstance,
    deployment: Deployment,
    datasets: Collection[DatasetSpec],
    *,
    wait_seconds: float,
    head: int | None = None,
    is_last: bool = False,
) -> None:
    """Bring the tables of a location's datasets up to date. An error is set aside, and a later tick tries again.

    Tables that are not begun after `wait_seconds` are left to the next tick. With `is_last` no tick of this process follows, so
    the wait is also for tables that an earlier tick has begun.
    """
    published = [dataset for dataset in datasets if dataset.table]
    if not published:
        return
    engine = engine_for(instance)
    end = engine.queries.head().seq if head is None else head
    touches, cursors = Touches(engine.queries), DagsterCursors(instance)
    reasons = TableReasons(engine, deployment.location)
    running = engine.memory.of((publish_tables, deployment.location), dict[str, Future[Published | None]])
    until = time.monotonic() + wait_seconds
    failed: dict[str, Exception] = {}
    done: list[str] = []
    # Those that run come last: one that never ends takes no time from the others.
    for dataset in sorted(published, key=lambda dataset: dataset.asset in running):
        if reasons.rests(dataset.asset) and not (is_last and dataset.asset in running):
            continue
        if (left_seconds := until - time.monotonic()) <= 0:
            break
        publish = partial(follow, engine, dataset, warehouse_of(instance), cursors, head=end, touches=touches)
        try:
            if dataset.asset not in running:
                running[dataset.asset] = in_own_thread(publish, f"databuild table of {dataset.asset}")
            elif not is_last:
                left_seconds = 0.0
            report_snapshot(instance, dataset, _published(dataset.asset, running, left_seconds, is_last=is_last))
        except (StoreUnusable, NewerStore):
            raise
        except Exception as error:
            failed[dataset.asset] = error
            log_failure(_log, f"the table of {dataset.asset} could not be published", error)
        else:
            done.append(dataset.asset)
    reasons.record(failed, done, this_process())


def _published(
    asset: str, running: dict[str, Future[Published | None]], seconds: float, *, is_last: bool
) -> Published | None:
    """The end of a publication that runs. Raises `PublishingContinues` if it takes longer, and the errors of the publication."""
    future = running[asset]
    if is_last and seconds > SILENT_SECONDS and not wait([future], SILENT_SECONDS).done:
        _log.warning("databuild: waiting for the table of %s, for at most %.0f s; Ctrl-C ends the wait", asset, seconds)
    if not wait([future], seconds).done:
        raise PublishingContinues(asset=asset)
    return running.pop(asset).result()


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
