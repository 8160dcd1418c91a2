"""Every type × every writer × every reader: the value that was written, or a refusal before anything is live.

A tenth runs in CI; `make values-long` runs all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databuild_dagster.features.same_data.written_rows import hash_of_written
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.datasets import TableFormat, TableSpec
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.refs import parse_ref
from databuild_dagster.spark.frames import filter_in, filtered, read_arrow, read_instances
from databuild_dagster.spark.memory_frames import FrameKind, from_arrow
from databuild_dagster.warehouse.files import describe_each, find_files
from databuild_dagster.warehouse.filters import parsed_filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, manifest_fact, write_manifest
from tests.support.instances import landed_manifest, written_by_engine
from tests.support.published import PublishedWorld
from tests.support.table_readers import iceberg_table
from tests.values.columns import columns, loose, of_pandas, plain

EXAMPLES = int(os.environ.get("DATABUILD_VALUES", "120"))
REF = parse_ref("sales")
#: The table that an instance is published as, of some draws.
TABLES = (
    None,
    None,
    None,
    TableSpec(format=TableFormat.ICEBERG, name="shop.sales"),
    TableSpec(format=TableFormat.DELTA),
)

#: A JVM writes intervals as integers, which Sail does not read: a location has one engine.
APART = {("JVM", "Sail")}

Write = Callable[[pa.Table, Warehouse, Path, dict[str, Any]], Manifest]


def _landed(path: Path) -> Manifest:
    (described,) = describe_each(find_files(str(path)))
    assert not isinstance(described, Exception)
    return landed_manifest([described], ref=REF)


class NotItsType(Exception):
    """The writer has no such type: nothing of ours was asked."""


def _by(made: Callable[[], Any]) -> Any:
    try:
        return made()
    except (Exception, pl.exceptions.PanicException) as error:  # Each library has errors of its own.
        raise NotItsType from error


def _by_spark(engine: str) -> Write:
    def write(table: pa.Table, warehouse: Warehouse, folder: Path, sessions: dict[str, Any]) -> Manifest:
        def made() -> Any:
            frame = sessions[engine].createDataFrame(table)
            frame.toArrow()
            return frame

        return written_by_engine(_by(made), warehouse, REF)

    return write


def _file_by(written: Callable[[pa.Table, Path], Any]) -> Write:
    def write(table: pa.Table, warehouse: Warehouse, folder: Path, sessions: dict[str, Any]) -> Manifest:
        path = folder / "landed.parquet"
        _by(lambda: written(table, path))
        return _landed(path)

    return write


WRITERS: dict[str, Write] = {
    "Arrow": lambda table, warehouse, folder, sessions: written_by_engine(table, warehouse, REF),
    "pandas": lambda table, warehouse, folder, sessions: written_by_engine(_by(table.to_pandas), warehouse, REF),
    "pandas of Arrow types": lambda table, warehouse, folder, sessions: written_by_engine(
        _by(lambda: table.to_pandas(types_mapper=pd.ArrowDtype)), warehouse, REF
    ),
    "Polars": lambda table, warehouse, folder, sessions: written_by_engine(
        _by(lambda: pl.from_arrow(table)), warehouse, REF
    ),
    "JVM": _by_spark("JVM"),
    "Sail": _by_spark("Sail"),
    "file of Arrow": _file_by(pq.write_table),
    "file of pandas": _file_by(lambda table, path: table.to_pandas().to_parquet(path)),
    "file of Polars": _file_by(lambda table, path: pl.DataFrame(pl.from_arrow(table)).write_parquet(path)),
    "file with INT96": _file_by(
        lambda table, path: pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=False)
    ),
    "file without statistics": _file_by(
        lambda table, path: pq.write_table(
            table, path, version="1.0", store_schema=False, write_statistics=False, use_dictionary=False
        )
    ),
}


def expected_of(writer: str, table: pa.Table) -> list[Any]:
    """What the writer's own library has in the column."""
    if writer in ("pandas", "file of pandas"):
        table = pa.table({"c": pa.array(table.to_pandas()["c"], from_pandas=True)})
    elif writer.endswith("Polars"):
        table = pl.from_arrow(table).to_arrow()
    return [plain(value) for value in table["c"].to_pylist()]


