"""Constraints checked by Spark: first against the columns, before anything starts, then on the rows (rule 9.8).

A single scan of the files checks all constraints of a batch of instances: each becomes a flag of the row, and an aggregation
by instance counts the flags and keeps the first offending rows, in the order of their text. So the same data always gives
the same report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from databuild_dagster.model.constraints import (
    AcceptedValues,
    AnyConstraint,
    BadConstraint,
    Bound,
    Expression,
    NarrowType,
    NotNull,
    Range,
    Regex,
    Unique,
    why_senseless,
)
from databuild_dagster.model.refs import Ref
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.pyspark_names import condition_of, smallest
from databuild_dagster.spark.schemas import quoted, united_schema
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Offending rows in a report, of each constraint.
SAMPLES = 5
#: The column with the instance of a row; no user's column has this name.
_INSTANCE = "__databuild_instance"
_FLAG = "__databuild_flag_{}"
_TEXTS = ("string", "varchar", "char")


class ConstraintReport(msgspec.Struct, frozen=True):
    """The result of a constraint in a partition."""

    constraint: str
    #: Offending rows.
    rows: int
    #: The first of them as JSON, at most `SAMPLES`.
    samples: tuple[str, ...] = ()


class PartitionReport(msgspec.Struct, frozen=True):
    """The results of all constraints in an instance of a partition."""

    ref: Ref
    instance_uuid: str
    rows: int
    constraints: tuple[ConstraintReport, ...]

    @property
    def holds(self) -> bool:
        """Whether no row offends."""
        return not any(report.rows for report in self.constraints)


def columns_to_check(manifests: Sequence[Manifest]) -> str:
    """The columns of all instances, as text to store: each instance is read with all of them.

    Raises `NoSchema`, `SchemasDiffer`.
    """
    return united_schema([manifest for manifest in manifests if manifest.schema.columns]).json()


def check_constraints(spark: SparkSession, columns_text: str, constraints: Sequence[AnyConstraint]) -> None:
    """Check that each constraint fits the columns; no file is read. Raises `BadConstraint`."""
    from pyspark.sql.types import StringType, StructField, StructType

    schema = _parsed(columns_text)
    columns = {field.name: field.dataType for field in schema}
    for constraint in constraints:
        if why := why_senseless(constraint):
            raise _bad(constraint, why, "Nothing was started.")
        for name in constraint.columns_named:
            if name not in columns:
                raise _bad(constraint, f"there is no column {name!r}", f"The columns are {', '.join(columns)}.")
        if isinstance(constraint, Regex) and columns[constraint.column].typeName() not in _TEXTS:
            raise _bad(constraint, f"{constraint.column!r} is no text", "Use an expression for another type.")
    # No rows of the columns, as `validate_instances` reads them.
    nothing = spark.createDataFrame([], StructType([*schema, StructField(_INSTANCE, StringType())]))
    for constraint in constraints:
        _check_alone(spark, nothing, constraint)
    _analyse(nothing, constraints)


def _check_alone(spark: SparkSession, nothing: DataFrame, constraint: AnyConstraint) -> None:
    """Find the errors of a constraint that Spark reports only when it runs, or never."""
    import pyspark.sql.functions as F
    from pyspark.errors import PySparkException

    try:
        match constraint:
            case Expression(sql=sql):
                # WHERE takes a condition on one row, and no aggregate.
                nothing.where(sql).schema  # noqa: B018
                # An aggregate takes only deterministic expressions.
                nothing.agg(F.count(F.expr(f"({sql}\n)"))).schema  # noqa: B018
            case Regex(pattern=pattern):
                spark.sql("SELECT 'x' RLIKE :pattern", {"pattern": pattern}).collect()
    except PySparkException as error:
        if "NONDETERMINISTIC" in (condition_of(error) or ""):
            why = "its result changes from one run to the next"
            raise _bad(constraint, why, "Use only values of the row.") from error
        raise _bad(constraint, explain_failure(error).rstrip("."), "Nothing was started.") from error


def _analyse(nothing: DataFrame, constraints: Sequence[AnyConstraint]) -> None:
    """Let Spark analyze all constraints together; only if it refuses, each alone, to name the wrong constraint."""
    from pyspark.errors import PySparkException

    try:
        _counted(nothing, constraints, SAMPLES).schema  # noqa: B018
    except PySparkException as error:
        if len(constraints) == 1:
            raise _bad(constraints[0], explain_failure(error).rstrip("."), "Nothing was started.") from error
        for constraint in constraints:
            _analyse(nothing, [constraint])
        raise


def validate_instances(
    spark: SparkSession,
    warehouse: Warehouse,
    manifests: Sequence[Manifest],
    constraints: Sequence[AnyConstraint],
    folder: str | None,
    *,
    columns_text: str = "",
    samples: int = SAMPLES,
) -> list[PartitionReport]:
    """The report of each instance, in their order, by a single Spark job; `folder` is as for `read_keyed`.

    With `columns_text`, of `columns_to_check`, columns that an instance lacks are null, so its report does not depend on
    other instances. Raises what reading raises, and what an expression raises on some row.
    """
    found = {}
    if any(manifest.files for manifest in manifests):
        keyed = {manifest.instance_uuid: [manifest] for manifest in manifests}
        columns = _parsed(columns_text) if columns_text else None
        frame = read_keyed(spark, warehouse, keyed, folder, column=_INSTANCE, columns=columns)
        found = {row[_INSTANCE]: row for row in _counted(frame, constraints, samples).collect()}
    return [_report(manifest, constraints, found.get(manifest.instance_uuid)) for manifest in manifests]


def _parsed(columns_text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(columns_text))


def _counted(frame: DataFrame, constraints: Sequence[AnyConstraint], samples: int) -> DataFrame:
    import pyspark.sql.functions as F

    own = [name for name in frame.columns if name != _INSTANCE]
    types = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    # With nulls, which may offend.
    row = F.to_json(F.struct(*(F.col(quoted(name)) for name in own)), {"ignoreNullFields": "false"})
    flags = [
        F.coalesce(_offends(constraint, types), F.lit(False)).alias(_FLAG.format(place))
        for place, constraint in enumerate(constraints)
    ]
    # Only an offending row is written down: most rows never offend.
    names = [_FLAG.format(place) for place in range(len(constraints))]
    offends = reduce(lambda one, other: one | other, map(F.col, names), F.lit(False))
    flagged = frame.select("*", *flags).select(_INSTANCE, F.when(offends, row).alias("row"), *names)
    counts: list[Column] = [F.count(F.lit(1)).alias("rows")]
    for place in range(len(constraints)):
        shown = F.when(F.col(_FLAG.format(place)), F.col("row"))
        counts += [
            F.count(shown).alias(f"n_{place}"),
            smallest(shown, samples, frame.sparkSession).alias(f"samples_{place}"),
        ]
    return flagged.groupBy(_INSTANCE).agg(*counts)


def _offends(constraint: AnyConstraint, types: dict[str, str]) -> Column:
    """True for an offending row; null, where SQL cannot decide, is no offence."""
    import pyspark.sql.functions as F
    from pyspark.sql import Window

    match constraint:
        case NotNull(column=column):
            return F.col(quoted(column)).isNull()
        case Unique(columns=columns):
            named = [F.col(quoted(column)) for column in columns]
            whole = reduce(lambda one, other: one & other, (column.isNotNull() for column in named))
            alike = F.count(F.lit(1)).over(Window.partitionBy(_INSTANCE, *named))
            return whole & (alike > 1)
        case Range(column=column, low=low, high=high):
            ends: list[Column] = []
            if low is not None:
                ends.append(F.col(quoted(column)) < _literal(low, types[column], constraint))
            if high is not None:
                ends.append(F.col(quoted(column)) > _literal(high, types[column], constraint))
            return reduce(lambda one, other: one | other, ends)
        case Regex(column=column, pattern=pattern):
            return ~F.col(quoted(column)).rlike(pattern)
        case AcceptedValues(column=column, values=values):
            return ~F.col(quoted(column)).cast("string").isin(*values)
        case Expression(sql=sql):
            return ~F.expr(f"({sql}\n)")
        case NarrowType(column=column, type=narrow):
            return F.expr(_narrowed(column, narrow))


def _narrowed(column: str, narrow: str) -> str:
    """SQL that is true where the cast to the narrower type changes a value, or fails."""
    name = quoted(column)
    cast = f"try_cast({name} AS {narrow})"
    return f"{name} IS NOT NULL AND ({cast} IS NULL OR {cast} <> {name})"


def _literal(bound: Bound, type_name: str, constraint: AnyConstraint) -> Any:
    """The end of a range in the column's own type. Raises `BadConstraint`."""
    import pyspark.sql.functions as F

    is_number = isinstance(bound, int | float)
    parse = {"date": date.fromisoformat, "timestamp": datetime.fromisoformat, "timestamp_ntz": datetime.fromisoformat}
    if type_name in parse and isinstance(bound, str):
        try:
            found = parse[type_name](bound)
        except ValueError:
            raise _bad(constraint, f"{bound!r} is no {type_name}", "Write 2013-01-31, or 2013-01-31T05:00.") from None
        return F.lit(found.isoformat()).cast(type_name)
    if type_name in _TEXTS and not is_number:
        return bound
    if type_name in ("byte", "short", "integer", "long", "float", "double", "decimal") and is_number:
        return bound
    raise _bad(constraint, f"{bound!r} cannot be compared with a column of {type_name}", "Give ends of the same type.")


def _report(manifest: Manifest, constraints: Sequence[AnyConstraint], row: Any) -> PartitionReport:
    reports = tuple(
        ConstraintReport(constraint.text, 0)
        if row is None
        else ConstraintReport(constraint.text, row[f"n_{place}"], tuple(row[f"samples_{place}"] or ()))
        for place, constraint in enumerate(constraints)
    )
    return PartitionReport(manifest.ref, manifest.instance_uuid, 0 if row is None else row["rows"], reports)


def _bad(constraint: AnyConstraint, why: str, form: str) -> BadConstraint:
    return BadConstraint(what=constraint.text, why=why, form=form)
