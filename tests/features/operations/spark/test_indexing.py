"""Figures of real files; for every filter, skipped files change no answer (rule 9.8)."""

import os
from contextlib import suppress

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databuild_dagster.features.operations.spark.indexing import CannotIndex, file_figures, indexable
from databuild_dagster.spark.frames import read_instances
from databuild_dagster.warehouse.file_index import (
    FileIndex,
    FilesRead,
    InstanceIndex,
    index_path,
    narrowed,
    read_index,
    write_index,
)
from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.filters import BadFilter, ColumnFigures, matching_rows, parsed_filter

#: What a careless index would get wrong: NaN, both zeros, nulls, texts whose order is not that of bytes, longs that
#: a double cannot hold, times around midnight, days long ago.
ROWS = """
    SELECT CAST(n AS BIGINT) AS n, CAST(d AS DOUBLE) AS d, CAST(d AS FLOAT) AS f, s, CAST(dec AS DECIMAL(9, 2)) AS dec,
        CAST(day AS DATE) AS day, CAST(day AS TIMESTAMP) + make_interval(0, 0, 0, 0, CAST(abs(CAST(n AS BIGINT) % 24) AS INT), 59, 59.999999) AS at,
        CAST(n AS BIGINT) % 2 = 0 AS flag
    FROM VALUES
        ('1', '0.5', 'AA', '1.50', '2013-01-01'), ('2', 'NaN', 'aa', '2', '2013-01-01'),
        (NULL, NULL, NULL, NULL, NULL),
        ('3', '-0.0', 'Z', '-1', '1582-10-04'), ('4', '0.0', 'Ä', '0', '1900-01-01'),
        ('5', '0.1', '', '0.01', '2013-12-31'),
        ('9007199254740993', 'Infinity', '𝄞', '9999999.99', '9999-12-31'),
        ('-9007199254740993', '-Infinity', '￿', '-9999999.99', '0001-01-01'),
        ('6', '1e300', 'it''s', '3', '2013-06-01'), ('7', '-1e-300', 'a b', '3', '2013-06-02')
    AS t(n, d, s, dec, day)
"""
FILES = 10
MANY = 600 if os.environ.get("DATABUILD_LONG") else 15


@pytest.fixture
def manifest(spark, write):
    """Each row in a file of its own, and one file with two."""
    return write(spark.sql(ROWS).repartition(FILES, "n"))


def index(spark, warehouse, manifest):
    """Of all columns, beside the manifest."""
    types = indexable([manifest])
    figures = file_figures(spark, warehouse, [manifest], types)[manifest.instance_uuid]
    written = InstanceIndex(instance_uuid=manifest.instance_uuid, types=types, files=figures)
    write_index(warehouse, manifest.dataset, written)
    assert read_index(warehouse, manifest.dataset, manifest.instance_uuid) == written
    assert figures.keys() == {file.uri for file in manifest.files}


@pytest.fixture
def indexed(spark, warehouse, manifest):
    index(spark, warehouse, manifest)
    return manifest


def test_figures_are_those_of_each_file(spark, warehouse, write):
    """Rule 9.8"""
    manifest = write(spark.sql("SELECT id, if(id = 3, NULL, 'x') AS s FROM range(0, 8, 1, 2)"))

    figures = file_figures(spark, warehouse, [manifest], indexable([manifest]))[manifest.instance_uuid]

    assert sorted(figures.values(), key=lambda file: file.columns["id"].min) == [
        FileIndex(
            next(file.checksum for file in manifest.files if figures[file.uri].columns["id"].min == low),
            4,
            {
                "id": ColumnFigures(nulls=0, distinct=4, min=low, max=high),
                "s": ColumnFigures(nulls=nulls, distinct=1, min="x", max="x"),
            },
        )
        for low, high, nulls in (("0", "3", 1), ("4", "7", 0))
    ]
    assert set(figures) == {file.uri for file in manifest.files}


