"""Iceberg by pyiceberg: a snapshot lists an instance's own Parquet files, and its summary has the mark (decision 0045).

The partition key is not in the files. An identity partition makes readers take it from the metadata, and a name mapping gives
the columns of the files their ids.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from weakref import finalize

import pyarrow as pa
import pyiceberg.catalog
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import (
    _pyarrow_to_schema_without_ids,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IcebergType, NestedField, PrimitiveType, StringType, TimestamptzType

from databuild_dagster.features.tables import errors, iceberg_manifests
from databuild_dagster.features.tables.iceberg_manifests import (
    FINGERPRINT,
    SEQ,
    STORE_ID,
    Moved,
    MovingFiles,
    Values,
    moved,
    stored,
    typed,
    values_of,
)
from databuild_dagster.features.tables.live_files import columns_of, read_footers, unpublishable
from databuild_dagster.features.tables.port import (
    METADATA_FOLDER,
    Contents,
    Listed,
    Mark,
    Partition,
    Place,
    Snapshot,
    Source,
    TableFile,
)
from databuild_dagster.model.datasets import PartitionType
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.redaction import keep_secrets_of
from databuild_dagster.model.wording import one_line
from databuild_dagster.warehouse.disk import Listed as ListedFile
from databuild_dagster.warehouse.disk import make_dirs
from databuild_dagster.warehouse.files import is_no_url, parts_of
from databuild_dagster.warehouse.storage import protocol_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: The file of the catalog that needs no configuration, in the warehouse.
CATALOG_FILE: Final = "iceberg.db"
#: Further keys of a snapshot's summary; the dataset is among the table's properties, too.
DATASET = "databuild.dataset"
INSTANCES, N_INSTANCES, JOB_RUNS = "databuild.instances", "databuild.instances-total", "databuild.job-runs"
#: Instances and job runs that a summary names; the number of all is beside them.
MAX_NAMED: Final = 100
#: Columns that Iceberg adds to each table.
_RESERVED = frozenset(
    ["_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"]
)
_TYPES: Final[Mapping[PartitionType, PrimitiveType]] = {
    PartitionType.DATE: DateType(),
    PartitionType.TIMESTAMP: TimestamptzType(),
    PartitionType.STRING: StringType(),
}
_FORMAT_VERSION: Final = 2
#: The least field id of partitions.
_FIRST_PARTITION_ID = 1000


class IcebergTable:
    """`Table` in a catalog of pyiceberg."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._facts = {"asset": place.asset, "table": place.spec.name}
        self._types = [_TYPES[column.type] for column in place.spec.columns]
        self._catalog = self._open_catalog()
        # Each tick opens tables again: the connections of the catalog end with the adapter.
        finalize(self, self._catalog.close)

    # Reading

    def mark(self) -> Mark | None:
        table = self.loaded()
        if table is None:
            return None
        self._check_partitions(table)
        snapshot = table.current_snapshot()
        if snapshot is None:
            # Made by a process that died before the first snapshot.
            return Mark(table.properties[STORE_ID], 0)
        mark = iceberg_manifests.mark_of(snapshot)
        if mark is None:
            raise errors.ForeignSnapshot(**self._facts, snapshot=snapshot.snapshot_id)
        return mark

    def files(self) -> dict[str, Partition]:
        table = self.loaded()
        snapshot = None if table is None else table.current_snapshot()
        if table is None or snapshot is None:
            return {}
        with self._reached():
            entries = [
                entry
                for manifest in snapshot.manifests(table.io)
                if manifest.content is ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(table.io)
            ]
        return {_path(entry.data_file.file_path): typed(values_of(entry.data_file), self._types) for entry in entries}

    def kept(self, since: float) -> set[str]:
        table = self.loaded()
        if table is None:
            return set()
        with self._reached():
            kept = iceberg_manifests.kept_snapshots(table, since)
            return {
                _path(entry.data_file.file_path)
                for manifest in iceberg_manifests.manifests_of(table, kept).values()
                for entry in manifest.fetch_manifest_entry(table.io)
            }

    def expire(self, since: float) -> int:
        table = self.loaded()
        if table is None:
            return 0
        with self._reached():
            return iceberg_manifests.expire(table, since)

    def history(self) -> Iterator[Listed]:
        table = self.loaded()
        return iter(() if table is None else iceberg_manifests.listed(table))

    def tag(self, name: str, snapshot: int) -> None:
        table = self.loaded()
        if table is None or table.snapshot_by_id(snapshot) is None:
            raise errors.SnapshotExpired(**self._facts, snapshot=snapshot)
        if (reference := table.metadata.refs.get(name)) is not None:
            if (reference.snapshot_id, reference.snapshot_ref_type) == (snapshot, SnapshotRefType.TAG):
                return
            raise errors.TagTaken(**self._facts, tag=name, found=reference.snapshot_id)
        with self._reached():
            table.manage_snapshots().create_tag(snapshot, name).commit()

    def own_metadata(self) -> list[ListedFile]:
        """The files of the metadata; none where a named catalog has the place of them."""
        if self._place.spec.catalog:
            return []
        try:
            return self._place.warehouse.storage.list_files(f"{self._folder}/metadata", deep=False)
        except FileNotFoundError:
            return []

    # Writing

    def replace(
        self, contents: Contents, mark: Mark, before: Mark | None, *, dry_run: bool = False, always: bool = False
    ) -> Snapshot | None:
        table, is_elsewhere = self._loaded_before(always=always)
        is_known = before is not None or not always
        if is_known and (None if table is None else self.mark()) != before:
            raise errors.PublishConflict(entity=f"the table {self._place.shown}")
        wanted = {
            stored(partition): {_url(file.path): file for file in files} for partition, files in contents.files.items()
        }
        change = self._change(table, wanted, is_whole=contents.is_whole)
        if change.is_empty and (table is None or not always):
            return None
        by_url = {url: file for files in wanted.values() for url, file in files.items()}
        if misnamed := next((url for _, url in change.new if is_no_url(url)), None):
            raise errors.NameNotOfTables(asset=self._place.asset, path=_path(misnamed))
        if dry_run:
            return Snapshot(None, len(change.new), len(change.removed))
        gone = [(typed(values_of(one.data_file), self._types), one.data_file.record_count) for one in change.removed]
        new = [(typed(values, self._types), by_url[url].rows) for values, url in change.new]
        equal = contents.keeping_rows(gone, new)
        change.keeps_rows = all(partition in equal for partition, _ in (*gone, *new))
        footers = read_footers([by_url[url] for _, url in change.new])
        schemas = self._schemas(change, footers, by_url)
        with self._reached():
            if is_elsewhere:
                # The files of the other place stay.
                self._catalog.drop_table(self._place.spec.name)
            if table is None:
                table = self._create(next(iter(schemas)), mark)
            return self._commit(table, change, footers, schemas, by_url, _summary(self._place, mark, contents.sources))

    def _loaded_before(self, *, always: bool) -> tuple[PyIcebergTable | None, bool]:
        """The table to change, and whether the catalog has a table of a different place, which `always` replaces."""
        try:
            return self.loaded(), False
        except errors.TableElsewhere:
            if not always:
                raise
            return None, True

    def _change(
        self, table: PyIcebergTable | None, wanted: Mapping[Values, Mapping[str, TableFile]], *, is_whole: bool
    ) -> Moved:
        snapshot = None if table is None else table.current_snapshot()

        def entries_of(manifest: ManifestFile) -> list[ManifestEntry]:
            assert table is not None, "it has the manifest"
            return manifest.fetch_manifest_entry(table.io)

        with self._reached():
            manifests = [] if table is None or snapshot is None else snapshot.manifests(table.io)
            return moved(manifests, self._types, wanted, entries_of, is_whole=is_whole)

    def _commit(
        self,
        table: PyIcebergTable,
        change: Moved,
        footers: Sequence[pq.FileMetaData],
        schemas: Mapping[pa.Schema, str],
        by_url: Mapping[str, TableFile],
        summary: dict[str, str],
    ) -> Snapshot:
        with table.transaction() as transaction:
            for schema, path in schemas.items():
                try:
                    with transaction.update_schema() as update:
                        update.union_by_name(self._schema_of(schema))
                except (ValidationError, ValueError, TypeError) as error:
                    raise errors.ColumnsDiffer(**self._facts, path=path, why=one_line(error).rstrip(".")) from error
            metadata = transaction.table_metadata
            plan = compute_statistics_plan(metadata.schema(), metadata.properties)
            columns = parquet_path_to_id_mapping(metadata.schema())
            added = [
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=url,
                    file_format=FileFormat.PARQUET,
                    partition=Record(*values),
                    file_size_in_bytes=by_url[url].bytes,
                    sort_order_id=None,
                    spec_id=metadata.default_spec_id,
                    equality_ids=None,
                    key_metadata=None,
                    **data_file_statistics_from_parquet_metadata(footer, plan, columns).to_serialized_dict(),
                )
                for (values, url), footer in zip(change.new, footers, strict=True)
            ]
            producer = MovingFiles(transaction, table.io, change, added, summary)
            producer.commit()
        return Snapshot(
            producer.snapshot_id,
            len(change.new),
            len(change.removed),
            iceberg_manifests.rows_of(table, producer.snapshot_id),
            _path(table.location()),
            _path(table.metadata_location),
        )

    def _create(self, columns: pa.Schema, mark: Mark) -> PyIcebergTable:
        fields = list(assign_fresh_schema_ids(self._schema_of(columns)).fields)
        names = [column.name for column in self._place.spec.columns]
        own = [
            NestedField(10_000 + position, name, kind, required=False)
            for position, (name, kind) in enumerate(zip(names, self._types, strict=True))
        ]
        schema = assign_fresh_schema_ids(Schema(*fields, *own))
        parts = [
            PartitionField(schema.find_field(name).field_id, _FIRST_PARTITION_ID + position, IdentityTransform(), name)
            for position, name in enumerate(names)
        ]
        namespace = self._place.spec.name.rpartition(".")[0]
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(namespace)
        try:
            return self._catalog.create_table(
                self._place.spec.name,
                schema=schema,
                location=None if self._place.spec.catalog else _url(self._folder),
                partition_spec=PartitionSpec(*parts) if parts else UNPARTITIONED_PARTITION_SPEC,
                properties={
                    "format-version": str(_FORMAT_VERSION),
                    STORE_ID: mark.store_id,
                    DATASET: self._place.asset,
                    TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json(),
                    # Other engines would remove the files of expired snapshots, which are those of instances.
                    "gc.enabled": "false",
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": "100",
                },
            )
        except TableAlreadyExistsError as error:
            raise errors.PublishConflict(entity=f"the table {self._place.shown}") from error

    def _schemas(
        self, change: Moved, footers: Sequence[pq.FileMetaData], by_url: Mapping[str, TableFile]
    ) -> dict[pa.Schema, str]:
        """The different columns of new files, each with the path of the first file that has them. Raises `ColumnRefused`."""
        found: dict[pa.Schema, str] = {}
        for (_, url), footer in zip(change.new, footers, strict=True):
            # They are decimals for Spark, which Iceberg does not read from integers.
            for column in footer.schema.to_arrow_schema():
                if any(map(pa.types.is_uint64, parts_of(column.type))):
                    raise self._without_type(column)
            schema = columns_of(footer)
            if refused := unpublishable(footer):
                raise errors.ColumnRefused(**self._facts, column=refused[0], why=refused[1])
            if schema not in found:
                found[schema] = by_url[url].path
                self._check_names(schema.names)
        return found

    def _check_names(self, names: Sequence[str]) -> None:
        own = {column.name.casefold(): column.name for column in self._place.spec.columns}
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(name.casefold(), name)
            if not name:
                why = "it has no name"
            elif name in _RESERVED:
                why = "Iceberg has a column of its own by that name"
            elif name.casefold() in own:
                why = errors.name_of_partition(own[name.casefold()], "Iceberg(…, partition_column=…)")
            elif other != name:
                why = f"many engines see {other!r} and {name!r} as one"
            else:
                continue
            raise errors.ColumnRefused(**self._facts, column=name, why=why)

    def _schema_of(self, columns: pa.Schema) -> Schema:
        """Raises `ColumnRefused`."""
        fields: list[NestedField] = []
        for column in columns:
            try:
                alone = _pyarrow_to_schema_without_ids(pa.schema([column]), downcast_ns_timestamp_to_us=True)
            except Exception as error:  # pyiceberg raises several types here.
                raise self._without_type(column) from error
            fields += alone.fields
        return Schema(*fields)

    def _without_type(self, column: pa.Field) -> errors.ColumnRefused:
        return errors.ColumnRefused(**self._facts, column=column.name, why=f"Iceberg has no type for {column.type}")

    def _check_partitions(self, table: PyIcebergTable) -> None:
        schema, spec = table.schema(), table.spec()
        found = [
            (field.name, schema.find_field(field.source_id).field_type, type(field.transform)) for field in spec.fields
        ]
        names = [column.name for column in self._place.spec.columns]
        own = [(name, kind, IdentityTransform) for name, kind in zip(names, self._types, strict=True)]
        if found != own:
            raise errors.PartitionColumnsDiffer(
                **self._facts, found=_listed(found) or "nothing", own=_listed(own) or "nothing"
            )

    # The catalog

    def _open_catalog(self) -> Catalog:
        name, root = self._place.spec.catalog, self._place.warehouse.root
        if name:
            check_is_configured(self._place)
            with self._reached():
                try:
                    return load_catalog(name)
                except (ValueError, KeyError) as error:
                    raise _unknown_catalog(self._place, one_line(error).rstrip(".")) from error
        if protocol_of(root) is not None:
            raise errors.NoPlaceForCatalog(asset=self._place.asset, root=root)
        make_dirs(root)
        with self._reached():
            return load_catalog("databuild", type="sql", uri=f"sqlite:///{root}/{CATALOG_FILE}", warehouse=_url(root))

    @property
    def _folder(self) -> str:
        """The folder of the metadata, where no catalog is named."""
        return f"{self._place.root}/{METADATA_FOLDER}"

    def loaded(self) -> PyIcebergTable | None:
        """pyiceberg's table as it is now; None if there is none.

        Raises `TableNotOurs`, `TableOfAnotherDataset`, `TableElsewhere`, `CatalogAway`.
        """
        with self._reached():
            try:
                table = self._catalog.load_table(self._place.spec.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            except FileNotFoundError as error:
                if self._place.spec.catalog:
                    raise
                raise errors.TableElsewhere(**self._facts, folder=self._folder) from error
        self._check_is_own(table)
        return table

    def _check_is_own(self, table: PyIcebergTable) -> None:
        if STORE_ID not in table.properties:
            raise errors.TableNotOurs(**self._facts)
        if (found := table.properties[DATASET]) != self._place.asset:
            # Names of assets may differ only in letters that a table's name does not have.
            raise errors.TableOfAnotherDataset(**self._facts, found=found)
        is_named = bool(self._place.spec.catalog)
        # The catalog of a copied home leads to the tables of the original.
        if not is_named and os.path.realpath(_path(table.location())) != os.path.realpath(self._folder):
            raise errors.TableElsewhere(**self._facts, folder=self._folder)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Errors of catalogs and of their storages, which are of any type, as ours. Raises `PublishConflict`, `CatalogAway`."""
        try:
            yield
        except (DatabuildError, AssertionError):
            raise
        except CommitFailedException as error:
            raise errors.PublishConflict(entity=f"the table {self._place.shown}") from error
        except CommitStateUnknownException as error:
            why = "it is not known whether the last snapshot was committed; the next look at the table shows it"
            raise errors.CatalogAway(**self._facts, why=why) from error
        except Exception as error:
            raise errors.CatalogAway(
                **self._facts, why=f"{type(error).__name__}: {one_line(error).rstrip('.')}"
            ) from error


def check_is_configured(place: Place) -> None:
    """Check that pyiceberg's configuration has the catalog of a place, and hide its secrets. Raises `UnknownCatalog`."""
    settings = pyiceberg.catalog._ENV_CONFIG.get_catalog_config(place.spec.catalog)
    if settings is None:
        raise _unknown_catalog(place, "its configuration has no such name")
    # Errors of a catalog may quote a token without its name.
    keep_secrets_of(settings)


def _unknown_catalog(place: Place, why: str) -> errors.UnknownCatalog:
    name = place.spec.catalog
    variable = name.upper().replace("-", "_")
    return errors.UnknownCatalog(asset=place.asset, catalog=name, variable=variable, why=why)


def _listed(parts: Sequence[tuple[str, IcebergType, type]]) -> str:
    return ", ".join(
        f"{name} ({kind}{'' if transform is IdentityTransform else f', {transform.__name__}'})"
        for name, kind, transform in parts
    )


def _summary(place: Place, mark: Mark, sources: Sequence[Source]) -> dict[str, str]:
    named = sources[:MAX_NAMED]
    return {
        STORE_ID: mark.store_id,
        SEQ: str(mark.seq),
        FINGERPRINT: mark.fingerprint,
        DATASET: place.asset,
        N_INSTANCES: str(len(sources)),
        INSTANCES: json.dumps([source.uuid for source in named]),
        JOB_RUNS: json.dumps(list(dict.fromkeys(source.job_run for source in named))),
    }


def _url(path: str) -> str:
    return path if protocol_of(path) is not None else f"file://{path}"


def _path(url: str) -> str:
    return url.removeprefix("file://")
