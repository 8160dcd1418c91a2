"""A snapshot of an Iceberg table that rewrites few manifests.

Entries are in the order of their partitions, as in the leaves of a B-tree: a manifest has at most `MAX_FILES` entries, a move
rewrites the manifests whose bounds hold any of its partitions, and a new partition goes to its neighbours. pyiceberg's own
`overwrite()` reads all manifests that may hold a removed file, and adds two per snapshot. Below: which snapshots are kept, which
expire, and with them their manifests; tags.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import DateType, PrimitiveType, TimestamptzType

from databuild_dagster.features.tables.port import Listed, Mark, Partition
from databuild_dagster.model.logs import log_failure, logger

#: Keys of a snapshot's summary, and of the properties of a table.
STORE_ID: Final = "databuild.store-id"
SEQ: Final = "databuild.seq"
FINGERPRINT: Final = "databuild.fingerprint"

#: Live files of a manifest. A manifest of 2,000 files is read and written in 0.1 s.
MAX_FILES: Final = 2_000

#: The values of a partition as Iceberg stores them: days, microseconds, text.
Values = tuple[Any, ...]

_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_log = logger(__name__)


@dataclass
class Moved:
    """The change from a snapshot to the next."""

    #: Manifests that stay as they are.
    untouched: list[ManifestFile] = field(default_factory=list)
    #: Entries of the other manifests whose files stay.
    staying: list[ManifestEntry] = field(default_factory=list)
    removed: list[ManifestEntry] = field(default_factory=list)
    #: The partition and the url of each file that the table has not.
    new: list[tuple[Values, str]] = field(default_factory=list)
    #: The new snapshot has the rows of the snapshot before it, in other files.
    keeps_rows: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.removed or self.new)


def moved(
    manifests: Sequence[ManifestFile],
    types: Sequence[PrimitiveType],
    wanted: Mapping[Values, Iterable[str]],
    entries_of: Callable[[ManifestFile], list[ManifestEntry]],
    *,
    is_whole: bool,
) -> Moved:
    """The change after which the wanted partitions have the wanted urls; with `is_whole` any other partition has none."""
    found = Moved()
    present: set[str] = set()
    urls = {url for urls in wanted.values() for url in urls}
    for manifest in manifests:
        if manifest.content is not ManifestContent.DATA:
            # Another writer has deleted rows, which the log does not know; only a whole snapshot comes after one.
            continue
        if not is_whole and not any(_may_hold(manifest, types, values) for values in wanted):
            found.untouched.append(manifest)
            continue
        for entry in entries_of(manifest):
            values = values_of(entry.data_file)
            if (is_whole or values in wanted) and entry.data_file.file_path not in urls:
                found.removed.append(entry)
            else:
                found.staying.append(entry)
                present.add(entry.data_file.file_path)
    found.new = [(values, url) for values, urls in wanted.items() for url in urls if url not in present]
    if not found.is_empty:
        _take_neighbours(found, types, entries_of)
    return found


def _take_neighbours(
    found: Moved, types: Sequence[PrimitiveType], entries_of: Callable[[ManifestFile], list[ManifestEntry]]
) -> None:
    """Rewrite for each new partition the manifest before it, unless that is full and the partition is behind it."""
    live = [manifest for manifest in found.untouched if _n_live(manifest)]
    found.untouched = live
    if not types or not live:
        return
    in_order = sorted(live, key=lambda manifest: _bounds(manifest, types)[0])
    lows = [_bounds(manifest, types)[0][0] for manifest in in_order]
    taken: dict[str, ManifestFile] = {}
    has_room = bool(found.staying or found.removed)
    for values, _ in found.new:
        place = max(bisect_right(lows, values[0]) - 1, 0)
        neighbour = in_order[place]
        is_behind_all = place == len(in_order) - 1 and values[0] > _bounds(neighbour, types)[1][0]
        if (has_room and not is_behind_all) or (is_behind_all and _n_live(neighbour) >= MAX_FILES):
            continue
        taken[neighbour.manifest_path] = neighbour
    for manifest in taken.values():
        found.staying += entries_of(manifest)
    found.untouched = [manifest for manifest in live if manifest.manifest_path not in taken]


def _n_live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _bounds(manifest: ManifestFile, types: Sequence[PrimitiveType]) -> tuple[Values, Values]:
    summaries = manifest.partitions or []
    lows = tuple(from_bytes(kind, one.lower_bound) for kind, one in zip(types, summaries, strict=True))  # type: ignore[arg-type]
    highs = tuple(from_bytes(kind, one.upper_bound) for kind, one in zip(types, summaries, strict=True))  # type: ignore[arg-type]
    return lows, highs


def _may_hold(manifest: ManifestFile, types: Sequence[PrimitiveType], values: Values) -> bool:
    if not _n_live(manifest):
        return False
    lows, highs = _bounds(manifest, types)
    return all(low <= value <= high for low, value, high in zip(lows, values, highs, strict=True))


def values_of(file: DataFile) -> Values:
    """The partition of a file."""
    return tuple(file.partition[position] for position in range(len(file.partition)))


class MovingFiles(_SnapshotProducer["MovingFiles"]):
    """Produces the snapshot of a change. A conflict is the caller's, who has to look at the table and the log again."""

    def __init__(
        self, transaction: Transaction, io: FileIO, change: Moved, added: Sequence[DataFile], properties: dict[str, str]
    ) -> None:
        operation = Operation.APPEND
        if change.removed:
            operation = Operation.OVERWRITE if added else Operation.DELETE
        super().__init__(operation, transaction, io, snapshot_properties=properties)
        self._change = change
        self._added_data_files = list(added)
        self._deleted_data_files = {entry.data_file for entry in change.removed}

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        # pyiceberg refuses to count the totals of a replace.
        return Summary(Operation.REPLACE, **summary.additional_properties) if self._change.keeps_rows else summary

    def _manifests(self) -> list[ManifestFile]:
        entries = [
            *(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
                for file in self._added_data_files
            ),
            *(_with_status(entry, ManifestEntryStatus.EXISTING) for entry in self._change.staying),
            *(
                _with_status(entry, ManifestEntryStatus.DELETED, _without_values(entry.data_file))
                for entry in self._change.removed
            ),
        ]
        entries.sort(key=lambda entry: (values_of(entry.data_file), entry.data_file.file_path))
        return [*(self._written(some) for some in _in_parts(entries)), *self._change.untouched]

    def _written(self, entries: Sequence[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self._transaction.table_metadata.spec()) as writer:
            for entry in entries:
                match entry.status:
                    case ManifestEntryStatus.ADDED:
                        writer.add(entry)
                    case ManifestEntryStatus.EXISTING:
                        writer.existing(entry)
                    case ManifestEntryStatus.DELETED:
                        writer.delete(entry)
        return writer.to_manifest_file()

    def _deleted_entries(self) -> list[ManifestEntry]:
        raise NotImplementedError("_manifests has them")

    def _existing_manifests(self) -> list[ManifestFile]:
        raise NotImplementedError("_manifests has them")

    def _refresh_for_retry(self) -> None:
        raise CommitFailedException("another writer was faster")


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, data_file: DataFile | None = None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=data_file or entry.data_file,
    )


