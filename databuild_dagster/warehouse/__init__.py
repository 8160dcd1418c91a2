"""Bytes on a disk or in an object store: where an instance lies, and the manifest that says what it holds. Knows
no Spark and no Dagster.

Nothing here lists a directory to find out what to read: a manifest names the files, and what it does not name
is not data. Importing this package costs milliseconds; pyarrow is met only by the functions that open a
data file, fsspec only where the warehouse is a url."""

from databuild_dagster.warehouse.disk import remove_tree
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
    UnknownFormat,
    UnreadableFile,
)
from databuild_dagster.warehouse.file_index import FilesRead, narrowed, without_needless_files
from databuild_dagster.warehouse.files import (
    as_spark_writes,
    describe_files,
    publish_files,
    read_table,
    schema_from_spark,
    table_schema,
)
from databuild_dagster.warehouse.formats import WRITTEN, FileFormat, format_named
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
    with_whole_uris,
    write_manifest,
)
from databuild_dagster.warehouse.samples import first_rows

__all__ = [
    "WRITTEN",
    "AccessDenied",
    "BucketMissing",
    "Column",
    "DiskFull",
    "DiskTrouble",
    "EscapingFile",
    "FileEntry",
    "FileFormat",
    "FilesRead",
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
    "UnknownFormat",
    "UnreadableFile",
    "UriType",
    "Warehouse",
    "as_spark_writes",
    "describe_files",
    "file_paths",
    "first_rows",
    "format_named",
    "local_paths",
    "missing_files",
    "narrowed",
    "publish_files",
    "read_manifest",
    "read_manifests",
    "read_table",
    "remove_tree",
    "schema_from_spark",
    "table_schema",
    "with_whole_uris",
    "without_needless_files",
    "write_manifest",
]
