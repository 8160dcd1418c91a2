"""The smallest, the largest and the number of different values of columns, for each file of an instance (rule 9.8).

Spark computes them, because only Spark reads every format and every type; a job takes some files at a time, so that the
results of finished files are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from databuild_dagster.model.errors import Refused
from databuild_dagster.spark.frames import by_columns, by_format, load_files, spark_paths, united
from databuild_dagster.spark.reach import in_place
from databuild_dagster.spark.schemas import quoted, united_schema
from databuild_dagster.warehouse.file_index import FileIndex
from databuild_dagster.warehouse.filters import ORDERED, ColumnFigures
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Filters have no longer texts, and the index must stay smaller than the data.
LONGEST_TEXT = 256

_FILE = "__databuild_file"


class CannotIndex(Refused):
    """Column {column!r} of {asset} cannot be indexed: {why}."""

    hint = "{what_to_do}"


def indexable(manifests: Sequence[Manifest], columns: Sequence[str] = ()) -> dict[str, str]:
    """The types of the columns to index, in Spark's words: the given columns, else all with an order.

    Some instances may lack a column. Raises `CannotIndex`.
    """
    asset = manifests[0].dataset
    types = {field.name: _type_text(field.dataType) for field in united_schema(manifests).fields}
    for column in columns:
        if column not in types:
            raise CannotIndex(
                column=column, asset=asset, why="there is none", what_to_do=f"The columns are {', '.join(types)}."
            )
        if not has_order(types[column]):
            raise CannotIndex(
                column=column,
                asset=asset,
                why=f"values of {types[column]} have no order",
                what_to_do="Name columns of numbers, texts, dates, times or booleans; or none, for all of those.",
            )
    return {name: types[name] for name in columns or types if has_order(types[name])}


def has_order(type_name: str) -> bool:
    """Whether values of a type have an order."""
    return type_name in ORDERED or type_name.startswith("decimal")


def file_figures(
    spark: SparkSession, warehouse: Warehouse, manifests: Sequence[Manifest], types: dict[str, str]
) -> dict[str, dict[str, FileIndex]]:
    """The figures of each file, by its instance and its uri, in a single Spark job. Raises what reading raises."""
    found: dict[str, dict[str, FileIndex]] = {manifest.instance_uuid: {} for manifest in manifests}
    with_files = [manifest for manifest in manifests if manifest.files]
    if not with_files or not types:
        return found
    schema = united_schema(with_files)
    if groups := by_columns(with_files, schema):
        for _, some in groups:
            found |= file_figures(spark, warehouse, some, types)
        return found
    paths_of = spark_paths(spark, warehouse, with_files, schema)
    reach = in_place(spark, warehouse)
    if reach is None or reach.names_files:
        frame = load_files(spark, schema, by_format(with_files, paths_of))
        rows = {_path_of(row[_FILE]): row for row in _figured(frame, "_metadata.file_path", types).collect()}
    else:
        rows = {row[_FILE]: row for row in _figured(_by_file(spark, with_files, paths_of), _FILE, types).collect()}
    for manifest in with_files:
        for file, path in zip(manifest.files, paths_of[manifest.instance_uuid], strict=True):
            row = rows.get(path)
            if row is not None and row["rows"] == file.rows:
                found[manifest.instance_uuid][file.uri] = FileIndex(file.checksum, file.rows, _columns(row, types))
    return found


def _path_of(uri: str) -> str:
    """The path that this session was given: Spark encodes it, and adds `file:` to a local path."""
    path = unquote(uri)
    return path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")


def _by_file(spark: SparkSession, manifests: Sequence[Manifest], paths_of: Mapping[str, Sequence[str]]) -> DataFrame:
    """The rows of each file beside its path, where the engine does not tell the path of a row."""
    import pyspark.sql.functions as F

    schema = united_schema(manifests)
    files = [(manifest.format, path) for manifest in manifests for path in paths_of[manifest.instance_uuid]]
    frame: DataFrame = united(
        [load_files(spark, schema, {name: [path]}).withColumn(_FILE, F.lit(path)) for name, path in files]
    )
    return frame


def _figured(frame: DataFrame, file: str, types: dict[str, str]) -> DataFrame:
    import pyspark.sql.functions as F

    named = frame.select(F.col(file).alias(_FILE), *(quoted(name) for name in types))
    figures: list[Column] = [F.count(F.lit(1)).alias("rows")]
    for place, (name, type_text) in enumerate(types.items()):
        column = F.col(quoted(name))
        figures += [
            F.count(column).alias(f"values_{place}"),
            # The exact number would take a row for each column of a row.
            F.approx_count_distinct(column).alias(f"distinct_{place}"),
            _as_text(F.min(column), type_text).alias(f"min_{place}"),
            _as_text(F.max(column), type_text).alias(f"max_{place}"),
        ]
    return named.groupBy(_FILE).agg(*figures)


def _type_text(data_type: Any) -> str:
    # `string collate …` keeps its text: it has another order than bytes.
    text: str = data_type.simpleString()
    return {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}.get(text, text)


def _as_text(column: Column, type_text: str) -> Column:
    """As `filters` reads a figure."""
    import pyspark.sql.functions as F

    match type_text:
        case "timestamp":
            # Independent of the session's time zone, which may repeat or skip an hour.
            column = F.unix_micros(column)
        case "float":
            # Spark compares doubles: the text 0.1 of a float would be another double.
            column = column.cast("double")
        case "timestamp_ntz":
            column = F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    return column.cast("string")


def _columns(row: Any, types: dict[str, str]) -> dict[str, ColumnFigures]:
    return {
        name: _figures(
            type_text,
            nulls=row["rows"] - row[f"values_{place}"],
            distinct=row[f"distinct_{place}"],
            low=row[f"min_{place}"],
            high=row[f"max_{place}"],
        )
        for place, (name, type_text) in enumerate(types.items())
    }


def _figures(type_text: str, *, nulls: int, distinct: int, low: str | None, high: str | None) -> ColumnFigures:
    too_long = type_text == "string" and max(len(low or ""), len(high or "")) > LONGEST_TEXT
    if too_long or _is_far(type_text, low) or _is_far(type_text, high):
        return ColumnFigures(nulls, distinct, unbounded=True)
    return ColumnFigures(nulls, distinct, low, high)


def _is_far(type_text: str, text: str | None) -> bool:
    """Whether a day is before the year 1 or after 9999, which Python cannot represent."""
    is_time = type_text in ("date", "timestamp_ntz")
    return is_time and text is not None and (not text[:4].isdigit() or text[4] != "-" or text[:4] == "0000")
