"""What is to be known of instances before their data is taken away (SPEC 10.8): of those with a name, and of a dataset's.

Nothing here is on the way of a build. A whole dataset is read by its refs' chains of instances, as history is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from databuild_dagster.model.operations.records import operated_on
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.removals import Held, left_by
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.schema import PREFIX as P
from databuild_dagster.store.store import Store
from databuild_dagster.store.unit_of_work import OLDEST_OPEN, POINTINGS
from databuild_dagster.store.unit_of_work import ROWS_PER_EVENT_BITS as BITS


class Removable(NamedTuple):
    """One instance, with what holds its data and what that is."""

    uuid: str
    ref: str
    held: Held
    manifest_uri: str | None
    files: int
    bytes: int
    #: Since when nobody begins to read it, if nobody does.
    left_at: float
    job_run: str
    job_run_state: JobRunState
    launch_id: str


class Stored(NamedTuple):
    """An instance, and where its manifest is, as far as that is known."""

    uuid: str
    ref: str
    manifest_uri: str | None


#: Newest first, so that the first of each ref are those to keep.
_SELECT = f"""
SELECT i.uuid, r.ref, i.state, r.state, r.canonical_id = i.id, i.was_live, i.manifest_state, i.manifest_uri,
       i.origin IS NOT NULL, j.ended_at IS NOT NULL, r.n_open_wants > 0, i.n_files, i.n_bytes, j.job_run_id, j.state,
       l.launch_id, i.id, r.id,
       (SELECT max(h.seq) FROM {P}history h WHERE h.entity_id = i.id AND h.kind = 'instances')
FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id JOIN {P}job_runs j ON j.id = i.job_run_id
JOIN {P}launches l ON l.id = j.launch_id """

#: Refs that have more than one instance, or whose only one is tainted, and all their instances.
_CHAINS = f"""
WITH RECURSIVE chain(id) AS (
    SELECT r.last_id FROM {P}refs r JOIN {P}instances n ON n.id = r.last_id
    WHERE (r.ref = ? OR (r.ref >= ? AND r.ref < ?)) AND (n.previous_id IS NOT NULL OR r.state = 'Tainted')
    UNION ALL
    SELECT p.previous_id FROM chain JOIN {P}instances p ON p.id = chain.id WHERE p.previous_id IS NOT NULL
) """


class Removals:
    """Every question that a clean-up asks of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._meta = MetaQueries(store)

    def of_uuids(self, uuids: Iterable[str]) -> dict[str, Removable]:
        """Those that exist."""
        rows = self._store.ask(_SELECT + "WHERE i.uuid IN (SELECT value FROM json_each(?))", (Keys(uuids),))
        return {each.uuid: each for each in self._removable(rows)}

    def of_dataset(self, asset: str) -> list[Removable]:
        """Every instance of each ref that has more than one, or a tainted one; by ref, the newest first."""
        sql = f"{_CHAINS} {_SELECT} WHERE i.id IN (SELECT id FROM chain) ORDER BY r.ref, i.id DESC"
        return self._removable(self._store.ask(sql, (asset, f"{asset}@", asset + chr(ord("@") + 1))))

    def unfinished(self) -> list[Stored]:
        """Data that is being taken away, perhaps by somebody who has died; by the index of what is not finished."""
        sql = f"""
            SELECT i.uuid, r.ref, i.manifest_uri FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
            WHERE i.manifest_state = 'removed' AND i.cleared_at IS NULL ORDER BY i.id"""
        return [Stored(*row) for row in self._store.ask(sql)]

    def outside(self) -> list[Stored]:
        """Instances whose files lie where somebody else has put them."""
        sql = f"""
            SELECT i.uuid, r.ref, i.manifest_uri FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
            WHERE i.origin IS NOT NULL AND i.manifest_state = 'complete' ORDER BY i.id"""
        return [Stored(*row) for row in self._store.ask(sql)]

    def assets(self) -> list[str]:
        """Every dataset that was ever registered: the data of those that no location tells of any more is there."""
        return [asset for (asset,) in self._store.ask(f"SELECT asset FROM {P}datasets ORDER BY asset")]

    def _removable(self, rows: list[Any]) -> list[Removable]:
        pointings: dict[int, list[tuple[int, int]]] = defaultdict(list)
        refs = Keys({row[17] for row in rows})
        for ref_id, seq, instance_id in sorted(self._store.ask(POINTINGS, (refs, refs))):
            pointings[ref_id].append((seq, instance_id))
        building_since = self._building_since()
        operated = operated_on({asset_of(row[1]) for row in rows}, lambda keys: self._meta.get_all(keys).entries)
        left = [left_by(row[16], pointings[row[17]], row[18]) for row in rows]
        at = dict(
            self._store.ask(
                f"SELECT seq, at FROM {P}events WHERE seq IN (SELECT value FROM json_each(?))", (Keys(left),)
            )
        )
        return [
            Removable(
                uuid=row[0],
                ref=row[1],
                held=Held(
                    state=InstanceState(row[2]),
                    canonical_state=None if row[3] is None else InstanceState(row[3]),
                    is_canonical=bool(row[4]),
                    was_live=bool(row[5]),
                    manifest_state=row[6],
                    has_manifest=row[7] is not None,
                    is_from_outside=bool(row[8]),
                    job_run_has_ended=bool(row[9]),
                    is_wanted=bool(row[10]),
                    is_operated_on=row[0] in operated,
                    left_seq=left_seq,
                    building_since=building_since,
                ),
                manifest_uri=row[7],
                files=row[11] or 0,
                bytes=row[12] or 0,
                left_at=at[left_seq],
                job_run=row[13],
                job_run_state=JobRunState(row[14]),
                launch_id=row[15],
            )
            for row, left_seq in zip(rows, left, strict=True)
        ]

    def _building_since(self) -> int | None:
        ((oldest,),) = self._store.ask(OLDEST_OPEN)
        return None if oldest is None else oldest >> BITS
