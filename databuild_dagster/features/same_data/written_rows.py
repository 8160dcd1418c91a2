"""The content hash of the files that a call has written, before its success is recorded (rule 4.8)."""

import hashlib
from typing import Final

from msgspec.structs import replace

from databuild_dagster.features.compare.content_hash import CannotHash, ContentHash, hash_of
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.warehouse.files import read_table
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, TableSchema

#: Types that files do not show. A column without a value is in no file, or has the type of texts there, as items of lists
#: have; an interval of Spark has the type of numbers.
_NOT_IN_FILES: Final = ("void", "interval")

_log = logger(__name__)


def hash_of_written(warehouse: Warehouse, manifest: Manifest) -> str | None:
    """The hash of the rows, as text; None, with a line in the log, if they have none.

    Rows that are not there say nothing of their columns, so the hash of no rows covers the columns.
    """
    try:
        total = ContentHash(0, 0)
        for file in manifest.files:
            # One file at a time, so that the process holds the rows of one.
            table = read_table(warehouse, [replace(manifest, files=(file,))])
            total += hash_of(table.to_batches())
        if total.rows != manifest.rows:
            return None
    except CannotHash as error:
        _log.warning(f"{manifest.ref} is live without a content hash: {error.message}")
        return None
    except Exception as error:  # pyarrow has many; a partition must not fail because of its hash.
        log_failure(_log, f"{manifest.ref} is live without a content hash", error)
        return None
    # The type of a nested column is a text with the types inside of it.
    if not total.rows or any(name in column.type for column in manifest.schema.columns for name in _NOT_IN_FILES):
        total += ContentHash(0, _hash_of_columns(manifest.schema))
    return str(total)


def _hash_of_columns(schema: TableSchema) -> int:
    columns = repr([(column.name, column.type) for column in schema.columns])
    return int.from_bytes(hashlib.blake2b(columns.encode("utf-8", "surrogatepass"), digest_size=16).digest(), "little")
