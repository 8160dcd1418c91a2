"""Bytes on a disk or in an object store: where an instance lies, and the manifest that says what it holds. Knows
no Spark and no Dagster.

Nothing here lists a directory to find out what to read: a manifest names the files, and what it does not name
is not data. Importing this package costs milliseconds; pyarrow is met only by the functions that open a
Parquet file, fsspec only where the warehouse is a url."""

from databuild_dagster.warehouse.errors import (
    AccessDenied,
    BucketMissing,
    DiskFull,
    DiskTrouble,
    EscapingFile,
    InvalidCacheSize,
    InvalidInstanceUuid,
    InvalidWarehouse,
    ListedFileLost,
    ManifestConflict,
    ManifestDamaged,
    ManifestMissing,
    NewerManifest,
    NotCreateOnly,
    ReadOnlyWarehouse,
    StorageLibraryMissing,
    StorageTrouble,
    StorageUnreachable,
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
    local_paths,
    missing_files,
    read_manifest,
    read_manifests,
    write_manifest,
)
from databuild_dagster.warehouse.parquet import describe_files, publish_files, read_table, schema_from_spark

__all__ = [
    "AccessDenied",
    "BucketMissing",
    "Column",
    "DiskFull",
    "DiskTrouble",
    "EscapingFile",
    "FileEntry",
    "InvalidCacheSize",
    "InvalidInstanceUuid",
    "InvalidWarehouse",
    "ListedFileLost",
    "Manifest",
    "ManifestConflict",
    "ManifestDamaged",
    "ManifestMissing",
    "ManifestState",
    "NewerManifest",
    "NotCreateOnly",
    "ReadOnlyWarehouse",
    "StorageLibraryMissing",
    "StorageTrouble",
    "StorageUnreachable",
    "TableSchema",
    "UriType",
    "Warehouse",
    "describe_files",
    "file_paths",
    "local_paths",
    "missing_files",
    "publish_files",
    "read_manifest",
    "read_manifests",
    "read_table",
    "schema_from_spark",
    "write_manifest",
]
