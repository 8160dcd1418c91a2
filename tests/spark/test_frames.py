"""Frames to instances and back."""

import os
import shutil
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from databuild_dagster.spark.errors import NoSchema, NotAFrame, SchemasDiffer, UnsupportedColumn
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.frames import (
    ONE_TASK_BYTES,
    ONE_TASK_FILES,
    in_one_task,
    load_keyed,
    read_arrow,
    read_instances,
)
from databuild_dagster.spark.schemas import united_schema
from databuild_dagster.spark.staging import files_wanted
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.store import open_store
from databuild_dagster.warehouse.errors import DiskTrouble
from databuild_dagster.warehouse.manifest import ManifestState, missing_files, read_manifest
from tests.spark.sorted_rows import rows

EVERYTHING = """
    select 1 as i, 2L as l, 1.5D as d, cast(2.50 as decimal(9, 2)) as dec, 'x' as s, true as b,
    date'2013-01-01' as day, timestamp'2013-01-01 10:00:00' as at, timestamp_ntz'2013-01-01 10:00:00' as wall,
    array(1, 2) as a, map('k', 1) as m, named_struct('x', 1, 'y', 'z') as st, cast('bytes' as binary) as bin
"""


def test_what_was_written_is_read_with_every_type(spark, warehouse, write):
    frame = spark.sql(EVERYTHING)

    manifest = write(frame)
    read = read_instances(spark, warehouse, [manifest])

    assert read.collect() == frame.collect()
    assert read.dtypes == frame.dtypes
    assert manifest.state == ManifestState.COMPLETE
    assert manifest.rows == 1
    assert read_manifest(warehouse, "flights", manifest.instance_uuid) == manifest
    assert missing_files(warehouse, manifest) == ()


def test_a_frame_without_rows_is_an_empty_instance_with_its_columns(spark, warehouse, write):
    manifest = write(spark.sql(EVERYTHING).where("i > 1"))

    read = read_instances(spark, warehouse, [manifest])

    assert (manifest.state, manifest.files) == (ManifestState.EMPTY, ())
    assert read.collect() == []
    assert read.dtypes == spark.sql(EVERYTHING).dtypes
    assert list(read_arrow(warehouse, [manifest]).to_pandas().columns) == read.columns


def test_several_instances_are_one_frame_and_empty_ones_add_nothing(spark, warehouse, write):
    some, none, more = write(spark.range(2)), write(spark.range(0)), write(spark.range(5, 7))

    read = read_instances(spark, warehouse, [some, none, more])

    assert rows(read) == [(0,), (1,), (5,), (6,)]


def test_files_that_the_manifest_does_not_list_change_no_answer(spark, warehouse, write):
    manifest = write(spark.range(3))
    folder = Path(warehouse.instance_dir("flights", manifest.instance_uuid))
    (folder / "_SUCCESS").touch()
    (folder / "part-99999-stray.snappy.parquet").write_bytes(next(folder.glob("part-*.parquet")).read_bytes())

    read = read_instances(spark, warehouse, [manifest])

    assert rows(read) == [(0,), (1,), (2,)]


def test_a_frame_that_fails_leaves_no_manifest_and_nothing_staged(spark, warehouse, write):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own
        write(spark.sql("select raise_error('bad day') as x"))

    assert "bad day" in explain_failure(caught.value)
    assert not is_transient(caught.value)
    assert list(Path(warehouse.root).rglob("*")) == [Path(warehouse.root) / ".staging"]


def test_a_column_that_came_later_is_null_before(spark, warehouse, write):
    old, new = write(spark.range(1)), write(spark.sql("select 1L as id, 'x' as note"))

    read = read_instances(spark, warehouse, [old, new])

    assert set(map(tuple, read.collect())) == {(0, None), (1, "x")}


def test_a_column_that_became_wider_is_read_wide(spark, warehouse, write):
    old, new = write(spark.sql("select 1 as n")), write(spark.sql("select 5000000000L as n"))

    read = read_instances(spark, warehouse, [old, new])

    assert rows(read) == [(1,), (5000000000,)]


