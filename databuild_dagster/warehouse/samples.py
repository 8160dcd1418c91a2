"""The first rows of an instance, for people: read from one file on the local disk, and only as much of it as they take.

For showing, never for building: what costs more than a moment is not sampled."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, file_paths
from databuild_dagster.warehouse.storage import protocol_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: Columns of a sample; the schema names all of them.
MAX_COLUMNS = 20
#: Rows are read a row group at a time; a larger one than this is not opened.
MAX_ROW_GROUP_BYTES = 4 << 20


def first_rows(warehouse: Warehouse, manifest: Manifest, most: int) -> list[Mapping[str, Any]] | None:
    """Up to `most` rows of the first file that has any; None where that would be dear: not on this disk, or large."""
    path = next(
        (path for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True) if file.rows), None
    )
    if path is None or manifest.format != "parquet" or protocol_of(path) is not None:
        return None
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        if _first_group_bytes(file) > MAX_ROW_GROUP_BYTES:
            return None
        columns = file.schema_arrow.names[:MAX_COLUMNS]
        batches = file.iter_batches(batch_size=most, columns=columns, row_groups=[0], use_threads=False)
        return [row for batch in islice(batches, 1) for row in batch.to_pylist()]


def _first_group_bytes(file: pq.ParquetFile) -> int:
    group = file.metadata.row_group(0)
    return sum(group.column(n).total_compressed_size for n in range(min(MAX_COLUMNS, group.num_columns)))
