"""The snapshots of an Iceberg table: which are kept, which expire, and with them their manifests; tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.types import DateType, PrimitiveType, TimestamptzType

from databuild_dagster.features.tables.iceberg_manifests import Values
from databuild_dagster.features.tables.port import Listed, Mark, Partition
from databuild_dagster.model.logs import log_failure, logger

_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stored(partition: Partition) -> Values:
    """The values of a partition as the metadata has them."""
    return tuple(map(_stored_value, partition))


def _stored_value(value: date | datetime | str) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH_DAY).days if isinstance(value, date) else value


def typed(values: Values, types: Sequence[PrimitiveType]) -> Partition:
    """The partition of values in the metadata; `types` are those of the partition columns."""
    return tuple(_typed_value(value, kind) for value, kind in zip(values, types, strict=True))


def _typed_value(value: Any, kind: PrimitiveType) -> date | datetime | str:
    if isinstance(kind, DateType):
        return _EPOCH_DAY + timedelta(days=value)
    if isinstance(kind, TimestamptzType):
        return _EPOCH + timedelta(microseconds=value)
    return str(value)


#: Keys of a snapshot's summary, and of the properties of a table.
STORE_ID: Final = "databuild.store-id"
SEQ: Final = "databuild.seq"
FINGERPRINT: Final = "databuild.fingerprint"

_log = logger(__name__)


def mark_of(snapshot: IcebergSnapshot) -> Mark | None:
    """The mark in the summary of a snapshot; None for one of another writer."""
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
    """The snapshots that were the newest at or after a time, and those that a branch or a tag names."""
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
    """The manifests of snapshots by path; those that several share are read once."""
    return {manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(table.io)}


def expire(table: PyIcebergTable, since: float) -> int:
    """Expire all but the kept snapshots, and remove the manifests that no kept one has; returns the number of snapshots.

    A snapshot that another publisher commits meanwhile follows the newest one, which is kept, so it has no manifest of an
    expired one. A process that dies before the removal leaves some kilobytes that no snapshot lists.
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
        except (
            Exception
        ) as error:  # Each storage of pyiceberg has errors of its own; no snapshot lists the file any longer.
            log_failure(_log, f"{path} of an expired snapshot was not removed", error)