values = {
    "n": ["1", "2", "5", "-1", "9007199254740992", "9007199254740993", "9007199254740992e0", "1.5", "NULL"],
    "d": ["0.5", "0.0", "-0.0", "1e300", "0.1", "'NaN'", "double('NaN')", "double('Infinity')", "NULL"],
    "f": ["0.5", "0.1", "0.0", "1", "1e30", "float('NaN')"],
    "s": ["'AA'", "'aa'", "''", "'Ä'", "'𝄞'", "'￿'", "'it\\'s'", "'a b'", "NULL", "'zz'"],
    "dec": ["1.5", "1.500", "2", "0.005", "-9999999.99", "1e0", "123456789012345678901234567890.5"],
    "day": ["'2013-01-01'", "date '2013-12-31'", "'1582-10-04'", "'0001-01-01'", "timestamp '2013-06-01 00:00:00'"],
    "at": ["'2013-01-01'", "timestamp '2013-01-01 01:59:59.999999'", "'2013-06-01T06:59:59.999999Z'", "'9999-12-31'"],
    "flag": ["true", "false", "NULL"],
}


@st.composite
def comparisons(draw):
    column = draw(st.sampled_from(sorted(values)))
    value = st.sampled_from(values[column])
    match draw(st.sampled_from(["side", "side", "side", "between", "in", "null", "flipped"])):
        case "side":
            return f"{column} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=', '<=>', '==']))} {draw(value)}"
        case "flipped":
            return f"{draw(value)} {draw(st.sampled_from(['=', '<', '<=', '>', '>=']))} {column.upper()}"
        case "between":
            return f"{column} BETWEEN {draw(value)} AND {draw(value)}"
        case "in":
            return f"{column} IN ({', '.join(draw(st.lists(value, min_size=1, max_size=3)))})"
        case _:
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda part: f"({part[0]}) {part[1]} ({part[2]})"),
        inner.map(lambda part: f"NOT ({part})"),
    ),
    max_leaves=4,
)


@settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=conditions)
def test_passing_files_over_changes_no_answer(spark, warehouse, indexed, where):
    """Rule 9.8: against reading all of them, on data where a wrong index would."""
    from pyspark.errors import PySparkException

    whole = read_instances(spark, warehouse, [indexed])
    try:
        expected = sorted(map(str, whole.where(where).collect()))
    except PySparkException:
        # 'NaN' as a decimal, or the like: the reader gets an error, unless no row is looked at.
        return
    (kept,), files = narrowed(warehouse, [indexed], parsed_filter(where))

    found = sorted(map(str, read_instances(spark, warehouse, [kept], schema=whole.schema).where(where).collect()))

    assert found == expected
    assert files == FilesRead(len(kept.files), len(indexed.files))
    with suppress(BadFilter):
        # pandas understands less; what it understands, it answers alike.
        assert len(matching_rows(read_table(warehouse, [indexed]), parsed_filter(where))) == len(expected)


def test_a_selective_filter_leaves_the_files_that_matter(spark, warehouse, write):
    """Rule 9.8"""
    manifest = write(spark.range(0, 100, 1, 10).selectExpr("id"))
    index(spark, warehouse, manifest)

    (kept,), read = narrowed(warehouse, [manifest], parsed_filter("id BETWEEN 55 AND 57"))

    assert read == FilesRead(1, 10)
    assert read_instances(spark, warehouse, [kept]).where("id BETWEEN 55 AND 57").count() == 3


def test_an_index_that_is_torn_or_of_other_files_passes_nothing_over(warehouse, indexed):
    """Rule 9.8: truncated, of a newer version, something else; files are known by their checksum"""
    index = read_index(warehouse, indexed.dataset, indexed.instance_uuid)
    other = {uri: msgspec.structs.replace(file, checksum="other") for uri, file in index.files.items()}
    of_other_files = msgspec.json.encode(msgspec.structs.replace(index, files=other))

    for contents in (b"", b"{", b'{"index_version": 2, "more": []}', b"\xff", b"[]", of_other_files):
        warehouse.storage.replace(index_path(warehouse, indexed.dataset, indexed.instance_uuid), contents)

        (kept,), _ = narrowed(warehouse, [indexed], parsed_filter("n = 5"))

        assert kept == indexed, contents


