"""The content hash of written files is the hash of their rows, and unknown if it cannot be computed (rule 4.8)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from databuild_dagster.features.compare.content_hash import hash_of
from databuild_dagster.features.same_data.written_rows import hash_of_written
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Column, FileEntry, Manifest, TableSchema, UriType
from tests.support.parquet_rows import make_manifest

ROWS = pa.table({"shop": ["a", "b", None], "sum": [1.5, None, 2.0]})


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path))


def written(warehouse: Warehouse, *tables: pa.Table) -> Manifest:
    entries = []
    for number, table in enumerate(tables):
        path = Path(warehouse.root) / f"part-{number}.parquet"
        pq.write_table(table, path)
        entries.append(FileEntry(str(path), path.stat().st_size, table.num_rows, ""))
    return make_manifest("sales", "job-run", tuple(entries), tables[0].schema, UriType.IDENTIFIER)


def test_the_hash_is_that_of_the_rows_in_any_number_of_files(warehouse: Warehouse) -> None:
    found = hash_of_written(warehouse, written(warehouse, ROWS.slice(2), ROWS.slice(0, 2)))

    assert found == str(hash_of(ROWS.to_batches()))


def test_no_rows_of_other_columns_have_another_hash(warehouse: Warehouse) -> None:
    empty = replace(written(warehouse, ROWS), files=())
    other = replace(empty, schema=TableSchema((Column("shop", "string", True),)))

    assert hash_of_written(warehouse, empty) == hash_of_written(warehouse, empty)
    assert hash_of_written(warehouse, empty) != hash_of_written(warehouse, other)


@pytest.mark.parametrize(
    ("rows", "type"),
    [
        (pa.array([None], pa.string()), "void"),
        (pa.array([[]], pa.list_(pa.string())), '{"type":"array","elementType":"void","containsNull":true}'),
        (pa.array([7], pa.int64()), "interval day to second"),
    ],
    ids=["a column without a type", "lists without an item", "an interval"],
)
def test_a_type_that_is_not_in_the_files_makes_another_hash(warehouse: Warehouse, rows: pa.Array, type: str) -> None:
    as_stored = written(warehouse, pa.table({"note": rows}))
    other = replace(as_stored, schema=TableSchema((Column("note", type, True),)))

    assert hash_of_written(warehouse, as_stored) != hash_of_written(warehouse, other)


def test_files_that_cannot_be_read_have_no_hash(warehouse: Warehouse) -> None:
    manifest = written(warehouse, ROWS)
    Path(manifest.files[0].uri).write_bytes(b"no parquet")

    assert hash_of_written(warehouse, manifest) is None


def test_files_with_other_rows_than_the_manifest_says_have_no_hash(warehouse: Warehouse) -> None:
    manifest = written(warehouse, ROWS)
    wrong = replace(manifest, files=(replace(manifest.files[0], rows=2),))

    assert hash_of_written(warehouse, wrong) is None
