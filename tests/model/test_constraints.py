"""Constraints as people write them, on the command line and in a file (rule 9.8)."""

import math
from datetime import date

import pytest

from databuild_dagster.model.constraints import (
    FORMS,
    AcceptedValues,
    BadConstraint,
    Expression,
    NarrowType,
    NotNull,
    Range,
    Regex,
    Unique,
    listed_constraints,
    typed_constraint,
)

#: Nothing here asks a database.
DATABASES = ()

TYPED = [
    ("not_null", "carrier", NotNull("carrier")),
    ("unique", "year, month,day", Unique(("year", "month", "day"))),
    ("range", "dep_delay=-120:1500", Range("dep_delay", -120, 1500)),
    ("range", "dep_delay=:1500", Range("dep_delay", None, 1500)),
    ("range", "distance=0.5:", Range("distance", 0.5, None)),
    ("range", "day=2013-01-01:2013-12-31", Range("day", "2013-01-01", "2013-12-31")),
    ("regex", "tailnum=^N[0-9]=", Regex("tailnum", "^N[0-9]=")),
    ("accepted_values", "origin=EWR,JFK, LGA", AcceptedValues("origin", ("EWR", "JFK", "LGA"))),
    ("expression", "arr_delay is null or air_time > 0", Expression("arr_delay is null or air_time > 0")),
    ("narrow_type", "flight=smallint", NarrowType("flight", "smallint")),
]


@pytest.mark.parametrize(("rule", "text", "constraint"), TYPED, ids=lambda value: str(value)[:30])
def test_a_constraint_is_typed_in_one_word(rule, text, constraint):
    """Rule 9.8"""
    assert typed_constraint(rule, text) == constraint


@pytest.mark.parametrize(
    ("rule", "text", "why"),
    [
        ("range", "dep_delay", "no = between"),
        ("range", "dep_delay=5", "no : between"),
        ("range", "dep_delay=:", "both ends are open"),
        ("range", "dep_delay=9:1", "low end is above"),
        ("range", "=1:2", "column has no name"),
        ("unique", "a,a", "one twice"),
        ("unique", " , ", "names no column"),
        ("accepted_values", "origin=", "accepts nothing"),
        ("expression", "  ", "nothing to check"),
        ("narrow_type", "flight", "no = between"),
        ("narrow_type", "flight=", "nothing to check"),
        ("not_null", "", "column has no name"),
        ("range", "a=nan:5", "an end is no finite number"),
        ("range", "a=1e400:", "an end is no finite number"),
        ("range", f"a={'9' * 5000}:", "an end is no finite number"),
        ("regex", "a=(", "its pattern is none: missing"),
        ("regex", "a=[", "its pattern is none: unterminated"),
        ("regex", "a=*", "its pattern is none: nothing to repeat"),
        ("regex", "a=x\\", "its pattern is none: bad escape"),
        ("regex", "a=" + "(" * 10_000, "its pattern is none"),
    ],
)
def test_what_is_no_constraint_is_refused_with_the_form_of_one(rule, text, why):
    """Rule 9.8"""
    with pytest.raises(BadConstraint, match=why) as refused:
        typed_constraint(rule, text)

    assert FORMS[rule][0] in str(refused.value)


@pytest.mark.parametrize("pattern", [r"\p{L}+", r"\Q(\E", "(?<n>x)", "[a-z&&[^b]]", "x{2,}+", "(?x) # (\n a"])
def test_a_pattern_that_java_alone_has_is_a_constraint(pattern):
    """Rule 9.8"""
    assert typed_constraint("regex", f"a={pattern}") == Regex("a", pattern)


def test_a_file_lists_them():
    """Rule 9.8: as YAML reads them"""
    found = listed_constraints(
        {
            "rules": [
                {"not_null": "carrier"},
                {"unique": ["year", "month"]},
                {"unique": "id"},
                {"range": {"column": "day", "low": date(2013, 1, 1)}},
                {"regex": {"column": "tailnum", "pattern": "^N"}},
                {"accepted_values": {"column": "code", "values": [1, "x", True]}},
                {"expression": "air_time > 0"},
                {"narrow_type": {"column": "flight", "type": "smallint"}},
            ]
        },
        "rules.yaml",
    )

    assert found == (
        NotNull("carrier"),
        Unique(("year", "month")),
        Unique(("id",)),
        Range("day", "2013-01-01"),
        Regex("tailnum", "^N"),
        AcceptedValues("code", ("1", "x", "true")),
        Expression("air_time > 0"),
        NarrowType("flight", "smallint"),
    )


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ("not_null: a", "not a list of rules"),
        ([], "not a list of rules"),
        ({"checks": [{"not_null": "a"}]}, "not a list of rules"),
        (["not_null"], "rule 1 of rules.yaml.*does not name one rule"),
        ([{"not_null": "a"}, {"not_nul": "a"}], "rule 2 of rules.yaml.*no rule 'not_nul'"),
        ([{"range": "a"}], "not a mapping"),
        ([{"range": {"column": "a", "lowest": 1}}], "lowest"),
        ([{"range": {"column": "a", "low": [1]}}], "low"),
        ([{"not_null": 5}], "column"),
        ([{"accepted_values": {"column": "a", "values": [None]}}], "null is no value"),
        ([{"accepted_values": {"column": "a", "values": ["x", {"a": 1}]}}], "{'a': 1} is no value"),
        ([{"range": {"column": "a", "low": math.nan}}], "an end is no finite number"),
        ([{"range": {"column": "a", "high": -math.inf}}], "an end is no finite number"),
        ([{"range": {"column": "a", "low": 2**64}}], "an end is no finite number"),
        ([{"regex": {"column": "a", "pattern": "("}}], "its pattern is none"),
        ([{"expression": "a = '\ud800'"}], "a text of it is no UTF-8"),
        ([{"unique": {"x\udcff": 1}}], "a text of it is no UTF-8"),
    ],
)
def test_a_file_that_lists_something_else_is_refused_with_the_place(entries, why):
    """Rule 9.8"""
    with pytest.raises(BadConstraint, match=why):
        listed_constraints(entries, "rules.yaml")