DECIMALS = [Decimal("9.99"), Decimal("-12345678901234567890.1"), Decimal("0.00001")]


def test_decimals_of_different_widths_are_read_as_one_that_holds_all(spark, warehouse, write):
    """pandas and Arrow give a decimal the width of its largest value, which differs from day to day."""
    manifests = [write(pd.DataFrame({"n": [value]})) for value in DECIMALS]

    read = read_instances(spark, warehouse, manifests)

    assert read.dtypes == [("n", "decimal(25,5)")]
    assert sorted(value for (value,) in rows(read)) == sorted(DECIMALS)
    assert sorted(read_arrow(warehouse, manifests).column("n").to_pylist()) == sorted(DECIMALS)


def test_columns_that_cannot_be_one_are_named_with_their_instances(write):
    old, new = write(pa.table({"n": pa.array([1], pa.int32())})), write(pa.table({"n": ["x"]}))

    with pytest.raises(SchemasDiffer, match=f"'n' is int in instance {old.instance_uuid} and string in"):
        united_schema([old, new])


def test_nothing_to_read_needs_a_schema(spark, warehouse):
    with pytest.raises(NoSchema):
        read_instances(spark, warehouse, [])

    assert read_instances(spark, warehouse, [], schema=spark.range(1).schema).count() == 0


def test_pandas_is_written_without_spark_as_spark_would_have_written_it(spark, warehouse, write):
    frame = pd.DataFrame(
        {
            "n": [1, 2],
            "x": [1.5, None],
            "s": ["a", None],
            "at": pd.to_datetime(["2013-01-01 10:00", None]),
            "day": [date(2013, 1, 1), None],
            "kind": pd.Categorical(["a", "b"]),
            "nothing": [None, None],
        }
    )

    read = read_instances(spark, warehouse, [write(frame)])

    assert dict(read.dtypes) == dict(spark.createDataFrame(frame.drop(columns=["kind", "nothing"])).dtypes) | {
        "kind": "string",
        "nothing": "string",
    }
    assert [tuple(row) for row in read.orderBy("n").collect()] == [
        (1, 1.5, "a", datetime(2013, 1, 1, 10), date(2013, 1, 1), "a", None),
        (2, None, None, None, None, "b", None),
    ]


def test_a_pandas_index_that_has_a_name_is_a_column_and_others_are_none(warehouse, write):
    sales = pd.DataFrame({"shop": ["b", "a", "b"], "day": [1, 1, 2], "amount": [1, 2, 4]})

    def columns(frame):
        return read_arrow(warehouse, [write(frame)]).to_pandas().to_dict("list")

    assert columns(sales.groupby("shop").sum()[["amount"]]) == {"shop": ["a", "b"], "amount": [2, 5]}
    assert columns(sales.groupby(["shop", "day"]).sum().head(1)) == {"shop": ["a"], "day": [1], "amount": [2]}
    assert columns(sales[sales.amount > 1][["amount"]]) == {"amount": [2, 4]}
    with pytest.raises(UnsupportedColumn, match="amount, already exists"):
        write(sales.set_index("amount", drop=False))


def test_what_is_no_frame_and_what_spark_cannot_hold_is_refused(write):
    with pytest.raises(NotAFrame, match=r"flights@2013-01-01 was given a list, .* Return a Spark DataFrame"):
        write([1, 2])
    with pytest.raises(UnsupportedColumn, match="cannot be written"):
        write(pd.DataFrame({"x": [1, "a"]}))


def test_a_missing_column_is_named_with_the_existing_ones(spark, warehouse, write):
    manifest = write(spark.sql("select 1 as carrier"))

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own
        read_instances(spark, warehouse, [manifest]).groupBy("carier").agg(F.count("*")).collect()

    assert explain_failure(caught.value).startswith("There is no column `carier`; there is `carrier`")
    assert not is_transient(caught.value)


