"""Parquet, as a file format: rows and columns come from the footer, nothing is scanned."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import ListedFileLost, NotParquet
from databuild_dagster.warehouse.file_format import FileFacts

if TYPE_CHECKING:
    import pyarrow as pa

#: Where Spark keeps its own schema in a footer.
SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"


class Parquet:
    """`file_format.FileFormat`. Which codec Spark writes is the session's setting."""

    name = "parquet"
    suffix = ".parquet"
    spark_options: Mapping[str, str] = {}

    def describe(self, file: str | BinaryIO, path: str) -> FileFacts:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            footer = pq.read_metadata(file)
            written = io.BytesIO()
            # Where each column chunk lies, how many bytes it has, its smallest and largest value.
            footer.write_metadata_file(written)
            schema = footer.schema.to_arrow_schema()
        except (OSError, pa.ArrowException) as error:
            raise NotParquet(path=path, why=_first_line(error)) from error
        return FileFacts(footer.num_rows, schema, f"footer-sha256:{sha256(written.getvalue()).hexdigest()}")

    def read(self, path: str, columns: Sequence[str] | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # partitioning=None: otherwise `instance=<uuid>` in the path would come as a column.
            return pq.read_table(path, columns=list(columns) if columns else None, partitioning=None)
        except FileNotFoundError as error:
            # Perhaps cleaned up since the manifest was read.
            raise ListedFileLost(path=path, why="it is not there") from error
        except (OSError, pa.ArrowException) as error:
            raise NotParquet(path=path, why=_first_line(error)) from error

    def write(self, table: pa.Table, path: str) -> None:
        write_table(table, path)


def write_table(table: pa.Table, path: str) -> None:
    """One file with the rows of a table, the schema's metadata included."""
    import pyarrow.parquet as pq

    with disk.explained(path, "written"):
        pq.write_table(table, path, compression="snappy")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
