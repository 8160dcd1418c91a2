"""The rows of one key out of a frame, of Spark or pandas, and which keys there are (SPEC 10.4)."""

from __future__ import annotations

from typing import Any

from databuild_dagster.spark.errors import BadPartColumn


def values_of(frame: Any, column: str, asset: str, most: int) -> list[Any]:
    """The different values of a column, None among them if a row has none; at most one more than `most`, in no order.

    For a frame of Spark's this is a Spark job, which reads that column alone. Raises `BadPartColumn`.
    """
    columns = list(frame.columns)
    if columns.count(column) != 1:
        why = f"it has {columns.count(column)} columns of that name" if column in columns else "it has no such column"
        raise BadPartColumn(asset=asset, column=column, why=why)
    if _is_spark(frame):
        return [row[0] for row in frame.select(_column(column)).distinct().limit(most + 1).collect()]
    try:
        found = frame[column].drop_duplicates().tolist()
    except TypeError as error:  # Lists, for example, which pandas cannot compare.
        raise BadPartColumn(asset=asset, column=column, why="its values cannot be told apart") from error
    # pandas has several nulls, and all but None differ from themselves.
    return list(dict.fromkeys(None if _is_null(value) else value for value in found))[: most + 1]


def rows_of(frame: Any, column: str, value: Any) -> Any:
    """Those rows of a frame whose column has the value; None for null."""
    if not _is_spark(frame):
        chosen = frame[column].isna() if value is None else frame[column] == value
        return frame[chosen].reset_index(drop=True)
    import pyspark.sql.functions as F

    # A plain comparison, which Parquet's own statistics can answer; nulls are none of any other value's.
    condition = _column(column).isNull() if value is None else _column(column) == F.lit(value)
    return frame.filter(condition)


def _column(name: str) -> Any:
    import pyspark.sql.functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _is_null(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _is_spark(frame: Any) -> bool:
    return hasattr(frame, "unionByName")