def test_instances_are_looked_at_together_and_older_ones_may_have_fewer_columns(spark, warehouse, write):
    """Rule 9.8"""
    older, newer = (
        write(spark.sql("SELECT 1 AS i"), "flights@1"),
        write(spark.sql("SELECT 2L AS i, 'x' AS s"), "flights@2"),
    )
    types = indexable([older, newer])

    found = file_figures(spark, warehouse, [older, newer], types)

    assert types == {"i": "long", "s": "string"}
    ((of_older,), (of_newer,)) = (found[item.instance_uuid].values() for item in (older, newer))
    assert of_older.columns["i"] == ColumnFigures(nulls=0, distinct=1, min="1", max="1")
    assert of_older.columns["s"] == ColumnFigures(nulls=1, distinct=0)
    assert of_newer.columns["s"].max == "x"


def test_files_of_one_name_in_several_instances_are_distinguished(spark, warehouse, write):
    """Rule 9.8: as the instances of a batch have them, which one Spark job wrote"""
    one, other = write(spark.sql("SELECT 1 AS i"), "flights@1"), write(spark.sql("SELECT 2 AS i"), "flights@2")
    of_other = warehouse.instance_dir("flights", other.instance_uuid)
    os.rename(f"{of_other}/{other.files[0].uri}", f"{of_other}/{one.files[0].uri}")
    same = msgspec.structs.replace(other.files[0], uri=one.files[0].uri)
    manifests = [one, msgspec.structs.replace(other, files=(same,))]

    found = file_figures(spark, warehouse, manifests, indexable(manifests))

    assert [found[item.instance_uuid][same.uri].columns["i"].max for item in manifests] == ["1", "2"]


def test_a_float_is_the_double_that_spark_compares(spark, warehouse, write):
    """Rule 9.8: as text it is 0.1, and as a double a little more"""
    manifest = write(spark.sql("SELECT CAST(0.1 AS FLOAT) AS f"))
    index(spark, warehouse, manifest)

    for where in ("f > 0.1", "f = 0.10000000149011612", "f BETWEEN 0.1 AND 0.11", "f = float('0.1')"):
        (kept,), _ = narrowed(warehouse, [manifest], parsed_filter(where))

        assert read_instances(spark, warehouse, [manifest]).where(where).count() == 1, where
        assert kept == manifest, where


def test_times_are_kept_in_utc_for_any_gap_of_the_session_zone(spark, warehouse, write):
    """Rule 9.8: an hour that New York does not have"""
    manifest = write(spark.sql("SELECT TIMESTAMP '2013-03-10 02:30:00Z' AS at"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        index(spark, warehouse, manifest)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    (kept,), _ = narrowed(warehouse, [manifest], parsed_filter("at < '2013-03-10T03:00:00Z'"))
    (passed_over,), _ = narrowed(warehouse, [manifest], parsed_filter("at > '2013-03-10T03:00:00Z'"))

    assert (len(kept.files), len(passed_over.files)) == (1, 0)


def test_long_texts_are_not_kept(spark, warehouse, write):
    """Rule 9.8: an index stays small"""
    manifest = write(spark.sql("SELECT repeat('x', 10000) AS s"))

    (files,) = file_figures(spark, warehouse, [manifest], indexable([manifest])).values()
    (found,) = files.values()

    assert found.columns["s"] == ColumnFigures(nulls=0, distinct=1, unbounded=True)


def test_what_has_no_order_is_not_indexed(spark, write):
    """Rule 9.8"""
    manifest = write(spark.sql("SELECT 1 AS id, array(1) AS a, map('k', 1) AS m, binary('x') AS b"))

    assert indexable([manifest]) == {"id": "integer"}
    with pytest.raises(CannotIndex, match="no order"):
        indexable([manifest], ["a"])
    with pytest.raises(CannotIndex, match="there is none"):
        indexable([manifest], ["absent"])