def readers(sessions: dict[str, Any]) -> dict[str, Callable[[Warehouse, Manifest], list[Any]]]:
    def of_spark(session: Any, where: str | None = None) -> Callable[[Warehouse, Manifest], list[Any]]:
        def read(warehouse: Warehouse, manifest: Manifest) -> list[Any]:
            frame = read_instances(session, warehouse, [manifest])
            found = frame if where is None else filtered(frame, filter_in(session, where))
            return _in_order(found.toArrow())

        return read

    return {
        "Arrow": lambda warehouse, manifest: _in_order(read_arrow(warehouse, [manifest])),
        "Polars": lambda warehouse, manifest: _in_order(
            from_arrow(read_arrow(warehouse, [manifest]), FrameKind.POLARS).to_arrow()
        ),
        "pandas": lambda warehouse, manifest: [
            plain(of_pandas(value))
            for value in from_arrow(read_arrow(warehouse, [manifest]), FrameKind.PANDAS).sort_values("id")["c"]
        ],
        "where": lambda warehouse, manifest: _in_order(
            read_arrow(warehouse, [manifest], where=parsed_filter("id >= 0"))
        ),
        "JVM": of_spark(sessions["JVM"]),
        "JVM where": of_spark(sessions["JVM"], "id >= 0"),
        "Sail": of_spark(sessions["Sail"]),
    }


def published(world: PublishedWorld, manifest: Manifest, expected: list[Any]) -> list[Any]:
    """The values in the table of the only partition; the expected ones if it cannot be published."""
    uri = world.warehouse.manifest_path(REF, manifest.instance_uuid)
    if not os.path.exists(uri):
        write_manifest(world.warehouse, manifest)
    fact = manifest_fact(manifest, uri)
    world.handle(ArriveLots(arrivals=(Arrival(job_run_id=manifest.job_run, ref=REF, origin="drawn", manifest=fact),)))
    try:
        world.publish()
    except Refused:
        return expected
    if world.spec.table.format is TableFormat.DELTA:
        return _in_order(DeltaTable(world.warehouse.dataset_dir(world.asset)).to_pyarrow_table())
    found = _in_order(iceberg_table(world).scan().to_arrow())
    return expected if _without_empty(found) == _without_empty(expected) else found


def _without_empty(value: Any) -> Any:
    """PyIceberg reads a null list of structs as an empty one."""
    if isinstance(value, dict):
        return {key: _without_empty(inside) for key, inside in value.items()}
    return [_without_empty(inside) for inside in value] or None if isinstance(value, list | tuple) else value


def _in_order(table: pa.Table) -> list[Any]:
    # A table has no column of which no type is known yet.
    return [plain(row.get("c")) for row in sorted(table.to_pylist(), key=lambda row: row["id"])]


@pytest.mark.long("only Spark and Sail read what they are given")
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(column=columns(), writer=st.sampled_from(list(WRITERS)), published_as=st.sampled_from(TABLES))
def test_a_value_is_what_was_written_or_is_refused(
    sessions: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    column: pa.Array,
    writer: str,
    published_as: TableSpec | None,
) -> None:
    folder = tmp_path_factory.mktemp("values")
    warehouse = Warehouse(str(folder / "warehouse"))
    table = pa.table({"id": pa.array(range(len(column))), "c": column})
    try:
        manifest = WRITERS[writer](table, warehouse, folder, sessions)
    except (Refused, NotItsType):
        return
    expected = expected_of(writer, table)
    if "file" not in writer:
        assert hash_of_written(warehouse, manifest) is not None

    found = {name: read(warehouse, manifest) for name, read in readers(sessions).items() if (writer, name) not in APART}
    # PyIceberg reads INT96 as nanoseconds, which do not reach every year; of other readers, the file is what it was.
    is_out_of_reach = (
        writer == "file with INT96" and published_as is not None and published_as.format is TableFormat.ICEBERG
    )
    if published_as is not None and not is_out_of_reach:
        world = PublishedWorld(folder, published_as, keys=())
        found["table"] = published(world, manifest, expected)

    # pandas has one null, which is a float, too.
    assert [loose(value) for value in found.pop("pandas")] == [loose(value) for value in expected]
    assert found == dict.fromkeys(found, expected)
