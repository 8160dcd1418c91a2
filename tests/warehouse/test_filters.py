"""Files that a filter cannot match, decided from figures alone (rule 9.8)."""

import sys

import pyarrow as pa
import pytest

from databuild_dagster.warehouse.filters import (
    BadFilter,
    ColumnFigures,
    FileFigures,
    FilterLibraryMissing,
    matching_rows,
    parsed_filter,
)

FILE = FileFigures(
    10,
    {
        "n": ("long", ColumnFigures(nulls=2, min="10", max="20")),
        "d": ("double", ColumnFigures(nulls=0, min="0.5", max="NaN")),
        "f": ("float", ColumnFigures(nulls=0, min="0.10000000149011612", max="0.10000000149011612")),
        "s": ("string", ColumnFigures(nulls=0, min="AA", max="DL")),
        "one": ("string", ColumnFigures(nulls=1, min="AA", max="AA")),
        "day": ("date", ColumnFigures(nulls=0, min="2013-01-01", max="2013-01-31")),
        "at": ("timestamp", ColumnFigures(nulls=0, min="1357016400000000", max="1357020000000000")),
        "flag": ("boolean", ColumnFigures(nulls=0, min="false", max="false")),
        "price": ("decimal(9,2)", ColumnFigures(nulls=0, min="1.50", max="2.50")),
        "void": ("string", ColumnFigures(nulls=10)),
        "big": ("long", ColumnFigures(nulls=0, min="9007199254740993", max="9007199254740993")),
        "text": ("string", ColumnFigures(nulls=0, unbounded=True)),
    },
)


@pytest.mark.parametrize(
    "where",
    [
        "n = 9",
        "n = 21 or n = 9",
        "n = 15 and s = 'ZZ'",
        "(n < 10)",
        "n < -1",
        "n > 20",
        "20 < n",
        "n between 21 and 30",
        "n in (1, 2, 3)",
        "n = 9.5",
        "n > 2e1",
        "not n >= 10",
        "not (n >= 10 or s = 'x')",
        "not (not n = 9)",
        "not (n > 5 and n < 30)",
        "d < 0.5",
        "s = 'B ' and n = 0",
        "s > 'DL'",
        "S < 'A'",
        "`s` = 'a'",
        "one <> 'AA'",
        "void = 'x'",
        "void is not null",
        "s is null",
        "not n is not null and n = 0",
        "day = '2013-02-01'",
        "day < date '2013-01-01'",
        "at >= '2013-01-01 06:00:00.000001'",
        "at > timestamp '2013-01-01T06:00:00Z'",
        "at = '2013-01-01T07:30:00+01:00'",
        "flag",
        "flag = true",
        "price < 1.5",
        "price = 3",
    ],
)
def test_a_file_in_which_no_row_can_match_is_passed_over(where):
    """Rule 9.8"""
    assert not parsed_filter(where).might_match(FILE)


@pytest.mark.parametrize(
    "where",
    [
        "n = 10",
        "n <> 15",
        "not n = 15",
        "n is null",
        "n + 1 = 9",
        "n = 9 or upper(s) = 'X'",
        "not (n > 5 and n < 15)",
        "n between 20 and 21",
        "n in (1, 20)",
        "n in (select 1)",
        "n not in (10, 20)",
        "d > 1e300",
        "d = 0.7",
        "f = 0.1",
        "f > 0.1",
        "s like 'Z%'",
        "s = 5",
        "n = '9'",
        "day = '2013-2-1'",
        "day = '2014'",
        "at = '2013-01-01 5:00'",
        "not flag",
        "flag is false",
        "big = 9007199254740992e0",
        "text = 'x'",
        "void is null",
        "absent = 1",
        "t.n = 9",
        "s = 'a\\u0041'",
        "s = 'B' 'Z'",
        "n = cast('9' as int)",
        "n = (select 9)",
        "n <=> 10",
        "coalesce(n, 9) = 9",
        "s = 1e1",
        "s >= 1e2 and s < 3e2",
        "day > 1e0",
        "flag = 1e0",
    ],
)
def test_a_file_that_might_match_is_read(where):
    """Rule 9.8: what is not understood might match; an index costs no row."""
    if where.startswith("f "):
        # Spark turns the decimal 0.1 into a double, and the float too: which is a little more.
        assert parsed_filter(where).might_match(FILE) is (where == "f > 0.1")
    else:
        assert parsed_filter(where).might_match(FILE)


def test_times_without_a_zone_are_in_the_readers():
    """Rule 9.8"""
    assert not parsed_filter("at = '2013-01-01T05:30'", "America/New_York").might_match(FILE)
    assert parsed_filter("at = '2013-01-01T00:30'", "America/New_York").might_match(FILE)
    assert parsed_filter("at = '2013-01-01T23:30'", "nowhere").might_match(FILE)


@pytest.mark.parametrize(
    "where",
    ["", " ", "n >", "n = 1; drop table t", "n = 1 limit 5", "n = 1 group by n", "n=1 qualify 1", "n=1 offset 5"],
)
def test_what_is_no_condition_is_refused(where):
    """Rule 9.8"""
    with pytest.raises(BadFilter) as refused:
        parsed_filter(where)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("carrier =", "it is incomplete or wrong at '='"),
        ("carrier = 'AA", "a quote in it is not closed"),
        ("carrier in ('AA'", "it is incomplete or wrong at \"'AA'\""),
        ("n = 1; drop table t", "it is not one condition"),
    ],
)
def test_a_refused_filter_names_the_place_and_no_class_of_the_parser(where, why):
    with pytest.raises(BadFilter) as refused:
        parsed_filter(where)

    assert refused.value.message == f"The filter {where!r} cannot be applied: {why}."


def test_what_only_spark_understands_is_left_to_it():
    """Rule 9.8: some versions of sqlglot parse this text, and others do not."""
    with pytest.raises(BadFilter):
        matching_rows(pa.table({"n": [4, 5, 6]}), parsed_filter("n !> 5"))

    assert parsed_filter("n !> 5", spark_decides=True).might_match(FILE)


def test_without_sqlglot_a_filter_is_left_to_spark_or_refused_with_what_to_install(monkeypatch):
    """Rule 9.8"""
    monkeypatch.setitem(sys.modules, "sqlglot", None)

    wanted = parsed_filter("n = 9", spark_decides=True)

    assert (wanted.where, wanted.columns, wanted.might_match(FILE)) == ("n = 9", frozenset(), True)
    with pytest.raises(FilterLibraryMissing, match=r"pip install 'databuild-dagster(-core)?\[filters\]'"):
        parsed_filter("n = 9")
    with pytest.raises(BadFilter, match="it is empty"):
        parsed_filter(" ", spark_decides=True)