def _without_values(data_file: DataFile) -> DataFile:
    """Of a file that leaves, no value of a row stays in the metadata (rule 10.11)."""
    names = [field.name for field in DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields if not field.name.endswith("_bounds")]
    return DataFile.from_args(spec_id=data_file.spec_id, **{name: getattr(data_file, name) for name in names})


def _in_parts(entries: Sequence[ManifestEntry]) -> Iterator[Sequence[ManifestEntry]]:
    """As few parts as can be, of about the same length. Removed files do not count, or each move would split a full manifest."""
    n_live = sum(entry.status is not ManifestEntryStatus.DELETED for entry in entries)
    n_parts = max(ceil(n_live / MAX_FILES), 1) if entries else 0
    for part in range(n_parts):
        yield entries[part * len(entries) // n_parts : (part + 1) * len(entries) // n_parts]


def stored(partition: Partition) -> Values:
    """The values of a partition as the metadata has them."""
    return tuple(map(_stored_value, partition))


def _stored_value(value: date | datetime | str) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH_DAY).days if isinstance(value, date) else value


def typed(values: Values, types: Sequence[PrimitiveType]) -> Partition:
    """The partition of values in the metadata; `types` are the types of the partition columns."""
    return tuple(_typed_value(value, kind) for value, kind in zip(values, types, strict=True))


