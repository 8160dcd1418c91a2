"""A column, or a part of one, that has no value yet fits every type, in any order of the days, for every reader."""

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from databuild_dagster.spark.frames import read_arrow, read_instances
from databuild_dagster.spark.keyed import read_keyed, read_keyed_arrow
from databuild_dagster.spark.memory_frames import FrameKind, from_arrow
from databuild_dagster.spark.schemas import united_schema, why_not_fitting
from tests.support.instances import write_instance

#: By name: the value of a day that has none, that of another day, and the type of both.
LACKS = {
    "number": (None, 1.5, "double"),
    "decimal": (None, Decimal("9.90"), "decimal(3,2)"),
    "time": (None, datetime(2013, 1, 1, 12, tzinfo=UTC), "timestamp"),
    "bytes": (None, b"x", "binary"),
    "list": (None, ["a"], "array<string>"),
    "struct": (None, {"a": 1}, "struct<a:bigint>"),
    "empty list": ([], ["a"], "array<string>"),
    "empty list of structs": ([], [{"a": 1}], "array<struct<a:bigint>>"),
    "empty inner list": ([[]], [[1]], "array<array<bigint>>"),
    "member": ({"a": None, "b": 1}, {"a": 1.5, "b": 2}, "struct<a:double,b:bigint>"),
}


def table(number, value):
    return pa.table({"id": [number], "fee": [value]})


@pytest.fixture(params=LACKS)
def lack(request):
    return LACKS[request.param]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 1)], ids=str)
def test_instances_without_a_value_unite_with_those_that_have_one(warehouse, write, lack, order):
    values = [lack[place] for place in order]
    manifests = [write(table(number, value)) for number, value in enumerate(values)]

    read = read_arrow(warehouse, manifests)

    assert united_schema(manifests)["fee"].dataType.simpleString() == lack[2]
    assert sorted(read.to_pylist(), key=lambda row: row["id"]) == [
        {"id": number, "fee": value} for number, value in enumerate(values)
    ]
    assert {why_not_fitting(one.schema, manifests[0].schema) for one in manifests} == {None}


def test_a_later_day_without_a_value_has_the_known_type(write, warehouse, lack):
    known = write(table(1, lack[1]))

    later = write_instance(
        table(2, lack[0]),
        warehouse,
        ref="flights@2013-01-02",
        uuid="5e0002a1-0f3d-bd95-db63-b1ac4bedec0f",
        job_run="j",
        known=lambda: known.schema,
    )

    assert later.schema == known.schema


def test_spark_reads_them_as_one(spark, warehouse, write, lack, tmp_path):
    manifests = [write(table(number, value)) for number, value in enumerate(lack[:2])]

    read = read_instances(spark, warehouse, manifests).toArrow().to_pylist()
    keyed = {str(number): [manifest] for number, manifest in enumerate(manifests)}
    with_keys = read_keyed(spark, warehouse, keyed, str(tmp_path / "links")).toArrow().to_pylist()

    expected = [{"id": number, "fee": value} for number, value in enumerate(lack[:2])]
    assert sorted(read, key=lambda row: row["id"]) == expected
    assert sorted(with_keys, key=lambda row: row["id"]) == [row | {"partition_key": str(row["id"])} for row in expected]
    assert read_keyed_arrow(warehouse, keyed).to_pylist() == [
        row | {"partition_key": str(row["id"])} for row in expected
    ]


def test_a_frame_of_nothing_else_than_nan_unites_with_days(spark, warehouse, write):
    manifests = [write(pd.DataFrame({"fee": [np.nan]})), write(pa.table({"fee": [datetime(2013, 1, 1).date()]}))]

    read = read_instances(spark, warehouse, manifests)

    assert read.dtypes == [("fee", "date")]
    assert sorted(map(str, (row.fee for row in read.collect()))) == ["2013-01-01", "None"]


def test_a_day_without_a_value_is_read_alone_as_text(spark, warehouse, write):
    manifest = write(table(1, None))

    assert read_instances(spark, warehouse, [manifest]).dtypes == [("id", "bigint"), ("fee", "string")]
    assert read_arrow(warehouse, [manifest]).to_pylist() == [{"id": 1, "fee": None}]
    assert [column.type for column in manifest.schema.columns] == ["long", "void"]


def test_spark_writes_a_column_that_has_no_type(spark, warehouse, write):
    first, then = (
        write(spark.sql("select 1L as id, null as fee, array() as tags")),
        write(spark.sql("select 2L as id, 1.5D as fee, array('a') as tags")),
    )

    read = read_instances(spark, warehouse, [first, then]).sort("id")

    assert read.dtypes == [("id", "bigint"), ("fee", "double"), ("tags", "array<string>")]
    assert [tuple(row) for row in read.collect()] == [(1, None, []), (2, 1.5, ["a"])]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"fee": [None]}),
        pd.DataFrame({"fee": [np.nan]}),
        pd.DataFrame({"fee": pd.Series([None], dtype="category")}),
        pd.DataFrame({"fee": pd.Series([], dtype=object)}),
        pl.DataFrame({"fee": [None]}),
        pa.table({"fee": pa.nulls(1)}),
    ],
    ids=["None", "NaN", "category", "no rows", "Polars", "Arrow"],
)
def test_a_frame_of_nothing_else_fits_texts(warehouse, write, frame):
    blank, texts = write(frame), write(pd.DataFrame({"fee": ["a"]}))

    assert united_schema([blank, texts]).simpleString() == "struct<fee:string>"
    assert why_not_fitting(texts.schema, blank.schema) is None
    assert read_arrow(warehouse, [blank, texts])["fee"].to_pylist()[-1] == "a"


def test_floats_of_pandas_without_a_number_stay_floats_alone(warehouse, write):
    manifest = write(pd.DataFrame({"id": [1], "fee": [np.nan]}))

    frame = from_arrow(read_arrow(warehouse, [manifest]), FrameKind.PANDAS)

    assert str(frame["fee"].dtype) == "float64"


def test_no_file_has_a_column_without_a_type(warehouse, write):
    """Engines that read published tables take a lacking column for nulls, and would refuse one of another type."""
    manifest = write(table(1, None))

    (path,) = (file.uri for file in manifest.files)

    assert pq.read_schema(f"{warehouse.instance_dir('flights', manifest.instance_uuid)}/{path}").names == ["id"]
