"""Queries of the clean-up: the facts about instances on which their removal depends (rule 10.8)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from databuild_dagster.model.operations.records import operated_on
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED, RemovalFacts, left_by
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS
from databuild_dagster.store.format import PREFIX as P
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.asking import Selection, dataset_range
from databuild_dagster.store.store import Store
from databuild_dagster.store.work.builds import OLDEST_OPEN, POINTINGS


class Removable(NamedTuple):
    """An instance with its data and the facts that keep it."""

    uuid: str
    ref: Ref
    held: RemovalFacts
    manifest_uri: str | None
    files: int
    bytes: int
    #: The time since which no reader begins with it.
    left_at: float
    job_run: str
    job_run_state: JobRunState
    launch_id: str


class StoredInstance(NamedTuple):
    """An instance and the place of its manifest, if that is known."""

    uuid: str
    ref: Ref
    manifest_uri: str | None


class _Found(NamedTuple):
    """An instance with fields of its ref, its job run and its launch."""

    uuid: str
    ref: Ref
    state: InstanceState
    canonical_state: InstanceState | None
    is_canonical: bool
    was_live: bool
    manifest_state: str | None
    manifest_uri: str | None
    is_from_outside: bool
    job_run_has_ended: bool
    is_wanted: bool
    files: int
    bytes: int
    job_run: str
    job_run_state: JobRunState
    launch_id: str
    instance_id: int
    ref_id: int
    #: The event that moved it last.
    moved_seq: int


_FOUND = Selection(
    _Found,
    "i",
    ref="r.ref",
    canonical_state="r.state",
    is_canonical="r.canonical_id = i.id",
    is_from_outside="i.origin IS NOT NULL",
    job_run_has_ended="j.ended_at IS NOT NULL",
    is_wanted="r.n_open_wants > 0",
    files="coalesce(i.n_files, 0)",
    bytes="coalesce(i.n_bytes, 0)",
    job_run="j.job_run_id",
    job_run_state="j.state",
    launch_id="l.launch_id",
    instance_id="i.id",
    ref_id="r.id",
    moved_seq=f"(SELECT max(h.seq) FROM {P}history h WHERE h.entity_id = i.id AND h.kind = 'instances')",
)
_SELECT = f"""
SELECT {_FOUND.columns}
FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id JOIN {P}job_runs j ON j.id = i.job_run_id
JOIN {P}launches l ON l.id = j.launch_id """

#: Fields of the results that are columns of the query.
_HELD_AS_FOUND = [name for name in RemovalFacts._fields if name in _Found._fields]
_REMOVABLE_AS_FOUND = [name for name in Removable._fields if name in _Found._fields]

_STORED = Selection(StoredInstance, "i", ref="r.ref")

#: All instances of refs with several instances, or with a tainted instance.
_CHAINS = f"""
WITH RECURSIVE chain(id) AS (
    SELECT r.last_id FROM {P}refs r JOIN {P}instances n ON n.id = r.last_id
    WHERE (r.ref = ? OR (r.ref >= ? AND r.ref < ?)) AND (n.previous_id IS NOT NULL OR r.state = '{InstanceState.TAINTED}')
    UNION ALL
    SELECT p.previous_id FROM chain JOIN {P}instances p ON p.id = chain.id WHERE p.previous_id IS NOT NULL
) """


class Removals:
    """The queries of the clean-up."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._meta = MetaQueries(store)

    def of_uuids(self, uuids: Iterable[str]) -> dict[str, Removable]:
        """The existing instances among `uuids`."""
        answer = self._store.ask(_SELECT + "WHERE i.uuid IN (SELECT value FROM json_each(?))", (Keys(uuids),))
        return {removable.uuid: removable for removable in self._removable(answer)}

    def of_dataset(self, asset: str) -> list[Removable]:
        """Every instance of each ref with several instances or a tainted instance; by ref, the newest first."""
        sql = f"{_CHAINS} {_SELECT} WHERE i.id IN (SELECT id FROM chain) ORDER BY r.ref, i.id DESC"
        return self._removable(self._store.ask(sql, dataset_range(asset)))

    def with_data(self, asset: str) -> list[Removable]:
        """Every instance of a dataset that was live and whose data is there; by ref, oldest first.

        Instances from outside are included after a removal of their data: their files are still in place.
        """
        sql = f"""{_SELECT}
            WHERE (r.ref = ? OR (r.ref >= ? AND r.ref < ?)) AND i.was_live = 1 AND i.manifest_uri IS NOT NULL
            AND (i.manifest_state <> '{REMOVED}' OR i.origin IS NOT NULL) ORDER BY r.ref, i.id"""
        return self._removable(self._store.ask(sql, dataset_range(asset)))

    def unfinished(self) -> list[StoredInstance]:
        """Removals in progress, perhaps of a dead process; by the index of unfinished removals."""
        sql = f"""
            SELECT {_STORED.columns} FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
            WHERE i.manifest_state = '{REMOVED}' AND i.cleared_at IS NULL ORDER BY i.id"""
        return _STORED.rows(self._store.ask(sql), manifest_uri=self._store.places.whole)

    def outside(self) -> list[StoredInstance]:
        """Instances whose files belong to a foreign program."""
        sql = f"""
            SELECT {_STORED.columns} FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
            WHERE i.origin IS NOT NULL AND i.manifest_state = 'complete' ORDER BY i.id"""
        return _STORED.rows(self._store.ask(sql), manifest_uri=self._store.places.whole)

    def assets(self) -> list[str]:
        """Every dataset that was ever registered, because the data of unregistered datasets exists."""
        return [asset for (asset,) in self._store.ask(f"SELECT asset FROM {P}datasets ORDER BY asset")]

    def _removable(self, answer: list[tuple[Any, ...]]) -> list[Removable]:
        instances = _FOUND.rows(answer, manifest_uri=self._store.places.whole)
        pointings: dict[int, list[tuple[int, int]]] = defaultdict(list)
        refs = Keys({found.ref_id for found in instances})
        for ref_id, seq, instance_id in sorted(self._store.ask(POINTINGS, (refs, refs))):
            pointings[ref_id].append((seq, instance_id))
        building_since = self._building_since()
        assets = {asset_of(found.ref) for found in instances}
        operated = operated_on(assets, lambda keys: self._meta.get_all(keys).entries)
        left = [left_by(found.instance_id, pointings[found.ref_id], found.moved_seq) for found in instances]
        times = f"SELECT seq, at FROM {P}events WHERE seq IN (SELECT value FROM json_each(?))"
        at = dict(self._store.ask(times, (Keys(left),)))
        removable = []
        for found, left_seq in zip(instances, left, strict=True):
            fields = found._asdict()
            held = RemovalFacts(
                **{name: fields[name] for name in _HELD_AS_FOUND},
                has_manifest=found.manifest_uri is not None,
                is_operated_on=found.uuid in operated,
                left_seq=left_seq,
                building_since=building_since,
            )
            as_found = {name: fields[name] for name in _REMOVABLE_AS_FOUND}
            removable.append(Removable(**as_found, held=held, left_at=at[left_seq]))
        return removable

    def _building_since(self) -> int | None:
        ((oldest,),) = self._store.ask(OLDEST_OPEN)
        return None if oldest is None else oldest >> BITS
