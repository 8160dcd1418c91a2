"""From a frame of Spark, pandas or Arrow to files that look the same."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from databuild_dagster.spark.errors import NotAFrame, UnsupportedColumn
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.formats import SPARK_SCHEMA_KEY, WRITTEN, FileFormat

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame


def is_spark_frame(frame: Any, ref: str) -> bool:
    """True for a frame of Spark, False for pandas and Arrow. Raises `NotAFrame`."""
    from pyspark.sql import DataFrame

    if isinstance(frame, DataFrame):
        return True
    import pandas as pd
    import pyarrow as pa

    if isinstance(frame, pd.DataFrame | pa.Table):
        return False
    raise NotAFrame(ref=ref, found=type(frame).__name__)


def write_spark(frame: DataFrame, staging: str, coalesce: int | None, file_format: FileFormat = WRITTEN) -> None:
    """Write to a folder that must not exist yet, as `coalesce` files if given. Raises what Spark raises."""
    if coalesce is not None:
        frame = frame.coalesce(coalesce)
    frame.write.format(file_format.name).options(**file_format.spark_options).save(staging)


def write_arrow(frame: pd.DataFrame | pa.Table, staging: str, ref: str, file_format: FileFormat = WRITTEN) -> None:
    """Write as Spark after createDataFrame: same types, NaN as null, naive times as UTC."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    table = arrow_table(frame, ref)
    try:
        table = _plain(table)
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=False)
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        # safe=False: pandas counts nanoseconds, Spark microseconds.
        table = table.cast(arrow_schema, safe=False)
    except (pa.ArrowException, PySparkException, TypeError, ValueError) as error:
        raise UnsupportedColumn(ref=ref, why=str(error).splitlines()[0].rstrip(".")) from error
    disk.make_dirs(staging)
    # A unique name, as Spark's: a file's name identifies its contents.
    metadata = {SPARK_SCHEMA_KEY: schema.json().encode()}
    path = os.path.join(staging, f"part-00000-{secrets.token_hex(8)}{file_format.suffix}")
    file_format.write(table.replace_schema_metadata(metadata), path)


def arrow_table(frame: pd.DataFrame | pa.Table, ref: str) -> pa.Table:
    """The frame as an Arrow table, with the named levels of a pandas index. Raises `UnsupportedColumn`."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    try:
        named = [name for name in frame.index.names if name is not None]
        whole = frame.reset_index(level=named) if named else frame
        return pa.Table.from_pandas(whole, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UnsupportedColumn(ref=ref, why=str(error).splitlines()[0].rstrip(".")) from error


def _plain(table: pa.Table) -> pa.Table:
    """Categories as their values; a column of nothing but None as text, its most likely type."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type)
        if pa.types.is_dictionary(field.type)
        else field.with_type(pa.string())
        if pa.types.is_null(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
