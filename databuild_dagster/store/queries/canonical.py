"""What readers of refs see, now or when the log ended at an earlier event (SPEC 3.2, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from databuild_dagster.model.events import ManifestRemoved
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.queries.asking import MAX_SEQ, OF_DATASET, STATES, Asking, dataset_range
from databuild_dagster.store.schema import PREFIX
from databuild_dagster.store.unit_of_work import ROWS_PER_EVENT_BITS as BITS


class Canonical(NamedTuple):
    """What readers of a ref see; `state` None when it is missing."""

    ref: str
    state: InstanceState | None = None
    uuid: str | None = None
    job_run: str | None = None
    retry_at: float | None = None
    reason: str | None = None
    code_version: str | None = None
    manifest_state: str | None = None
    manifest_uri: str | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    origin: str | None = None
    live_at: float | None = None
    #: Where data from outside was last known from, whatever became of it.
    known_origin: str | None = None


_CANONICAL = f"""
SELECT r.ref, i.state, i.uuid, j.job_run_id, i.retry_at, i.reason, i.code_version, i.manifest_state, i.manifest_uri,
       i.n_files, i.n_rows, i.n_bytes, i.origin, i.live_at, r.origin
FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
WHERE """


#: What was canonical when the log ended at a seq: from the newest instance of each ref back to the first one that was
#: there by then, unless somebody had reverted to another since. An instance is canonical from its creation on (SPEC
#: 4.2), its id begins with the seq of its creation, and its state then is its last row of history that is not younger.
#: What it holds is told with its success, so an instance that had not been live by then had nothing of it.
_CANONICAL_AT = f"""
WITH RECURSIVE chain(ref_id, id) AS (
    SELECT r.id, r.last_id FROM {PREFIX}refs r WHERE r.last_id IS NOT NULL AND {{refs}}
    UNION ALL
    SELECT chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
    WHERE chain.id >= :end AND p.previous_id IS NOT NULL
)
SELECT r.ref,
       (SELECT h.to_state FROM {PREFIX}history h WHERE h.entity_id = i.id AND h.kind = 'instances' AND h.seq <= :seq
        ORDER BY h.seq DESC, h.place DESC LIMIT 1),
       i.uuid, j.job_run_id, NULL, NULL, CASE WHEN d.id IS NULL THEN l.code_version ELSE d.code_version END,
       CASE WHEN i.manifest_state = '{REMOVED}' THEN i.manifest_state ELSE d.manifest_state END, d.manifest_uri,
       d.n_files, d.n_rows, d.n_bytes, d.origin, d.live_at, NULL
FROM chain JOIN {PREFIX}refs r ON r.id = chain.ref_id
     JOIN {PREFIX}instances i ON i.id = coalesce(
        (SELECT v.instance_id FROM {PREFIX}reverts v
         WHERE v.ref_id = chain.ref_id AND v.seq <= :seq AND v.seq > (chain.id >> {BITS}) ORDER BY v.seq DESC LIMIT 1),
        chain.id)
     JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
     LEFT JOIN {PREFIX}instances d ON d.id = i.id AND EXISTS (
        SELECT 1 FROM {PREFIX}history h
        WHERE h.entity_id = i.id AND h.kind = 'instances' AND h.seq <= :seq AND h.to_state = 'Live')
WHERE chain.id < :end ORDER BY r.ref"""


def _canonical(row: tuple[Any, ...]) -> Canonical:
    return Canonical(row[0], InstanceState(row[1]), *row[2:])


def _before_removal(canonical: Canonical) -> Canonical:
    """With its manifest as it was then, if there was one: what has no files can only have been empty."""
    if canonical.manifest_state != REMOVED:
        return canonical
    complete = "complete" if canonical.files else "empty"
    return canonical._replace(manifest_state=None if canonical.manifest_uri is None else complete)


class CanonicalQueries(Asking):
    """What readers of refs see."""

    def canonical(self, refs: Sequence[str]) -> dict[str, Canonical]:
        """For every ref asked for, what readers see (SPEC 4)."""
        rows = self._all(_CANONICAL + "r.ref IN (SELECT value FROM json_each(?))", Keys(refs))
        found = {row[0]: _canonical(row) for row in rows}
        return {ref: found.get(ref) or Canonical(ref) for ref in refs}

    def states(self, refs: Iterable[str]) -> dict[str, InstanceState | None]:
        """Canonical states alone, for planning; missing refs are None."""
        wanted = list(refs)
        rows = self._all(
            f"SELECT ref, state FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))", Keys(wanted)
        )
        found = dict(rows)
        return {ref: STATES[found.get(ref)] for ref in wanted}

    def build_request_of_live(self, ref: str) -> str | None:
        """What built the live instance of a ref: its Dagster run, or its launch; None when it is not live."""
        rows = self._all(f"SELECT build_request_id FROM {PREFIX}available_partitions WHERE partition_ref = ?", ref)
        return rows[0][0] if rows else None

    def canonical_of_dataset(self, asset: str) -> list[Canonical]:
        """Every ref of a dataset that has an instance, ordered by ref."""
        return [_canonical(row) for row in self._all(_CANONICAL + OF_DATASET + "ORDER BY r.ref", *dataset_range(asset))]

    def newest_live(self, asset: str) -> Canonical | None:
        """The live instance of a dataset that was made last, one that has rows if there is any."""
        order = "AND i.state = 'Live' ORDER BY (coalesce(i.n_rows, 0) > 0) DESC, i.id DESC LIMIT 1"
        rows = self._all(_CANONICAL + OF_DATASET + order, *dataset_range(asset))
        return _canonical(rows[0]) if rows else None

    def canonical_at(self, refs: Sequence[str], seq: int) -> dict[str, Canonical]:
        """For every ref asked for, what its readers saw when `seq` was the last event (SPEC 3.2).

        The state is that of then, and so is what it held: nothing before it was live, and all of it until the log says
        that it was removed. Reasons and retries are left out.
        """
        found = self._canonical_at("r.ref IN (SELECT value FROM json_each(:refs))", {"refs": Keys(refs)}, seq)
        by_ref = {each.ref: each for each in found}
        return {ref: by_ref.get(ref) or Canonical(ref) for ref in refs}

    def canonical_of_dataset_at(self, asset: str, seq: int) -> list[Canonical]:
        """Every ref of a dataset that had an instance when `seq` was the last event, ordered by ref."""
        one, first, end = dataset_range(asset)
        of_dataset = "(r.ref = :one OR (r.ref >= :first AND r.ref < :after)) "
        return self._canonical_at(of_dataset, {"one": one, "first": first, "after": end}, seq)

    def _canonical_at(self, refs: str, parameters: dict[str, Any], seq: int) -> list[Canonical]:
        seq = min(seq, MAX_SEQ)
        named = {**parameters, "seq": seq, "end": (seq + 1) << BITS}
        with self._store.reading() as connection:
            found = [_canonical(row) for row in connection.execute(_CANONICAL_AT.format(refs=refs), named)]
            if all(each.manifest_state != REMOVED for each in found):
                return found
            # Data is seldom removed: what says when is the log, and no column that every instance would have.
            events = log.events_named(connection, Keys(["ManifestRemoved"]), 0, seq)
        gone = {uuid for event in events if isinstance(event.fact, ManifestRemoved) for uuid in event.fact.uuids}
        return [each if each.uuid in gone else _before_removal(each) for each in found]
