"""Constraints checked on real rows (rule 9.8)."""

import json

import pytest
from pyspark.sql.types import StructType

from databuild_dagster.features.operations.spark.validating import (
    check_constraints,
    columns_to_check,
    validate_instances,
)
from databuild_dagster.model.constraints import (
    AcceptedValues,
    BadConstraint,
    Expression,
    NarrowType,
    NotNull,
    Range,
    Regex,
    Unique,
)

ROWS = """
    SELECT * FROM VALUES
        (1, 10L, 'EWR', DOUBLE(1.5), DATE'2013-01-01', 'a'),
        (1, 70000L, 'JFK', DOUBLE('NaN'), DATE'2013-06-01', 'b'),
        (2, NULL, 'XXX', DOUBLE(2.0), DATE'2014-01-01', NULL),
        (NULL, -5L, NULL, NULL, NULL, 'ä`"\n'),
        (NULL, 7L, 'LGA', DOUBLE(-0.0), DATE'2012-12-31', 'b')
    AS t(id, amount, origin, delay, day, `odd ``name`)
"""

#: As `columns_to_check` writes them.
COLUMNS = StructType().add("id", "integer").add("amount", "long").add("origin", "string").add("day", "date").json()


@pytest.fixture
def validate(spark, warehouse, tmp_path):
    def validate(manifests, *constraints, **more):
        return validate_instances(spark, warehouse, manifests, constraints, str(tmp_path / "links"), **more)

    return validate


#: Constraint, and how many of the rows offend it: null offends only not_null, as for a CHECK of SQL; NaN is above every
#: number.
OFFENDING = [
    (NotNull("amount"), 1),
    (NotNull("odd `name"), 1),
    (Unique(("id",)), 2),
    (Unique(("id", "amount")), 0),
    (Range("amount", -5, 10), 1),
    (Range("amount", None, -6), 4),
    (Range("delay", 0, None), 0),
    (Range("delay", None, 2), 1),
    (Range("day", "2013-01-01", "2013-12-31"), 2),
    (Range("origin", "A", "K"), 2),
    (Regex("origin", "^[EJL]"), 1),
    (AcceptedValues("origin", ("EWR", "JFK", "LGA")), 1),
    (AcceptedValues("id", ("1",)), 1),
    (Expression("amount is null or amount > 0"), 1),
    (Expression("amount > 0 -- null breaks no rule"), 1),
    (NarrowType("amount", "smallint"), 1),
    (NarrowType("delay", "int"), 2),
    (NarrowType("origin", "int"), 4),
]


def test_each_constraint_counts_the_rows_that_offend_it_in_one_scan_of_all(spark, write, validate):
    """Rule 9.8"""
    manifest = write(spark.sql(ROWS))
    constraints = [constraint for constraint, _ in OFFENDING]
    check_constraints(spark, columns_to_check([manifest]), constraints)

    (report,) = validate([manifest], *constraints)

    assert report.rows == 5
    assert [(constraint.constraint, constraint.rows) for constraint in report.constraints] == [
        (constraint.text, offending) for constraint, offending in OFFENDING
    ]
    assert all(len(constraint.samples) == constraint.rows for constraint in report.constraints)
    assert not report.holds


def test_a_batch_is_split_by_instance_and_an_empty_one_passes(spark, write, validate):
    """Rule 9.8: uniqueness is within a partition."""
    one = write(spark.sql("SELECT 1 AS id"), "flights@1")
    twice = write(spark.sql("SELECT id FROM VALUES (1), (1), (2) AS t(id)"), "flights@2")
    empty = write(spark.sql("SELECT 1 AS id").where("id > 1"), "flights@3")

    reports = validate([twice, empty, one], Unique(("id",)), NotNull("id"))

    assert [(report.ref, report.instance_uuid, report.rows, report.constraints[0].rows) for report in reports] == [
        ("flights@2", twice.instance_uuid, 3, 2),
        ("flights@3", empty.instance_uuid, 0, 0),
        ("flights@1", one.instance_uuid, 1, 0),
    ]
    assert [constraint.constraint for constraint in reports[1].constraints] == ["(id) is unique", "id is not null"]


def test_samples_are_whole_rows_and_the_same_for_every_reader(spark, write, validate):
    """Rule 9.8: the report of a disturbed operation is that of an undisturbed one."""
    manifest = write(spark.range(0, 1000, 1, 7).selectExpr("id", "id % 10 AS digit"))

    (first,) = validate([manifest], Range("digit", 0, 4), samples=3)

    assert first.constraints[0].rows == 500
    assert [json.loads(sample) for sample in first.constraints[0].samples] == [
        {"id": 105, "digit": 5},
        {"id": 106, "digit": 6},
        {"id": 107, "digit": 7},
    ]


def test_the_report_of_an_instance_is_the_same_alone_and_among_others(spark, write, validate, warehouse, tmp_path):
    """Rules 9.5, 9.8: what it lacks is null, and shown as such"""
    old = write(spark.sql("SELECT 1 AS id, 2 AS narrow"), "flights@1")
    new = write(spark.sql("SELECT 2 AS id, 3L AS narrow, 'x' AS extra"), "flights@2")
    columns = columns_to_check([old, new])
    constraints = (NotNull("extra"), NarrowType("narrow", "tinyint"), Expression("extra = 'x'"), Unique(("extra",)))
    check_constraints(spark, columns, constraints)

    together = validate([old, new], *constraints, columns_text=columns)
    alone = [
        report
        for place, item in enumerate((old, new))
        for report in validate_instances(
            spark, warehouse, [item], constraints, str(tmp_path / f"alone {place}"), columns_text=columns
        )
    ]

    assert alone == together
    assert [[constraint.rows for constraint in report.constraints] for report in alone] == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert json.loads(alone[0].constraints[0].samples[0]) == {"id": 1, "narrow": 2, "extra": None}


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        (NotNull("carier"), "no column 'carier'"),
        (Unique(("id", "absent")), "no column 'absent'"),
        (Regex("origin", "["), "(?i)regex|pattern|unclosed"),
        (Regex("amount", "1"), "no text"),
        (Range("amount", 0, 10**22), "no finite number of 64 bits"),
    ],
    ids=lambda value: getattr(value, "text", value),
)
def test_a_constraint_that_the_columns_rule_out_is_refused_without_a_session(constraint, why):
    """Rule 9.8"""
    with pytest.raises(BadConstraint, match=why) as refused:
        check_constraints(None, COLUMNS, [constraint])

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        (Expression("amount >"), "(?i)syntax"),
        (Expression("amount + 1"), "(?i)boolean"),
        (Expression("absent > 1"), "absent"),
        (Expression("count(*) > 1"), "invalid expressions"),
        (NarrowType("amount", "smalint"), "(?i)smalint"),
        (Range("amount", "low", None), "cannot be compared"),
        (Range("origin", 1, None), "cannot be compared"),
        (Range("day", "1 May", None), "no date"),
        (Expression("rand() > 0.5"), "its result changes"),
        (Expression("amount > 0 AND uuid() <> 'x'"), "its result changes"),
    ],
    ids=lambda value: getattr(value, "text", value),
)
def test_what_cannot_be_asked_of_the_columns_is_refused_before_anything_is_read(spark, constraint, why):
    """Rule 9.8"""
    with pytest.raises(BadConstraint, match=why) as refused:
        check_constraints(spark, COLUMNS, [constraint])

    assert "\n" not in str(refused.value)
