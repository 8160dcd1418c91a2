"""From the log to the contents of a table: the files of each partition as readers saw them at a seq (rule 3.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from databuild_dagster.data.read_plan import Gone, manifests_in
from databuild_dagster.engine.follower import MAX_EVENTS, all_touched
from databuild_dagster.features.tables.errors import FormatNotOfTables, KeyWithoutValue
from databuild_dagster.features.tables.port import Contents, Partition, Place, Source, TableFile
from databuild_dagster.model.datasets import DatasetSpec, PartitionColumn, PartitionType, TableSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.touched import TOUCHING
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import ListedFileLost, NotParquet
from databuild_dagster.warehouse.files import plain_type, table_schema
from databuild_dagster.warehouse.formats import WRITTEN
from databuild_dagster.warehouse.manifest import Manifest, file_paths
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
    """The columns of a file, all of which may have nulls, without metadata and without untyped columns."""
    import pyarrow as pa

    schema = footer.schema.to_arrow_schema()
    typed = [field for field in schema if not pa.types.is_null(field.type)]
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in typed])


def unpublishable(footer: pq.FileMetaData) -> tuple[str, str] | None:
    """The first column of a file that a table would have with a different type, and why."""
    import pyarrow as pa

    for field in footer.schema.to_arrow_schema():
        if pa.types.is_null(field.type):
            return field.name, "it has no value in a file of another program, and so no type"
    for column in table_schema(footer.schema.to_arrow_schema()).columns:
        if "interval" in column.type:
            return column.name, "it is an interval of time, for which tables have no type"
    return None


#: Between the dimensions of a multi-partition key.
BETWEEN_DIMENSIONS = "|"
#: Of two hours with the same local time, Dagster's key of the second ends with its offset; a key without an offset is the first.
_OFFSET = "%z"
_MAX_ZONES = 64


def values_of(asset: str, columns: Sequence[PartitionColumn], key: str | None) -> Partition:
    """The values of a key, a value per column. Raises `KeyWithoutValue`."""
    if not columns:
        return ()
    assert key is not None, f"{asset} has partitions"
    parts = [key] if len(columns) == 1 else key.split(BETWEEN_DIMENSIONS, len(columns) - 1)
    return tuple(_value(asset, column, part) for column, part in zip(columns, parts, strict=True))


def _value(asset: str, column: PartitionColumn, part: str) -> date | datetime | str:
    if column.type is PartitionType.STRING:
        return part
    at = _time(column.format, part)
    if at is None:
        raise KeyWithoutValue(asset=asset, key=part, type=column.type.value, format=column.format)
    if column.type is PartitionType.DATE:
        return at.date()
    return (at if at.tzinfo is not None else at.replace(tzinfo=_zone(column.timezone))).astimezone(UTC)


def _time(format: str, part: str) -> datetime | None:
    for candidate in (format, format + _OFFSET):
        try:
            return datetime.strptime(part, candidate)
        except ValueError:
            continue
    return None


@lru_cache(maxsize=_MAX_ZONES)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


#: Refs asked for at once.
PORTION: Final = 5_000


class Touches:
    """The refs of each dataset that a stretch of the log touches; the publishers of a tick share the answers."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._found: dict[tuple[int, int], dict[str, set[Ref]]] = {}

    def of(self, asset: str, after_seq: int, last_seq: int) -> Collection[Ref]:
        if (after_seq, last_seq) not in self._found:
            by_asset: dict[str, set[Ref]] = {}
            for start in range(after_seq, last_seq, MAX_EVENTS):
                events = self._queries.events.named(TOUCHING, start, min(last_seq, start + MAX_EVENTS))
                for ref in all_touched(self._queries, events):
                    by_asset.setdefault(asset_of(ref), set()).add(ref)
            self._found[after_seq, last_seq] = by_asset
        return self._found[after_seq, last_seq].get(asset, frozenset())


