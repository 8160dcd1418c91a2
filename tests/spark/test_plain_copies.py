"""Files of other programs that Spark would not read as what their manifest says are read from a copy that it does."""

import os
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.model.refs import parse_ref
from databuild_dagster.spark.frames import read_arrow, read_instances
from databuild_dagster.spark.plain_copies import readable_paths
from databuild_dagster.spark.schemas import columns_of, united_columns
from databuild_dagster.warehouse.files import describe_each, find_files
from databuild_dagster.warehouse.layout import Warehouse
from tests.spark.sorted_rows import rows
from tests.support.instances import landed_manifest

REF = parse_ref("flights@2013-01-01")
#: Files that a JVM reads by itself, and Sail does not.
OF_ARROW = {
    "long list": pa.array([["a"], []], pa.large_list(pa.string())),
    "list of one length": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    "category": pa.array(["x", "y"]).dictionary_encode(),
    "date in milliseconds": pa.array([0, 86_400_000], pa.date64()),
    "member": pa.array([{"a": ["x"]}, None], pa.struct([("a", pa.large_list(pa.large_string()))])),
}
PLAIN = {
    "long text": pa.array(["x", "y"], pa.large_string()),
    "unsigned": pa.array([1, 2], pa.uint32()),
    "milliseconds": pa.array([1, 2], pa.timestamp("ms")),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABUILD_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def landed(tmp_path):
    """An instance of files of these tables, as an arrival records it."""

    def landed(*tables):
        os.makedirs(tmp_path / "landing")
        for number, table in enumerate(tables):
            pq.write_table(table, tmp_path / "landing" / f"{number}.parquet")
        described = describe_each(find_files(str(tmp_path / "landing" / "*.parquet")))
        schema = reduce(united_columns, [columns_of(file.schema) for file in described])
        return landed_manifest(described, ref=REF, schema=schema)

    return landed


def paths_of(manifest, *, is_sail):
    return readable_paths(manifest, [file.uri for file in manifest.files], is_sail=is_sail)


@pytest.mark.parametrize("values", OF_ARROW.values(), ids=OF_ARROW)
def test_sail_gets_a_copy_with_the_types_of_the_manifest(landed, values, tmp_path):
    manifest = landed(pa.table({"c": values}))

    (copy,) = paths_of(manifest, is_sail=True)

    assert copy.startswith(str(tmp_path / "cache"))
    assert pq.read_table(copy)["c"].to_pylist() == values.to_pylist()
    assert columns_of(pq.read_schema(copy)) == manifest.schema
    assert paths_of(manifest, is_sail=True) == [copy]
    assert paths_of(manifest, is_sail=False) == [manifest.files[0].uri]


@pytest.mark.parametrize("values", PLAIN.values(), ids=PLAIN)
def test_a_file_that_every_spark_reads_is_not_copied(landed, values):
    manifest = landed(pa.table({"c": values}))

    assert paths_of(manifest, is_sail=True) == [manifest.files[0].uri]


def test_a_rewritten_file_has_another_copy(landed, tmp_path):
    manifest = landed(pa.table({"c": OF_ARROW["long list"]}))
    (before,) = paths_of(manifest, is_sail=True)

    os.rename(tmp_path / "landing", tmp_path / "earlier")
    (after,) = paths_of(landed(pa.table({"c": pa.array([["b"]], pa.large_list(pa.string()))})), is_sail=True)

    assert after != before
    assert pq.read_table(after)["c"].to_pylist() == [["b"]]


UNLIKE = {
    "void, then number": (pa.nulls(1), pa.array([1.5]), "double"),
    "text, then void": (pa.array(["x"]), pa.nulls(1), "string"),
    "void alone": (pa.nulls(1), pa.nulls(1), "string"),
    "empty lists, then structs": (
        pa.array([[]], pa.list_(pa.null())),
        pa.array([[{"a": 1}]]),
        "array<struct<a:bigint>>",
    ),
    "decimals": (pa.array([Decimal("1.5")]), pa.array([Decimal("22.25")]), "decimal(4,2)"),
}


@pytest.mark.parametrize(("one", "other", "expected"), UNLIKE.values(), ids=UNLIKE)
def test_files_of_one_lot_whose_types_only_seem_to_differ_are_one(spark, landed, tmp_path, one, other, expected):
    manifest = landed(pa.table({"id": [1], "c": one}), pa.table({"id": [2], "c": other}))
    warehouse = Warehouse(str(tmp_path / "warehouse"))

    read = read_instances(spark, warehouse, [manifest])

    assert read.dtypes == [("id", "bigint"), ("c", expected)]
    values = [one[0].as_py(), other[0].as_py()]
    assert [row["c"] for row in sorted(read.toArrow().to_pylist(), key=lambda row: row["id"])] == values
    assert read_arrow(warehouse, [manifest])["c"].to_pylist() == values


def test_a_category_is_read_as_its_values_by_a_jvm_without_a_copy(spark, landed, tmp_path):
    manifest = landed(pa.table({"c": OF_ARROW["category"]}))

    assert rows(read_instances(spark, Warehouse(str(tmp_path / "warehouse")), [manifest])) == [("x",), ("y",)]
