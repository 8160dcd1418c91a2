"""A batch of events leaves Dagster's SQLite files as one event after the other does, and loses none."""

import logging
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.storage.event_log.base import EventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.test_utils import freeze_time
from hypothesis import given, settings
from hypothesis import strategies as st

from databuild_dagster.bindings.adapter import event_batches, sqlite_tuning
from databuild_dagster.bindings.adapter.dagster_private import (
    AssetMaterializationPlannedData,
    AssetObservationData,
    DagsterEvent,
    StepMaterializationData,
)
from databuild_dagster.bindings.adapter.event_batches import log_asset_events
from tests.support import dagster_files

ORDERS = dg.AssetKey("orders")
ASSETS = [ORDERS, dg.AssetKey(["shop", "customers"])]
#: The last one is that of events without a run.
RUNS = ["first", "second", ""]
DAYS = [f"2013-01-{day:02}" for day in range(1, 11)]


class OneByOne(SqliteEventLogStorage):
    """Dagster's own."""

    _initdb = dagster_files._copy_or_make
    store_event_batch = EventLogStorage.store_event_batch


class InBatches(SqliteEventLogStorage):
    """As our steps use it."""

    _initdb = sqlite_tuning._initialize
    store_event_batch = event_batches._store_event_batch


def entry(data: Any, run_id: str = RUNS[0], timestamp: float = 1.0) -> dg.EventLogEntry:
    """An event with such data, or of such a type."""
    event_type = data if isinstance(data, str) else TYPES[type(data)]
    event = DagsterEvent(event_type, "job", None, None, None, None, None if data is event_type else data, "", 1, "step")
    return dg.EventLogEntry(None, 10, "", run_id, timestamp, "step", "job", event)  # type: ignore[no-untyped-call]


def materialized(asset: dg.AssetKey = ORDERS, partition: str | None = None, tags: Any = None) -> Any:
    return StepMaterializationData(dg.AssetMaterialization(asset, partition=partition, tags=tags))


TYPES: dict[type[Any], str] = {
    StepMaterializationData: "ASSET_MATERIALIZATION",
    AssetObservationData: "ASSET_OBSERVATION",
    AssetMaterializationPlannedData: "ASSET_MATERIALIZATION_PLANNED",
    AssetCheckEvaluationPlanned: "ASSET_CHECK_EVALUATION_PLANNED",
    dg.AssetCheckEvaluation: "ASSET_CHECK_EVALUATION",
}
of_asset = {"asset": st.sampled_from(ASSETS), "partition": st.sampled_from([None, *DAYS[:3]])}
tags = st.dictionaries(st.sampled_from(["dagster/data_version", "mine"]), st.sampled_from("xy"), max_size=2)
batchable = st.one_of(
    st.builds(materialized, **of_asset, tags=tags),
    st.builds(
        lambda asset, partition, tags: AssetObservationData(dg.AssetObservation(asset, partition=partition, tags=tags)),
        **of_asset,
        tags=tags,
    ),
    st.builds(lambda asset, partition: AssetMaterializationPlannedData(asset, partition), **of_asset),
)
others = st.sampled_from(
    [
        *("STEP_START", "STEP_SKIPPED", "PIPELINE_START", "PIPELINE_SUCCESS"),
        AssetCheckEvaluationPlanned(asset_key=ORDERS, check_name="few"),
        *(dg.AssetCheckEvaluation(asset_key=ORDERS, check_name="few", passed=passed) for passed in (True, False)),
    ]
)
runs, times = st.sampled_from(RUNS), st.floats(1e6, 2e6)
history = st.lists(
    st.one_of(
        st.builds(
            lambda run_id, events: [entry(data, run_id, timestamp) for data, timestamp in events],
            runs,
            st.lists(st.tuples(batchable, times), min_size=1, max_size=8),
        ),
        st.lists(st.builds(entry, batchable | others, runs, times), min_size=1, max_size=4),
        st.sampled_from(ASSETS),
        st.lists(st.sampled_from(DAYS), max_size=3, unique=True),
    ),
    max_size=8,
)


@settings(max_examples=400 if os.environ.get("DATABUILD_LONG") else 25, deadline=None)
@given(history)
def test_batches_leave_the_files_that_events_one_by_one_leave(history: list[Any]) -> None:
    with TemporaryDirectory() as folder, freeze_time(3e6):
        for name in ("one", "batches"):
            shutil.copytree(f"{dagster_files._empty_home()}/history/runs", f"{folder}/{name}")
        stores = [OneByOne(f"{folder}/one"), InBatches(f"{folder}/batches")]

        for store in stores:
            for step in history:
                if isinstance(step, dg.AssetKey):
                    store.wipe_asset(step)
                elif step and isinstance(step[0], str):
                    store.add_dynamic_partitions("people", step)
                    store.delete_dynamic_partition("people", step[0])
                else:
                    store.store_event_batch(step)

        one, batches = (contents(Path(store._base_dir)) for store in stores)
        assert [(name, one[name], batches.get(name)) for name in one if one[name] != batches.get(name)] == []
        assert one.keys() == batches.keys()