def test_a_listed_file_that_is_gone_is_named(spark, warehouse, write):
    manifest = write(spark.range(3), coalesce=1)
    (gone,) = Path(warehouse.instance_dir("flights", manifest.instance_uuid)).glob("part-*.parquet")
    gone.unlink()

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own
        read_instances(spark, warehouse, [manifest]).collect()

    assert gone.name in explain_failure(caught.value)
    assert explain_failure(caught.value).startswith("There is no file")


def test_an_error_in_a_python_function_keeps_its_own_words(spark):
    @F.udf("int")
    def fails(number):
        raise ValueError(f"bad number {number}")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own
        spark.range(1).select(fails("id")).collect()

    assert "ValueError: bad number 0" in explain_failure(caught.value)
    assert not is_transient(caught.value)


def test_an_error_that_is_not_sparks_is_shown_by_its_first_line():
    assert explain_failure(ValueError("no such day\nmore")) == "ValueError: no such day"
    assert not is_transient(ConnectionRefusedError("Connection refused"))


def test_a_call_that_cannot_reach_the_build_state_is_retried(tmp_path):
    """Rule 6.8"""
    with pytest.raises(StoreUnusable) as caught:
        open_store(f"postgresql+psycopg://postgres@/postgres?host={tmp_path}")

    assert is_transient(caught.value)


def test_little_input_asks_for_one_file_and_much_leaves_it_to_spark(write):
    small = write(pa.table({"n": [1]}))
    (file, *_) = small.files
    large = msgspec.structs.replace(small, files=(msgspec.structs.replace(file, bytes=10**9),))

    assert files_wanted([small, small]) == 1
    assert files_wanted([small, large]) is None
    assert files_wanted([]) is None


@pytest.mark.parametrize(
    ("n_files", "n_bytes", "tasks"),
    [
        (31, 2_000_000, 1),
        (ONE_TASK_FILES, ONE_TASK_BYTES, 1),
        (31, ONE_TASK_BYTES + 1, 2),
        (ONE_TASK_FILES + 1, 1000, 2),
    ],
)
def test_small_inputs_are_read_in_one_task(spark, write, n_files, n_bytes, tasks):
    manifest = write(pa.table({"n": [1]}))
    (file,) = manifest.files
    files = [
        msgspec.structs.replace(file, bytes=n_bytes - n_files + 1),
        *[msgspec.structs.replace(file, bytes=1)] * (n_files - 1),
    ]
    frame = spark.range(2, numPartitions=2)

    found = in_one_task(frame, [msgspec.structs.replace(manifest, files=tuple(files))])

    assert found.selectExpr("spark_partition_id()").distinct().count() == tasks


def test_a_warehouse_that_disappears_as_spark_writes_leaves_no_manifest_and_says_so(spark, warehouse, write):
    root = warehouse.root
    write(spark.range(1))

    def remove_it(rows):
        shutil.rmtree(root)
        yield from rows

    with pytest.raises(DiskTrouble, match="could not be listed: no such file or directory. Check the disk") as caught:
        write(spark.range(3).coalesce(1).mapInPandas(remove_it, "id long"), ref="flights@2013-01-02")

    assert is_transient(caught.value)
    assert list(Path(root).rglob("manifest.json")) == []


def test_the_file_of_a_row_is_its_key_for_any_path(spark, tmp_path):
    """A plan with a relation for each of 1,000 keys would take minutes on a JVM."""
    paths = [str(tmp_path / folder / "a.parquet") for folder in ("a b+c", "%41=é", "[x]{y}*,;~'()&$@!#")]
    for number, path in enumerate(paths):
        os.makedirs(os.path.dirname(path))
        pq.write_table(pa.table({"n": [number]}), path)
    schema = StructType([StructField("n", LongType())])
    keyed = {"first": {"parquet": paths[:2]}, "second": {"parquet": paths[1:]}, "nothing": {}}

    joined = load_keyed(spark, schema, keyed, "key", names_files=True)

    assert joined.columns == ["n", "key"]
    expected = [("first", 0), ("first", 1), ("second", 1), ("second", 2)]
    assert sorted((row.key, row.n) for row in joined.collect()) == expected
