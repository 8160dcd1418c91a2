"""Files that others have written, listed by their whole path, are read as our own are."""

from datetime import datetime
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.spark.errors import UnreadableColumn
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.spark.keyed import read_keyed, read_keyed_arrow
from databuild_dagster.spark.schemas import columns_of
from databuild_dagster.warehouse.files import describe_each, find_files
from databuild_dagster.warehouse.manifest import (
    read_manifest,
    write_manifest,
)
from tests.support.instances import landed_manifest

NOON = datetime(2013, 1, 1, 12)


def listed(warehouse, pattern, ref="flights@2013-01-01"):
    """A manifest of what matches, written and read back."""
    found = describe_each(find_files(str(pattern)))
    manifest = landed_manifest(found, ref=ref)
    write_manifest(warehouse, manifest)
    return read_manifest(warehouse, "flights", manifest.instance_uuid)


@pytest.fixture
def theirs(tmp_path):
    """As pandas writes it, in a folder that Spark would take for a pattern."""
    folder = tmp_path / "their [data]"
    folder.mkdir()
    table = pa.table(
        {
            "n": pa.array([1, 2], pa.uint8()),
            "carrier": pa.array(["AA", "BB"]).dictionary_encode(),
            "at": pa.array([NOON, NOON], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, folder / "theirs.parquet")
    return tmp_path / "their [[]data]" / "*.parquet"


def test_spark_reads_them_beside_ours_with_the_same_types(spark, warehouse, write, theirs):
    ours = write(pd.DataFrame({"n": pd.array([3], "int16"), "carrier": ["CC"], "at": [NOON]}), ref="flights@2013-01-02")

    frame = read_instances(spark, warehouse, [listed(warehouse, theirs), ours])

    assert [field.dataType.simpleString() for field in frame.schema] == ["smallint", "string", "timestamp"]
    rows = [(row.n, row.carrier, row.at.hour) for row in frame.orderBy("n").collect()]
    assert rows == [(1, "AA", 12), (2, "BB", 12), (3, "CC", 12)]


@pytest.mark.parametrize("with_links", [True, False], ids=["links", "no links"])
def test_each_row_has_the_key_it_serves(spark, warehouse, write, theirs, tmp_path, with_links):
    ours = write(pd.DataFrame({"n": pd.array([3], "int16"), "carrier": ["CC"], "at": [NOON]}))
    keyed = {"a": [listed(warehouse, theirs)], "b": [ours]}
    folder = str(tmp_path / "links") if with_links else None

    rows = read_keyed(spark, warehouse, keyed, folder).select("n", "partition_key").collect()
    frame = read_keyed_arrow(warehouse, keyed).to_pandas()

    assert sorted(map(tuple, rows)) == [(1, "a"), (2, "a"), (3, "b")]
    assert list(zip(frame["n"], frame["partition_key"], strict=True)) == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.parametrize("with_links", [True, False], ids=["links", "no links"])
def test_decimals_of_different_widths_have_the_keys_that_they_serve(spark, warehouse, write, tmp_path, with_links):
    keyed = {key: [write(pd.DataFrame({"n": [Decimal(key)]}))] for key in ("9.99", "12.5")}

    frame = read_keyed(spark, warehouse, keyed, str(tmp_path / "links") if with_links else None)

    assert frame.schema["n"].dataType.simpleString() == "decimal(4,2)"
    assert sorted(map(tuple, frame.collect())) == [(Decimal("9.99"), "9.99"), (Decimal("12.50"), "12.5")]


@pytest.mark.parametrize(
    ("data_type", "why"),
    [
        (pa.timestamp("ns"), "Spark reads no nanoseconds"),
        (pa.list_(pa.timestamp("ns", "UTC")), "Spark reads no nanoseconds"),
        (pa.duration("us"), "Spark does not read it"),
        (pa.time64("us"), "Spark does not read it"),
        (pa.float16(), "Spark has no number of 2 bytes"),
    ],
)
def test_a_column_that_spark_cannot_read_is_named(data_type, why):
    with pytest.raises(UnreadableColumn, match=f"Column 'c' is .*, and {why}"):
        columns_of(pa.schema([pa.field("n", pa.int64()), pa.field("c", data_type)]))