def contents_of_refs(
    queries: Queries, dataset: DatasetSpec, place: Place, refs: Collection[Ref], seq: int, gone: Gone, *, since: int
) -> Contents:
    """The contents of some partitions when `seq` was the last event, and which of them had equal rows when `since` was.

    Raises what reading the manifests raises.
    """
    in_order = sorted(refs)
    found = [
        canonical
        for start in range(0, len(in_order), PORTION)
        for canonical in queries.canonical.at(in_order[start : start + PORTION], seq).values()
    ]
    contents = _contents(dataset, place, found, gone, is_whole=False)
    equal = [
        values_of(place.asset, place.spec.columns, partition_key_of(ref))
        for start in range(0, len(contents.sources), PORTION)
        for ref in _unchanged(queries, contents.sources[start : start + PORTION], since)
    ]
    return contents._replace(equal=frozenset(equal))


def _unchanged(queries: Queries, sources: Sequence[Source], since: int) -> set[Ref]:
    """The refs of sources that had the same rows when `since` was the last event."""
    then = queries.canonical.at([source.ref for source in sources], since)
    return with_equal_rows(queries, {source.ref: (then[source.ref].uuid, source.uuid) for source in sources})


def with_equal_rows(queries: Queries, pairs: Mapping[Ref, tuple[str | None, str | None]]) -> set[Ref]:
    """The refs of which two instances have the same rows (rule 4.8). What an erasure has left equals nothing."""
    uuids = {uuid for pair in pairs.values() for uuid in pair if uuid is not None}
    roots = {uuid: uuid for uuid in uuids} | queries.instances.first_with_rows(uuids, with_erased=False)
    return {ref for ref, (one, other) in pairs.items() if one and other and roots[one] == roots[other]}


def contents_of_dataset(queries: Queries, dataset: DatasetSpec, place: Place, seq: int, gone: Gone) -> Contents:
    """The contents of all partitions when `seq` was the last event. Raises the same."""
    return _contents(dataset, place, queries.canonical.of_dataset_at(dataset.asset, seq), gone, is_whole=True)


def _contents(
    dataset: DatasetSpec, place: Place, found: Iterable[Canonical], gone: Gone, *, is_whole: bool
) -> Contents:
    # A dataset that got partitions later still has its earlier ref without a key.
    own = [one for one in found if (partition_key_of(one.ref) is None) is (dataset.partitions is None)]
    left_out = gone(dataset, [partition_key_of(one.ref) for one in own])
    shown = [one for one in own if is_shown(one, place.spec) and partition_key_of(one.ref) not in left_out]
    files: dict[Partition, list[TableFile]] = {}
    for canonical in own:
        try:
            files[values_of(place.asset, place.spec.columns, partition_key_of(canonical.ref))] = []
        except KeyWithoutValue:
            if canonical in shown:
                raise
    sources = []
    for manifest in manifests_in(place.warehouse, place.asset, shown):
        values = values_of(place.asset, place.spec.columns, partition_key_of(manifest.ref))
        files[values] = _files(place, manifest)
        sources.append(Source(manifest.ref, manifest.instance_uuid, manifest.job_run))
    return Contents(files, is_whole, sources)


def is_shown(canonical: Canonical, spec: TableSpec) -> bool:
    """Whether a table lists the files of what readers see."""
    if canonical.uuid is None or canonical.manifest_uri is None:
        return False
    if canonical.state is InstanceState.LIVE:
        return True
    # A failed instance can be tainted, too, and never had data.
    return spec.keep_tainted and canonical.state is InstanceState.TAINTED and canonical.live_at is not None


def _files(place: Place, manifest: Manifest) -> list[TableFile]:
    paths = file_paths(place.warehouse, manifest)
    if paths and manifest.format != WRITTEN.name:
        raise FormatNotOfTables(asset=place.asset, path=paths[0], format=manifest.format)
    return [TableFile(path, file.bytes, file.rows) for path, file in zip(paths, manifest.files, strict=True)]
