"""Published tables: each tick publishes what is new since the last one, table by table (rule 10.10).

A table that cannot be reached delays nothing else: its reason is set aside as those of refs are (rule 11.7), it rests for a
growing time, and then publication continues from the table's own mark.

Libraries of catalogs may wait without a bound. So each table has a thread, for which a look waits so long and no longer. A thread
that still runs at the next look is asked again, and none is begun beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.display.table_snapshots import report_snapshot
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for, warehouse_of
from databuild_dagster.engine.aside_reasons import TableReasons
from databuild_dagster.engine.follower import apart
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.tables.errors import PublishingContinues
from databuild_dagster.tables.live_files import Touches
from databuild_dagster.tables.publisher import Published, follow
from databuild_dagster.warehouse.threads import in_own_thread

#: The seconds for which a tick waits for all tables of its location. Dagster gives an evaluation sixty.
TICK_WAIT_SECONDS: Final = 20.0
#: The seconds for which a build waits at its end, because its process may be the only one that publishes.
BUILD_WAIT_SECONDS: Final = 300.0

_log = logger(__name__)


@apart("published tables could not be brought up to date")
def publish_tables(
    instance: DagsterInstance,
    deployment: Deployment,
    datasets: Collection[DatasetSpec],
    *,
    wait_seconds: float,
    head: int | None = None,
) -> None:
    """Bring the tables of a location's datasets up to date. An error is set aside, and a later tick tries again.

    Tables that are not begun after `wait_seconds` are left to the next tick.
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
    for dataset in published:
        if reasons.rests(dataset.asset):
            continue
        if (left_seconds := until - time.monotonic()) <= 0:
            break
        publish = partial(follow, engine, dataset, warehouse_of(instance), cursors, head=end, touches=touches)
        try:
            report_snapshot(instance, dataset, _within(left_seconds, dataset.asset, publish, running))
        except (StoreUnusable, NewerStore):
            raise
        except Exception as error:
            failed[dataset.asset] = error
            log_failure(_log, f"the table of {dataset.asset} could not be published", error)
        else:
            done.append(dataset.asset)
    reasons.record(failed, done, this_process())


def _within(
    seconds: float,
    asset: str,
    publish: Callable[[], Published | None],
    running: dict[str, Future[Published | None]],
) -> Published | None:
    """Publish a table, or continue with the publication that still runs. Raises `PublishingContinues`, and its errors."""
    is_late = asset in running
    if not is_late:
        running[asset] = in_own_thread(publish, f"databuild table of {asset}")
    if not wait([running[asset]], 0 if is_late else seconds).done:
        raise PublishingContinues(asset=asset)
    return running.pop(asset).result()
