"""The footers of Parquet files: columns, and statistics by which engines leave files out. No row is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from databuild_dagster.features.tables.port import TableFile
from databuild_dagster.warehouse.errors import ListedFileLost, NotParquet
from databuild_dagster.warehouse.files import plain_type
from databuild_dagster.warehouse.storage import storage_at
from databuild_dagster.warehouse.threads import in_threads

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def read_footers(files: Sequence[TableFile]) -> list[pq.FileMetaData]:
    """The footer of each file, in order. Raises `ListedFileLost`, `NotParquet`, `StorageTrouble`, `DiskTrouble`."""
    return in_threads(lambda file: _read_footer(file.path), files)


def _read_footer(path: str) -> pq.FileMetaData:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with storage_at(path).open_binary(path) as file:
            return pq.read_metadata(file)
    except FileNotFoundError as error:
        raise ListedFileLost(path=path, why="it is not there") from error
    except pa.ArrowException as error:
        raise NotParquet(path=path, why=str(error).strip().splitlines()[0].rstrip(".")) from error


def columns_of(footer: pq.FileMetaData) -> pa.Schema:
    """The columns of a file, all of which may have nulls, without metadata."""
    import pyarrow as pa

    schema = footer.schema.to_arrow_schema()
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
