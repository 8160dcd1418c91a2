"""Constraints checked by Spark: first against the columns, before anything starts, then on the rows (SPEC 9.8).

All constraints of a batch of instances are looked at in one scan of their files: each becomes a flag of the row, and
one aggregation by instance counts the flags and keeps the first offending rows, in the order of their text, so that the
same data gives the same report whoever reads it and however often.
"""

from __future__ import annotations

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
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.keyed import read_keyed
from databuild_dagster.spark.schemas import quoted, spark_schema
from databuild_dagster.warehouse import Manifest, TableSchema, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Offending rows that a report shows of each constraint.
SAMPLES = 5
#: The column that says which instance a row is of; no user's column is called so.
_INSTANCE = "__databuild_instance"
_FLAG = "__databuild_flag_{}"


class ConstraintReport(msgspec.Struct, frozen=True):
    """What one constraint found in one partition."""

    constraint: str
    #: Rows that offend.
    rows: int
    #: The first of them as JSON, at most `SAMPLES`.
    samples: tuple[str, ...] = ()


class PartitionReport(msgspec.Struct, frozen=True):
    """What all constraints found in one instance of a partition."""

    ref: str
    instance_uuid: str
    rows: int
    constraints: tuple[ConstraintReport, ...]

    @property
    def holds(self) -> bool:
        """Whether no row offends."""
        return not any(each.rows for each in self.constraints)


def check_constraints(spark: SparkSession, schema: TableSchema, constraints: Sequence[AnyConstraint]) -> None:
    """That each can be asked of these columns; no file is read. Raises `BadConstraint`."""
    from pyspark.errors import PySparkException

    columns = {field.name: field.dataType for field in spark_schema(schema)}
    nothing = spark.createDataFrame([], spark_schema(schema))
    for constraint in constraints:
        if why := why_senseless(constraint):
            raise _bad(constraint, why, "Nothing was started.")
        for name in constraint.columns_named:
            if name not in columns:
                raise _bad(constraint, f"there is no column {name!r}", f"The columns are {', '.join(columns)}.")
        try:
            match constraint:
                case Expression(sql=sql):
                    # WHERE takes what is asked of one row, and no aggregate; and only what is true or false.
                    nothing.where(sql).schema  # noqa: B018
                case NarrowType(column=column, type=narrow):
                    nothing.selectExpr(_narrowed(column, narrow)).schema  # noqa: B018
                case Regex(column=column, pattern=pattern):
                    if columns[column].typeName() not in ("string", "varchar", "char"):
                        raise _bad(constraint, f"{column!r} is no text", "Use an expression for another type.")
                    spark.sql("SELECT 'x' RLIKE :pattern", {"pattern": pattern}).collect()
                case Range(column=column, low=low, high=high):
                    for bound in (low, high):
                        if bound is not None:
                            _literal(bound, columns[column].typeName(), constraint)
        except PySparkException as error:
            raise _bad(constraint, explain_failure(error).rstrip("."), "Nothing was started.") from error


def validate_instances(
    spark: SparkSession,
    warehouse: Warehouse,
    manifests: Sequence[Manifest],
    constraints: Sequence[AnyConstraint],
    folder: str | None,
    *,
    samples: int = SAMPLES,
) -> list[PartitionReport]:
    """The report of each instance, in their order, by one Spark job; `folder` is as for `read_keyed`.

    Raises what reading raises, and what an expression raises on some row.
    """
    found = {}
    if any(manifest.files for manifest in manifests):
        keyed = {manifest.instance_uuid: [manifest] for manifest in manifests}
        frame = read_keyed(spark, warehouse, keyed, folder, column=_INSTANCE)
        found = {row[_INSTANCE]: row for row in _counted(frame, constraints, samples).collect()}
    return [_report(manifest, constraints, found.get(manifest.instance_uuid)) for manifest in manifests]


def _counted(frame: DataFrame, constraints: Sequence[AnyConstraint], samples: int) -> DataFrame:
    import pyspark.sql.functions as F

    own = [each for each in frame.columns if each != _INSTANCE]
    types = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    # With what is null: that may be what offends.
    row = F.to_json(F.struct(*(F.col(quoted(name)) for name in own)), {"ignoreNullFields": "false"})
    flags = [
        F.coalesce(_offends(constraint, types), F.lit(False)).alias(_FLAG.format(place))
        for place, constraint in enumerate(constraints)
    ]
    # A row is written down only where it offends: most never do.
    names = [_FLAG.format(place) for place in range(len(constraints))]
    offends = reduce(lambda one, other: one | other, map(F.col, names), F.lit(False))
    flagged = frame.select("*", *flags).select(_INSTANCE, F.when(offends, row).alias("row"), *names)
    counts: list[Column] = [F.count(F.lit(1)).alias("rows")]
    for place in range(len(constraints)):
        shown = F.when(F.col(_FLAG.format(place)), F.col("row"))
        counts += [
            F.count(shown).alias(f"n_{place}"),
            # Spark takes no 0.
            (F.min_by(shown, shown, samples) if samples else F.lit(None)).alias(f"samples_{place}"),
        ]
    return flagged.groupBy(_INSTANCE).agg(*counts)


def _offends(constraint: AnyConstraint, types: dict[str, str]) -> Column:
    """True for a row that offends; null where nobody can tell, which is no offence."""
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
    """SQL that is true where a value is another one, or none, as the narrower type."""
    name = quoted(column)
    cast = f"try_cast({name} AS {narrow})"
    return f"{name} IS NOT NULL AND ({cast} IS NULL OR {cast} <> {name})"


def _literal(bound: Bound, type_name: str, constraint: AnyConstraint) -> Any:
    """The end of a range in the column's own type. Raises `BadConstraint` for one that is none."""
    is_number = isinstance(bound, int | float)
    parse = {"date": date.fromisoformat, "timestamp": datetime.fromisoformat, "timestamp_ntz": datetime.fromisoformat}
    if type_name in parse and isinstance(bound, str):
        try:
            found = parse[type_name](bound)
        except ValueError:
            raise _bad(constraint, f"{bound!r} is no {type_name}", "Write 2013-01-31, or 2013-01-31T05:00.") from None
        return _in_spark(found, type_name)
    if type_name in ("string", "varchar", "char") and not is_number:
        return bound
    if type_name in ("byte", "short", "integer", "long", "float", "double", "decimal") and is_number:
        return bound
    raise _bad(constraint, f"{bound!r} cannot be compared with a column of {type_name}", "Give ends of the same type.")


def _in_spark(moment: date | datetime, type_name: str) -> Column:
    import pyspark.sql.functions as F

    found: Column = F.lit(moment.isoformat()).cast(type_name)
    return found


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