def contents(folder: Path) -> dict[str, Any]:
    """Every table of every file, without the times at which Dagster wrote, and the file's schema."""
    found: dict[str, Any] = {}
    for path in folder.glob("*.db"):
        with closing(sqlite3.connect(path)) as file:
            schema = file.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            found[path.name] = sorted(schema)
            for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [name for _, name, *_ in file.execute(f"PRAGMA table_info({table})")]
                kept = [f'"{name}"' for name in columns if name != "create_timestamp"]
                found[f"{path.name} {table}"] = file.execute(f"SELECT {', '.join(kept)} FROM {table}").fetchall()
    return found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    sqlite_tuning.tune_dagster_writes()
    with dagster_files.fresh_instance() as instance:
        yield instance


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(DAYS))
def orders(context: dg.AssetExecutionContext) -> Iterator[Any]:
    yield from log_asset_events(context, [dg.AssetMaterialization(ORDERS, partition=day) for day in DAYS])
    yield dg.Output(None)


def run(instance: dg.DagsterInstance) -> Any:
    return dg.materialize([orders], instance=instance, partition_key=DAYS[0], raise_on_error=False)


def shown_in_run(instance: dg.DagsterInstance) -> list[str]:
    """The partitions that the log of the last run names; the last one is that of the output."""
    (last,) = instance.get_runs(limit=1)
    logged = instance.all_logs(last.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return [str(event.get_dagster_event().partition) for event in logged]


def test_a_step_stores_its_materializations_in_one_batch(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    store = SqliteEventLogStorage._store_asset_event_tags

    def counting(storage: Any, connection: Any, events: Sequence[Any], ids: Sequence[int]) -> None:
        batches.append(len(events))
        store(storage, connection, events, ids)

    monkeypatch.setattr(SqliteEventLogStorage, "_store_asset_event_tags", counting)

    result = run(instance)

    assert len(DAYS) in batches
    assert shown_in_run(instance) == [*DAYS, DAYS[0]]
    assert instance.get_materialized_partitions(ORDERS) == set(DAYS)
    assert len(result.get_asset_materialization_events()) == len(DAYS) + 1


def test_a_batch_that_the_index_refuses_is_stored_one_by_one_and_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteEventLogStorage._store_asset_event_tags

    def locked(storage: Any, connection: Any, events: Sequence[Any], ids: Sequence[int]) -> None:
        if len(events) > 1:
            raise sqlite3.OperationalError("database is locked")
        store(storage, connection, events, ids)

    monkeypatch.setattr(SqliteEventLogStorage, "_store_asset_event_tags", locked)

    run(instance)

    assert shown_in_run(instance) == [*DAYS, DAYS[0]]
    assert instance.get_materialized_partitions(ORDERS) == set(DAYS)


def test_an_interrupt_ends_the_step_after_its_batch_is_stored(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteEventLogStorage._store_asset_event_tags

    def interrupted(storage: Any, connection: Any, events: Sequence[Any], ids: Sequence[int]) -> None:
        if len(events) > 1:
            signal.raise_signal(signal.SIGINT)
        store(storage, connection, events, ids)

    monkeypatch.setattr(SqliteEventLogStorage, "_store_asset_event_tags", interrupted)

    with suppress(KeyboardInterrupt):
        run(instance)

    (last,) = instance.get_runs(limit=1)
    assert last.status in (dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)
    assert instance.get_materialized_partitions(ORDERS) == set(DAYS)


def test_a_logger_that_raises_within_a_batch_loses_none_of_the_events_until_then(instance: dg.DagsterInstance) -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if DAYS[4] in record.getMessage():
                raise OSError("no space left")

    @dg.logger
    def to_disk(_: Any) -> logging.Logger:
        logger = logging.Logger("to_disk", logging.DEBUG)
        logger.addHandler(Full())
        return logger

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(DAYS))
    def described(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from log_asset_events(
            context, [dg.AssetMaterialization(ORDERS, partition=day, description=day) for day in DAYS]
        )
        yield dg.Output(None)

    job = dg.Definitions(
        [described], jobs=[dg.define_asset_job("all", [described])], loggers={"to_disk": to_disk}
    ).resolve_job_def("all")

    with pytest.raises(OSError, match="no space left"):
        job.execute_in_process({"loggers": {"to_disk": {}}}, instance=instance, partition_key=DAYS[9])

    assert instance.get_materialized_partitions(ORDERS) == set(DAYS[:5])


def test_a_process_killed_within_a_batch_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    store = InBatches(str(tmp_path))
    store.store_event(entry(materialized(partition=DAYS[0])))
    before = contents(tmp_path)
    child = os.fork()
    if not child:
        try:
            killed = InBatches(str(tmp_path))
            killed._store_asset_event = lambda *_: os._exit(9)  # type: ignore[method-assign]
            killed.store_event_batch([entry(materialized(partition=day)) for day in DAYS])
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)

    left = contents(tmp_path)
    store.store_event_batch([entry(materialized(partition=day)) for day in DAYS])

    assert os.waitstatus_to_exitcode(status) == 9
    assert {name: rows for name, rows in left.items() if name.startswith("index")} == {
        name: rows for name, rows in before.items() if name.startswith("index")
    }
    assert store.get_materialized_partitions(ORDERS) == set(DAYS)
    (latest,) = store.get_latest_materialization_events([ORDERS]).values()
    assert latest is not None
    assert latest.get_dagster_event().partition == DAYS[-1]
