"""Bytes on disk: where an instance lies, and the manifest that says what it holds. Knows no Spark and no
Dagster.

Nothing here lists a directory to find out what to read: a manifest names the files, and what it does not name
is not data. Importing this package costs milliseconds; pyarrow is met only by the functions that open a
Parquet file."""

from databuild_dagster.warehouse.errors import (
    DiskFull,
    DiskTrouble,
    EscapingFile,
    InvalidInstanceUuid,
    ManifestConflict,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
    ReadOnlyWarehouse,
)
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Column,
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    file_paths,
    missing_files,
    read_manifest,
    write_manifest,
)
from databuild_dagster.warehouse.parquet import describe_files, publish_files, read_table

__all__ = [
    "Column",
    "DiskFull",
    "DiskTrouble",
    "EscapingFile",
    "FileEntry",
    "InvalidInstanceUuid",
    "Manifest",
    "ManifestConflict",
    "ManifestDamaged",
    "ManifestMissing",
    "ManifestState",
    "NewerManifest",
    "ReadOnlyWarehouse",
    "TableSchema",
    "UriType",
    "Warehouse",
    "describe_files",
    "file_paths",
    "missing_files",
    "publish_files",
    "read_manifest",
    "read_table",
    "write_manifest",
]
