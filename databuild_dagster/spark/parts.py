"""The keys of a frame of Spark or pandas, and the rows of one key (SPEC 10.4)."""

from __future__ import annotations

from typing import Any

from databuild_dagster.spark.errors import BadPartColumn
from databuild_dagster.spark.schemas import quoted


def values_of(frame: Any, column: str, asset: str, most: int) -> list[Any]:
    """The different values of a column, None for null; at most one more than `most`, unordered.

    For Spark this is one job that reads only that column. Raises `BadPartColumn`.
    """
    columns = list(frame.columns)
    if columns.count(column) != 1:
        why = f"it has {columns.count(column)} columns of that name" if column in columns else "it has no such column"
        raise BadPartColumn(asset=asset, column=column, why=why)
    if _is_spark(frame):
        return [row[0] for row in frame.select(quoted(column)).distinct().limit(most + 1).collect()]
    try:
        found = frame[column].drop_duplicates().tolist()
    except TypeError as error:  # Lists, for example, which pandas cannot compare.
        raise BadPartColumn(asset=asset, column=column, why="its values cannot be compared") from error
    # pandas has several nulls; all but None differ from themselves.
    return list(dict.fromkeys(None if _is_null(value) else value for value in found))[: most + 1]


def rows_of(frame: Any, column: str, value: Any) -> Any:
    """The rows of a frame whose column has the value; None for null."""
    if not _is_spark(frame):
        chosen = frame[column].isna() if value is None else frame[column] == value
        return frame[chosen].reset_index(drop=True)
    import pyspark.sql.functions as F

    # A plain comparison, which Parquet's own statistics can answer.
    found = F.col(quoted(column))
    return frame.filter(found.isNull() if value is None else found == F.lit(value))


def _is_null(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _is_spark(frame: Any) -> bool:
    return hasattr(frame, "unionByName")
