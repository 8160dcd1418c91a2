"""The materializations and observations of a step, or of no run, stored in batches.

Dagster has a buffer for the events of a batch (`DAGSTER_EVENT_BATCH_SIZE`), which calls `store_event_batch` of its storage. The
storage of PostgreSQL has an insert with many rows there. That of SQLite stores one event after the other, so it gets a method here.
A step holds no event back: the batch is stored before the step yields the first of its events.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterEventType,
    DagsterInstance,
    EventLogEntry,
)

from databuild_dagster.bindings.adapter.dagster_private import (
    RUNLESS_JOB_NAME,
    RUNLESS_RUN_ID,
    DagsterEvent,
    DagsterEventBatchMetadata,
    StepMaterializationData,
    generate_event_batch_id,
)
from databuild_dagster.bindings.adapter.dagster_storage import (
    EventLogStorage,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
)

AnyAssetEvent = TypeVar("AnyAssetEvent", AssetMaterialization, AssetMaterialization | AssetObservation)
Stored = TypeVar("Stored")

#: The events of a larger batch are stored in several.
MAX_EVENTS: Final = 500

_SIZE: Final = "DAGSTER_EVENT_BATCH_SIZE"
_BATCHED: Final = {
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    DagsterEventType.ASSET_OBSERVATION,
}
#: A Dagster that is too old stores the row of an asset in a transaction of its own, a later one may have a method of its own.
_CAN_BATCH: Final = hasattr(SqliteEventLogStorage, "_store_asset_event") and (
    SqliteEventLogStorage.store_event_batch is EventLogStorage.store_event_batch
)


def log_asset_events(
    context: AssetExecutionContext, events: Sequence[AssetMaterialization | AssetObservation]
) -> list[DagsterEvent]:
    """Store the events of a step, asset by asset; returns what the step yields in their place.

    An interrupt waits until all are stored: the engine has recorded their instances already.
    """
    step = context.op_execution_context.get_step_execution_context()

    def log(event: AssetMaterialization | AssetObservation, batch: DagsterEventBatchMetadata) -> DagsterEvent:
        if isinstance(event, AssetMaterialization):
            return DagsterEvent.asset_materialization(step, event, batch)
        return DagsterEvent.asset_observation(step, event, batch)

    return _in_batches(context.instance, events, log)


def report_materializations(instance: DagsterInstance, events: Sequence[AssetMaterialization]) -> None:
    """Store materializations that belong to no run, as `report_runless_asset_event` does with each."""

    def report(event: AssetMaterialization, batch: DagsterEventBatchMetadata) -> None:
        kind, data = DagsterEventType.ASSET_MATERIALIZATION.value, StepMaterializationData(event)
        runless = DagsterEvent(kind, job_name=RUNLESS_JOB_NAME, event_specific_data=data)
        instance.report_dagster_event(runless, run_id=RUNLESS_RUN_ID, batch_metadata=batch)

    _in_batches(instance, events, report)


def _in_batches(
    instance: DagsterInstance,
    events: Sequence[AnyAssetEvent],
    store: Callable[[AnyAssetEvent, DagsterEventBatchMetadata], Stored],
) -> list[Stored]:
    if _CAN_BATCH:
        SqliteEventLogStorage.store_event_batch = _store_event_batch  # type: ignore[assignment,method-assign]
    os.environ.setdefault(_SIZE, str(MAX_EVENTS))
    # The storage of PostgreSQL keeps the last materialization of one asset in a batch.
    by_asset: dict[AssetKey, list[AnyAssetEvent]] = {}
    for event in events:
        by_asset.setdefault(event.asset_key, []).append(event)
    stored = []
    with _interrupts_held_back():
        for of_asset in by_asset.values():
            batch_id = generate_event_batch_id()  # type: ignore[no-untyped-call]
            try:
                for number, event in enumerate(of_asset, start=1):
                    stored.append(store(event, DagsterEventBatchMetadata(batch_id, is_end=number == len(of_asset))))
            finally:
                # A logger of the user may raise before the end of the batch.
                for entry in instance._event_buffer.pop(batch_id, ()):
                    instance.handle_new_event(entry)
    return stored


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def _store_event_batch(storage: Any, events: Sequence[EventLogEntry]) -> None:
    """As `store_event` of Dagster's SQLite storage does for each event: the run's file, then the index of all runs."""
    runs = {event.run_id for event in events}
    if len(runs) != 1 or not {event.dagster_event_type for event in events} <= _BATCHED:
        EventLogStorage.store_event_batch(storage, events)
        return
    (run_id,) = runs
    rows = [storage._event_to_row(event) for event in events]
    with storage.run_connection(run_id) as connection:
        ids_in_run = _inserted(connection, rows)
    try:
        with storage.index_transaction() as connection:
            ids = _inserted(connection, rows)
            storage._store_asset_event_tags(connection, events, ids)
            # An asset has a row, in the order of their first events; the last event of each type sets some of its columns.
            last: dict[str, dict[str, int]] = {}
            for at, row in enumerate(rows):
                last.setdefault(row["asset_key"], {})[row["dagster_event_type"]] = at
            for at in (at for of_asset in last.values() for at in sorted(of_asset.values())):
                storage._store_asset_event(connection, events[at], ids[at])
    except BaseException:
        # Dagster stores the events one by one then.
        with storage.run_connection(run_id) as connection:
            connection.execute(SqlEventLogStorageTable.delete().where(SqlEventLogStorageTable.c.id.in_(ids_in_run)))
        raise


def _inserted(connection: Any, rows: Sequence[dict[str, Any]]) -> range:
    """Insert rows of events; returns their ids. In SQLite, nobody else inserts before the transaction ends."""
    connection.execute(SqlEventLogStorageTable.insert(), rows)
    last = connection.exec_driver_sql("SELECT last_insert_rowid()").scalar()
    return range(last - len(rows) + 1, last + 1)