def _typed_value(value: Any, kind: PrimitiveType) -> date | datetime | str:
    if isinstance(kind, DateType):
        return _EPOCH_DAY + timedelta(days=value)
    if isinstance(kind, TimestamptzType):
        return _EPOCH + timedelta(microseconds=value)
    return str(value)


def mark_of(snapshot: IcebergSnapshot) -> Mark | None:
    """The mark in the summary of a snapshot; None for a snapshot of a foreign writer."""
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    if SEQ not in summary:
        return None
    return Mark(summary[STORE_ID], int(summary[SEQ]), summary.get(FINGERPRINT, ""))


def rows_of(table: PyIcebergTable, snapshot_id: int) -> int | None:
    """The rows of the table in a snapshot; None if it has expired or does not count them."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return None
    rows = snapshot.summary.additional_properties.get("total-records")
    return None if rows is None else int(rows)


def in_order(table: PyIcebergTable) -> list[IcebergSnapshot]:
    """The snapshots, oldest first."""
    return sorted(table.snapshots(), key=lambda snapshot: (snapshot.timestamp_ms, snapshot.sequence_number or 0))


def kept_snapshots(table: PyIcebergTable, since: float) -> list[IcebergSnapshot]:
    """The snapshots that were the newest at or after a time, or that a branch or a tag names."""
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    snapshots = in_order(table)
    ends = [*(snapshot.timestamp_ms for snapshot in snapshots[1:]), float("inf")]
    return [
        snapshot
        for snapshot, end in zip(snapshots, ends, strict=True)
        if end >= since * 1000 or snapshot.snapshot_id in named
    ]


def listed(table: PyIcebergTable) -> list[Listed]:
    """The snapshots with a mark, newest first, and their tags."""
    tags: dict[int, list[str]] = {}
    for name, reference in table.metadata.refs.items():
        if reference.snapshot_ref_type == SnapshotRefType.TAG:
            tags.setdefault(reference.snapshot_id, []).append(name)
    return [
        Listed(snapshot.snapshot_id, mark, tuple(sorted(tags.get(snapshot.snapshot_id, ()))))
        for snapshot in reversed(in_order(table))
        if (mark := mark_of(snapshot)) is not None
    ]


def manifests_of(table: PyIcebergTable, snapshots: Iterable[IcebergSnapshot]) -> dict[str, ManifestFile]:
    """The manifests of snapshots by path; a manifest that several snapshots share is read once."""
    return {manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(table.io)}


def expire(table: PyIcebergTable, since: float) -> int:
    """Expire all but the kept snapshots, and remove manifests that no kept snapshot has; returns the number of snapshots.

    A snapshot that a different publisher commits meanwhile follows the newest snapshot, which is kept, so it has no manifest of an
    expired snapshot. A process that dies before the removal leaves some kilobytes that no snapshot lists.
    """
    kept = kept_snapshots(table, since)
    ids = {snapshot.snapshot_id for snapshot in kept}
    expired = [snapshot for snapshot in table.snapshots() if snapshot.snapshot_id not in ids]
    if not expired:
        return 0
    lists = {snapshot.manifest_list for snapshot in expired}
    unused = manifests_of(table, expired).keys() - manifests_of(table, kept).keys()
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
    _remove(table, sorted({*unused, *lists}))
    return len(expired)


def _remove(table: PyIcebergTable, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            table.io.delete(path)
        except FileNotFoundError:
            continue
        except Exception as error:
            # Each storage of pyiceberg has errors of its own; no snapshot lists the file any longer.
            log_failure(_log, f"{path} of an expired snapshot was not removed", error)
