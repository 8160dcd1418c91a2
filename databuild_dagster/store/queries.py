"""Read-only questions to the state, as plain values. Key lookups and partial indexes; nothing here changes anything."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from databuild_dagster.model.datasets import DatasetSpec, dataset_from
from databuild_dagster.model.events import Event, JobRunStarted, MadeWith, ManifestRemoved
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import NEVER
from databuild_dagster.model.states import OPEN_WANTS, SCHEDULABLE, InstanceState, JobRunState, WantState
from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.schema import PREFIX
from databuild_dagster.store.store import Store
from databuild_dagster.store.unit_of_work import ROWS_PER_EVENT_BITS as BITS

#: Ids that begin with a larger one would not fit into the database's integers.
MAX_SEQ = (1 << (62 - BITS)) - 1

_list_decoder = msgspec.json.Decoder(tuple[str, ...])


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


class Instance(NamedTuple):
    """One build of a ref."""

    uuid: str
    ref: str
    state: InstanceState
    seq: int
    at: float
    job_run: str
    reason: str | None
    code_version: str | None
    manifest_state: str | None
    manifest_uri: str | None
    #: Uuids of the instances it was built from.
    inputs: tuple[str, ...]
    canonical: bool
    live_at: float | None
    #: Who had it built, in the words of the log.
    actor: str


class Kept(NamedTuple):
    """Whose the storage of an instance is."""

    ref: str
    state: InstanceState
    #: Whether its job run has ended, so that nobody writes to it any more.
    has_ended: bool
    #: Whether readers see it.
    is_canonical: bool

    @property
    def is_live(self) -> bool:
        return self.is_canonical and self.state is InstanceState.LIVE


class StateChange(NamedTuple):
    """One row of an instance's history: the state it came into, by which event, and when."""

    state: InstanceState
    seq: int
    at: float


class JobRunView(NamedTuple):
    """One job run with what its launch says of it."""

    id: str
    job: str
    partition_key: str | None
    refs: tuple[str, ...]
    state: JobRunState
    dagster_run_id: str | None
    launch_id: str
    buffered_at: float
    started_at: float | None
    ended_at: float | None
    error: str | None


class LaunchView(NamedTuple):
    """One launch."""

    launch_id: str
    job: str
    location: str
    owner: str
    holder: str | None
    dagster_run_id: str | None
    buffered_at: float
    started_at: float | None


class WantView(NamedTuple):
    """One want."""

    id: str
    request_id: str
    refs: tuple[str, ...]
    state: WantState
    source: str
    source_id: str | None
    comment: str
    priority: int
    created_at: float
    #: None for a want that never expires, or has no SLA.
    expires_at: float | None
    deadline: float | None
    #: When it was said that its SLA was missed.
    sla_missed_at: float | None
    #: Of when the data is that it asks for, as far as somebody said so.
    data_timestamp: float | None


class Asker(NamedTuple):
    """A want as the reason why an instance was built."""

    want_id: str
    request_id: str
    refs: tuple[str, ...]
    source: str
    source_id: str | None
    comment: str
    at: float
    #: Who recorded it, in the words of the log.
    actor: str


class DueRef(NamedTuple):
    """A ref that the orchestrator has to look at, with what its open wants add up to."""

    ref: str
    dataset_id: int
    priority: int
    deadline: float
    wanted_since: float
    #: Whether its last call named inputs that are not declared.
    has_learned: bool


class Standing(NamedTuple):
    """How a ref stands with those who might ask for it."""

    ref: str
    #: Of its canonical instance, None when it is missing.
    state: InstanceState | None
    #: Its backoff has not passed.
    backs_off: bool
    #: An open want within its TTL names it.
    is_wanted: bool

    @property
    def is_schedulable(self) -> bool:
        """SPEC 4.5."""
        return self.state in SCHEDULABLE and not self.backs_off


class Recorded(NamedTuple):
    """All that is recorded of a ref that gap reports ask for. A ref that nobody has named yet has none."""

    ref: str
    #: Of its canonical instance, as the two that follow; None when it is missing.
    state: InstanceState | None
    manifest_state: str | None
    retry_at: float | None
    n_open_wants: int
    #: The first of its open wants was recorded then, and the last one's TTL ends then.
    wanted_since: float
    wanted_until: float


class RecordedOfDataset(NamedTuple):
    """Refs of one dataset that somebody has named: those that are live, most of them, with the state of their manifest."""

    live: dict[str, str | None]
    others: dict[str, Recorded]


class LastWant(NamedTuple):
    """The newest want of a ref."""

    want_id: str
    state: WantState


class Change(NamedTuple):
    """A move of an instance, a want or a job run: from a state, None at birth, to another."""

    #: "instances", "wants" or "job_runs".
    kind: str
    #: A ref for an instance, else the id that people see.
    entity: str
    before: str | None
    after: str


class Wanted(NamedTuple):
    """What the open wants of a ref add up to, and how often it was tried."""

    n_open_wants: int = 0
    #: The first of them was recorded then, and the last one's TTL ends then; infinite where there is none.
    since: float = NEVER
    until: float = 0.0
    #: Failed attempts since it was last live or tainted (SPEC 6.8).
    attempts: int = 0


class LaunchSpan(NamedTuple):
    """How long a past launch worked on the job runs of it that succeeded."""

    n_job_runs: int
    #: From its start to the end of the first of them, and of the last.
    first_seconds: float
    seconds: float


class Need(NamedTuple):
    """A ref that another needs, as its last dep miss says, or waits for."""

    by: str
    ref: str
    state: InstanceState | None
    priority: int
    deadline: float
    #: Wanted, and built again when its backoff has passed.
    retries_later: bool
    #: Of the job run that missed it.
    code_version: str | None


class ArcView(NamedTuple):
    """An arc in force, and the event up to which it has been followed."""

    asset: str
    seq: int


class LateRef(NamedTuple):
    """A ref that is not live, and was to be by now for an open want."""

    ref: str
    #: The first deadline that has passed.
    deadline: float


class Taint(NamedTuple):
    """A taint of an instance."""

    taint_id: str
    reason: str
    actor: str
    created_at: float
    canceled_at: float | None


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

_NAMES = {
    "instances": f"SELECT i.id, r.ref FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id "
    "WHERE i.id IN (SELECT value FROM json_each(?))",
    "wants": f"SELECT id, want_id FROM {PREFIX}wants WHERE id IN (SELECT value FROM json_each(?))",
    "job_runs": f"SELECT id, job_run_id FROM {PREFIX}job_runs WHERE id IN (SELECT value FROM json_each(?))",
}

_JOB_RUNS = f"""
SELECT j.job_run_id, l.job, j.partition_key, j.refs, j.state, l.dagster_run_id, l.launch_id, j.buffered_at, j.started_at,
       j.ended_at, j.error
FROM {PREFIX}job_runs j JOIN {PREFIX}launches l ON l.id = j.launch_id """

_LAUNCHES = f"""
SELECT launch_id, job, location, owner, holder, dagster_run_id, buffered_at, started_at FROM {PREFIX}launches """

#: A job run that has not ended holds the lease of each of its refs, and there is an index of what is being built.
_OPEN = f"""
FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id JOIN {PREFIX}job_runs o ON o.id = i.job_run_id
WHERE r.due = 0 AND r.state = 'Building'"""

_WANTS = f"""
SELECT w.want_id, w.request_id,
       (SELECT json_group_array(r.ref) FROM {PREFIX}want_refs x JOIN {PREFIX}refs r ON r.id = x.ref_id WHERE x.want_id = w.id),
       w.state, w.source, w.source_id, w.comment, w.priority, w.created_at, w.expires_at, w.deadline, w.sla_missed_at,
       w.data_timestamp
FROM {PREFIX}wants w """

_INSTANCES = f"""
SELECT i.uuid, r.ref, i.state, i.created_seq, i.created_at, j.job_run_id, i.reason, i.code_version, i.manifest_state,
       i.manifest_uri,
       (SELECT json_group_array(u.uuid) FROM {PREFIX}instance_inputs x JOIN {PREFIX}instances u ON u.id = x.input_id
        WHERE x.instance_id = i.id),
       r.canonical_id = i.id, i.live_at, (SELECT e.actor FROM {PREFIX}events e WHERE e.seq = i.created_seq)
FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id """


_NEEDS = """
SELECT r.ref, n.ref, n.state, n.priority, n.deadline, n.due = 1 AND n.wanted_until > ? AND coalesce(n.retry_at, 0) > ?, i.code_version"""


#: Wants ask in the ledger too; who claims leaves wants of its own, whose request is the Dagster run.
_WAITING_DAGSTER_RUNS = f"""
SELECT d.requester, r.ref, CASE WHEN d.kind = 'built' AND EXISTS (
    SELECT 1 FROM {PREFIX}holds x JOIN {PREFIX}wants w ON w.id = x.want_id
    WHERE x.ref_id = d.ref_id AND x.open = 1 AND w.request_id = d.requester) THEN 1 ELSE 0 END
FROM {PREFIX}delegations d JOIN {PREFIX}refs r ON r.id = d.ref_id
WHERE d.outcome = 'waiting' AND {{which}} AND EXISTS (
    SELECT 1 FROM {PREFIX}wants w WHERE w.request_id = d.requester AND w.source = 'dagster run')
ORDER BY d.requester, r.ref"""


_RECORDED = f"""
SELECT r.ref, r.state, i.manifest_state, r.retry_at, r.n_open_wants, r.wanted_since, r.wanted_until
FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id WHERE """


#: The refs of one dataset, by the index over their texts: the asset itself, or whatever stands behind its first `@`.
_OF_DATASET = "(r.ref = ? OR (r.ref >= ? AND r.ref < ?)) "


def _dataset_range(asset: str) -> tuple[str, str, str]:
    return asset, asset + "@", asset + chr(ord("@") + 1)


#: The state behind its text; a call of the enumeration takes three times as long, and planning asks for thousands.
_STATES: dict[str | None, InstanceState | None] = {None: None, **{state.value: state for state in InstanceState}}


def _canonical(row: tuple[Any, ...]) -> Canonical:
    return Canonical(row[0], InstanceState(row[1]), *row[2:])


def _before_removal(canonical: Canonical) -> Canonical:
    """With its manifest as it was then, if there was one: what has no files can only have been empty."""
    if canonical.manifest_state != REMOVED:
        return canonical
    complete = "complete" if canonical.files else "empty"
    return canonical._replace(manifest_state=None if canonical.manifest_uri is None else complete)


def _job_run(row: tuple[Any, ...]) -> JobRunView:
    return JobRunView(row[0], row[1], row[2], _list_decoder.decode(row[3]), JobRunState(row[4]), *row[5:])


def _need(row: tuple[Any, ...]) -> Need:
    return Need(row[0], row[1], None if row[2] is None else InstanceState(row[2]), row[3], row[4], bool(row[5]), row[6])


def _recorded(row: tuple[Any, ...]) -> Recorded:
    ref, state, *rest = row
    return Recorded(ref, _STATES[state], *rest)


def _parted(rows: Iterable[tuple[Any, ...]]) -> RecordedOfDataset:
    live, others = {}, {}
    for row in rows:
        if row[1] == "Live":
            live[row[0]] = row[2]
        else:
            others[row[0]] = _recorded(row)
    return RecordedOfDataset(live, others)


def _want(row: tuple[Any, ...]) -> WantView:
    expires_at, deadline = (None if time == NEVER else time for time in row[9:11])
    refs, state = _list_decoder.decode(row[2]), WantState(row[3])
    return WantView._make((*row[:2], refs, state, *row[4:9], expires_at, deadline, *row[11:]))


def _instance(row: tuple[Any, ...]) -> Instance:
    return Instance._make(
        (*row[:2], InstanceState(row[2]), *row[3:10], _list_decoder.decode(row[10]), bool(row[11]), *row[12:])
    )


class Queries:
    """Every question that the floors above may ask."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """Of the store that is asked."""
        return self._store.url

    def _all(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._store.ask(sql, parameters)

    # Refs and instances

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
        return {ref: _STATES[found.get(ref)] for ref in wanted}

    def attempts(self, refs: Iterable[str]) -> dict[str, int]:
        """How often each ref was tried since it was last live or tainted (SPEC 6.8); what is unknown is left out."""
        sql = f"SELECT ref, attempts FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))"
        return dict(self._all(sql, Keys(refs)))

    def build_request_of_live(self, ref: str) -> str | None:
        """What built the live instance of a ref: its Dagster run, or its launch; None when it is not live."""
        rows = self._all(f"SELECT build_request_id FROM {PREFIX}available_partitions WHERE partition_ref = ?", ref)
        return rows[0][0] if rows else None

    def canonical_of_dataset(self, asset: str) -> list[Canonical]:
        """Every ref of a dataset that has an instance, ordered by ref."""
        return [
            _canonical(row) for row in self._all(_CANONICAL + _OF_DATASET + "ORDER BY r.ref", *_dataset_range(asset))
        ]

    def newest_live(self, asset: str) -> Canonical | None:
        """The live instance of a dataset that was made last, one that has rows if there is any."""
        order = "AND i.state = 'Live' ORDER BY (coalesce(i.n_rows, 0) > 0) DESC, i.id DESC LIMIT 1"
        rows = self._all(_CANONICAL + _OF_DATASET + order, *_dataset_range(asset))
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
        one, first, end = _dataset_range(asset)
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

    def removed(self, uuids: Iterable[str]) -> set[str]:
        """Of these instances, those whose data was removed by now."""
        sql = f"""
            SELECT uuid FROM {PREFIX}instances
            WHERE uuid IN (SELECT value FROM json_each(?)) AND manifest_state = '{REMOVED}'"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}

    def last_change(self, uuid: str, seq: int | None = None) -> StateChange | None:
        """How an instance came into its state, or into that it had when `seq` was the last event (SPEC 3.2)."""
        sql = f"""
            SELECT h.to_state, h.seq, e.at FROM {PREFIX}history h JOIN {PREFIX}events e ON e.seq = h.seq
            WHERE h.entity_id = (SELECT id FROM {PREFIX}instances WHERE uuid = ?) AND h.kind = 'instances' AND h.seq <= ?
            ORDER BY h.seq DESC, h.place DESC LIMIT 1"""
        rows = self._all(sql, uuid, MAX_SEQ if seq is None else min(seq, MAX_SEQ))
        return StateChange(InstanceState(rows[0][0]), *rows[0][1:]) if rows else None

    def missing_of(self, uuid: str) -> tuple[str, ...]:
        """What an instance waits for, or failed for: its missing refs that are not live."""
        sql = f"""
            SELECT r.ref FROM {PREFIX}missing m JOIN {PREFIX}instances i ON i.id = m.instance_id
            JOIN {PREFIX}refs r ON r.id = m.ref_id WHERE i.uuid = ? AND m.active = 1 AND coalesce(r.state, '') <> 'Live'
            ORDER BY r.ref"""
        return tuple(ref for (ref,) in self._all(sql, uuid))

    def history(self, ref: str) -> list[Instance]:
        """Every instance of a ref, the oldest first (SPEC 4.2)."""
        sql = f"""
            WITH RECURSIVE chain(id) AS (
                SELECT last_id FROM {PREFIX}refs WHERE ref = ? AND last_id IS NOT NULL
                UNION ALL SELECT p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id WHERE p.previous_id IS NOT NULL
            ) {_INSTANCES} WHERE i.id IN (SELECT id FROM chain) ORDER BY i.id"""
        return [_instance(row) for row in self._all(sql, ref)]

    def instance(self, uuid: str) -> Instance | None:
        rows = self._all(_INSTANCES + "WHERE i.uuid = ?", uuid)
        return _instance(rows[0]) if rows else None

    def live_instances(self, asset: str) -> list[Instance]:
        """The live canonical instances of a dataset, ordered by ref."""
        sql = f"{_INSTANCES} WHERE {_OF_DATASET} AND r.canonical_id = i.id AND i.state = 'Live' ORDER BY r.ref"
        return [_instance(row) for row in self._all(sql, *_dataset_range(asset))]

    def kept(self, uuids: Iterable[str]) -> dict[str, Kept]:
        """Whose storage is that of each uuid; those that are no instance's are left out."""
        sql = f"""
            SELECT i.uuid, r.ref, i.state, CASE WHEN j.ended_at IS NULL THEN 0 ELSE 1 END,
                   CASE WHEN r.canonical_id = i.id THEN 1 ELSE 0 END
            FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id
                 JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))"""
        return {
            uuid: Kept(ref, InstanceState(state), bool(has_ended), bool(is_canonical))
            for uuid, ref, state, has_ended, is_canonical in self._all(sql, Keys(uuids))
        }

    def dataset_folders(self) -> list[tuple[str, str]]:
        """(asset, folder of a warehouse) wherever instances of a dataset have manifests. Looks at every instance."""
        end = len("/data/instance=/manifest.json") + 36
        sql = f"""
            SELECT substr(i.manifest_uri, 1, length(i.manifest_uri) - {end}) AS folder, min(r.ref)
            FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id WHERE length(i.manifest_uri) > {end}
            GROUP BY substr(i.manifest_uri, 1, length(i.manifest_uri) - {end})"""
        return [(asset_of(ref), folder) for folder, ref in self._all(sql)]

    def stale(self, uuids: Sequence[str]) -> set[str]:
        """Of these instances, those built from one that is tainted, or no longer canonical, by now (SPEC 4.6)."""
        sql = f"""
            SELECT DISTINCT i.uuid FROM {PREFIX}instances i JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id
            JOIN {PREFIX}instances u ON u.id = x.input_id JOIN {PREFIX}refs r ON r.id = u.ref_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND (u.state = 'Tainted' OR (
                r.canonical_id <> u.id AND NOT EXISTS (
                    SELECT 1 FROM {PREFIX}instances n WHERE n.id = r.canonical_id AND n.state <> 'Tainted'
                    AND coalesce(n.same_as_id, n.id) = coalesce(u.same_as_id, u.id))))"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}

    def with_the_rows_of(self, uuids: Sequence[str]) -> set[str]:
        """Of these instances, those whose rows readers see: they are canonical, or were compacted to what is."""
        sql = f"""
            SELECT i.uuid FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id
            JOIN {PREFIX}instances n ON n.id = r.canonical_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))
            AND coalesce(n.same_as_id, n.id) = coalesce(i.same_as_id, i.id)"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}

    def taints_of(self, uuid: str) -> list[Taint]:
        sql = f"""
            SELECT t.taint_id, t.reason, t.actor, t.created_at, x.canceled_at FROM {PREFIX}taints t
            JOIN {PREFIX}taint_instances x ON x.taint_id = t.id JOIN {PREFIX}instances i ON i.id = x.instance_id
            WHERE i.uuid = ? ORDER BY t.id"""
        return [Taint(*row) for row in self._all(sql, uuid)]

    def taints_to_show(self, refs: Iterable[str]) -> dict[str, Taint]:
        """What is held against refs that are not live again: the newest taint in force of the canonical instance if it
        is tainted, else of the last one that was live. The others are left out."""
        sql = f"""
            WITH RECURSIVE chain(ref, state, id, found) AS (
                SELECT r.ref, r.state, i.id, CASE WHEN i.state = 'Tainted' THEN 1 ELSE i.was_live END FROM {PREFIX}refs r
                JOIN {PREFIX}instances i ON i.id = r.last_id WHERE r.ref IN (SELECT value FROM json_each(?))
                UNION ALL
                SELECT chain.ref, chain.state, p.id, p.was_live FROM chain JOIN {PREFIX}instances i ON i.id = chain.id
                JOIN {PREFIX}instances p ON p.id = i.previous_id WHERE found = 0
            )
            SELECT chain.ref, t.taint_id, t.reason, t.actor, t.created_at, x.canceled_at FROM chain
            JOIN {PREFIX}taint_instances x ON x.instance_id = chain.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE found = 1 AND chain.state <> 'Live' AND x.canceled_at IS NULL ORDER BY t.id"""
        return {ref: Taint(*taint) for ref, *taint in self._all(sql, Keys(refs))}

    def tainted_by(self, taint_id: str) -> tuple[str, ...]:
        """The refs whose canonical instance has, or had, a taint."""
        sql = f"""
            SELECT r.ref FROM {PREFIX}taints t JOIN {PREFIX}taint_instances x ON x.taint_id = t.id
            JOIN {PREFIX}instances i ON i.id = x.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id AND r.canonical_id = i.id
            WHERE t.taint_id = ? ORDER BY r.ref"""
        return tuple(ref for (ref,) in self._all(sql, taint_id))

    def tainted_refs(self, assets: Sequence[str], most: int) -> dict[str, tuple[int, tuple[str, ...]]]:
        """How many refs of each dataset are tainted, and the first of them; by the index of what is tainted."""
        sql = f"""
            SELECT d.asset, d.id, count(*) FROM {PREFIX}refs r JOIN {PREFIX}datasets d ON d.id = r.dataset_id
            WHERE r.state = 'Tainted' AND d.asset IN (SELECT value FROM json_each(?)) GROUP BY d.id"""
        named = f"SELECT ref FROM {PREFIX}refs WHERE state = 'Tainted' AND dataset_id = ? ORDER BY ref LIMIT ?"
        found = {
            asset: (count, tuple(ref for (ref,) in self._all(named, dataset_id, most)))
            for asset, dataset_id, count in self._all(sql, Keys(assets))
        }
        return {asset: found.get(asset, (0, ())) for asset in assets}

    def wants_served_by(self, uuids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The wants that were open when instances became live, by uuid of the instance."""
        sql = f"""
            SELECT i.uuid, w.want_id FROM {PREFIX}instances i JOIN {PREFIX}holds h ON h.ref_id = i.ref_id
            JOIN {PREFIX}wants w ON w.id = h.want_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND w.created_at <= i.live_at
              AND coalesce(w.ended_at, i.live_at) >= i.live_at ORDER BY w.id"""
        found: dict[str, list[str]] = {}
        for uuid, want_id in self._all(sql, Keys(uuids)):
            found.setdefault(uuid, []).append(want_id)
        return {uuid: tuple(want_ids) for uuid, want_ids in found.items()}

    def askers(self, uuids: Iterable[str]) -> dict[str, tuple[Asker, ...]]:
        """The wants that were open for their refs when instances came, by uuid; those that nobody wanted are left out."""
        sql = f"""
            SELECT i.uuid, w.want_id, w.request_id,
                   (SELECT json_group_array(n.ref) FROM {PREFIX}want_refs x JOIN {PREFIX}refs n ON n.id = x.ref_id
                    WHERE x.want_id = w.id),
                   w.source, w.source_id, w.comment, w.created_at,
                   (SELECT e.actor FROM {PREFIX}events e WHERE e.seq = w.id >> {BITS})
            FROM {PREFIX}instances i JOIN {PREFIX}holds h ON h.ref_id = i.ref_id JOIN {PREFIX}wants w ON w.id = h.want_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND w.id < i.id AND coalesce(w.ended_at, i.created_at) >= i.created_at
              AND (SELECT s.to_state FROM {PREFIX}history s WHERE s.entity_id = w.id AND s.kind = 'wants' AND s.seq < i.created_seq
                   ORDER BY s.seq DESC, s.place DESC LIMIT 1) IN (SELECT value FROM json_each(?))
            ORDER BY i.id, w.id"""
        found: dict[str, list[Asker]] = {}
        for uuid, want_id, request_id, refs, *rest in self._all(sql, Keys(uuids), Keys(sorted(OPEN_WANTS))):
            found.setdefault(uuid, []).append(Asker(want_id, request_id, _list_decoder.decode(refs), *rest))
        return {uuid: tuple(askers) for uuid, askers in found.items()}

    def standings(self, refs: Iterable[str], now: float) -> dict[str, Standing]:
        """For every ref asked for, how it stands with those who might ask for it (SPEC 4.5, 5.4); in one query."""
        asked = list(refs)
        sql = f"""
            SELECT ref, state, coalesce(retry_at, 0) > ?, n_open_wants > 0 AND wanted_until > ? FROM {PREFIX}refs
            WHERE ref IN (SELECT value FROM json_each(?))"""
        found = {
            ref: Standing(ref, InstanceState(state) if state else None, bool(backs_off), bool(is_wanted))
            for ref, state, backs_off, is_wanted in self._all(sql, now, now, Keys(asked))
        }
        return {ref: found.get(ref) or Standing(ref, None, False, False) for ref in asked}

    # Refs and instances, for plans and explanations

    def wanted(self, refs: Iterable[str]) -> dict[str, Wanted]:
        """For every ref asked for, what its open wants add up to (SPEC 5.4)."""
        asked = list(refs)
        sql = f"""
            SELECT ref, n_open_wants, wanted_since, wanted_until, attempts FROM {PREFIX}refs
            WHERE ref IN (SELECT value FROM json_each(?))"""
        found = {row[0]: Wanted(*row[1:]) for row in self._all(sql, Keys(asked))}
        return {ref: found.get(ref) or Wanted() for ref in asked}

    def missing_of_each(self, uuids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """`missing_of` for many instances, by uuid; those that wait for nothing are left out."""
        sql = f"""
            SELECT i.uuid, r.ref FROM {PREFIX}instances i JOIN {PREFIX}missing m ON m.instance_id = i.id
            JOIN {PREFIX}refs r ON r.id = m.ref_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND m.active = 1 AND coalesce(r.state, '') <> 'Live'
            ORDER BY r.ref"""
        found: dict[str, list[str]] = {}
        for uuid, ref in self._all(sql, Keys(uuids)):
            found.setdefault(uuid, []).append(ref)
        return {uuid: tuple(refs) for uuid, refs in found.items()}

    def taints_in_force(self, uuids: Iterable[str]) -> dict[str, list[Taint]]:
        """The taints of many instances that nobody took back, by uuid."""
        sql = f"""
            SELECT i.uuid, t.taint_id, t.reason, t.actor, t.created_at, x.canceled_at FROM {PREFIX}instances i
            JOIN {PREFIX}taint_instances x ON x.instance_id = i.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND x.canceled_at IS NULL ORDER BY t.id"""
        found: dict[str, list[Taint]] = {}
        for uuid, *taint in self._all(sql, Keys(uuids)):
            found.setdefault(uuid, []).append(Taint(*taint))
        return found

    def job_runs_named(self, job_run_ids: Iterable[str]) -> dict[str, JobRunView]:
        """By job run id; those that do not exist are left out."""
        rows = self._all(_JOB_RUNS + "WHERE j.job_run_id IN (SELECT value FROM json_each(?))", Keys(job_run_ids))
        return {row[0]: _job_run(row) for row in rows}

    def launch_spans(self, asset: str, *, most_refs: int = 1000, most: int = 20) -> list[LaunchSpan]:
        """The newest launches that built what is canonical of a dataset, among its last refs by name."""
        found = f"""
            SELECT DISTINCT j.launch_id FROM (
                SELECT r.canonical_id FROM {PREFIX}refs r WHERE {_OF_DATASET} AND r.canonical_id IS NOT NULL
                ORDER BY r.ref DESC LIMIT ?
            ) newest JOIN {PREFIX}instances i ON i.id = newest.canonical_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            WHERE j.state = 'Succeeded' AND j.started_at IS NOT NULL ORDER BY j.launch_id DESC LIMIT ?"""
        launches = [launch_id for (launch_id,) in self._all(found, *_dataset_range(asset), most_refs, most)]
        spans = f"""
            SELECT count(*), min(j.ended_at) - min(j.started_at), max(j.ended_at) - min(j.started_at) FROM {PREFIX}launches l
            JOIN {PREFIX}job_runs j ON j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
            WHERE l.id IN (SELECT value FROM json_each(?)) AND j.state = 'Succeeded' GROUP BY l.id ORDER BY l.id"""
        return [LaunchSpan(*row) for row in self._all(spans, Keys(launches))]

    # Datasets

    def dataset(self, asset: str) -> DatasetSpec | None:
        rows = self._all(f"SELECT spec FROM {PREFIX}datasets WHERE asset = ? AND removed = 0", asset)
        return dataset_from(rows[0][0]) if rows else None

    def datasets(self, location: str | None = None) -> dict[int, DatasetSpec]:
        """Registered datasets by row id, of one location or of all."""
        sql = f"SELECT id, spec FROM {PREFIX}datasets WHERE removed = 0 AND (CAST(? AS TEXT) IS NULL OR location = ?) ORDER BY id"
        return {row_id: dataset_from(spec) for row_id, spec in self._all(sql, location, location)}

    def arcs(self) -> list[ArcView]:
        """The arcs in force, in the order of their registration (SPEC 10.5)."""
        return [
            ArcView(*row) for row in self._all(f"SELECT asset, seq FROM {PREFIX}arcs WHERE removed = 0 ORDER BY id")
        ]

    def fired_by(self, arc: str) -> list[str]:
        """The source instances that have woken an arc, in that order."""
        sql = f"""
            SELECT i.uuid FROM {PREFIX}arcs a JOIN {PREFIX}arc_firings f ON f.arc_id = a.id
            JOIN {PREFIX}instances i ON i.id = f.instance_id WHERE a.asset = ? ORDER BY f.seq, i.id"""
        return [uuid for (uuid,) in self._all(sql, arc)]

    def tainted_at_birth(self, uuids: Iterable[str]) -> set[str]:
        """Of these instances, those that the event which had them live has tainted as well (SPEC 7.3)."""
        sql = f"""
            SELECT DISTINCT i.uuid FROM {PREFIX}instances i JOIN {PREFIX}history h ON h.entity_id = i.id AND h.kind = 'instances'
            JOIN {PREFIX}history n ON n.entity_id = i.id AND n.kind = 'instances' AND n.seq = h.seq AND n.place > h.place
            WHERE i.uuid IN (SELECT value FROM json_each(?))
              AND h.to_state = 'Live' AND h.from_state IS NOT 'Tainted' AND n.to_state = 'Tainted'"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}

    # Planning

    def due_refs(self, dataset_ids: Iterable[int], now: float, most: int) -> list[DueRef]:
        """Refs that are due (SPEC 5.4), the most urgent first. Reads only the index of what is due."""
        sql = f"""
            SELECT ref, dataset_id, priority, deadline, wanted_since, learned_id IS NOT NULL FROM {PREFIX}refs
            WHERE due = 1 AND dataset_id IN (SELECT value FROM json_each(?))
              AND (retry_at IS NULL OR retry_at <= ?) AND wanted_until > ?
            ORDER BY priority DESC, deadline, wanted_since, ref LIMIT ?"""
        return list(map(DueRef._make, self._all(sql, Keys(dataset_ids), now, now, most)))

    def learned_inputs(self, refs: Iterable[str], now: float) -> list[Need]:
        """What the last dep miss of each ref named that is due or leased by now (SPEC 6.3)."""
        sql = f"""
            {_NEEDS} FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.learned_id
            JOIN {PREFIX}missing m ON m.instance_id = i.id JOIN {PREFIX}refs n ON n.id = m.ref_id
            WHERE r.ref IN (SELECT value FROM json_each(?)) AND (n.due = 1 OR n.state IN ('Building', 'UpstreamBuilding'))"""
        return [_need(row) for row in self._all(sql, now, now, Keys(refs))]

    def waited_for(self, refs: Iterable[str], now: float) -> list[Need]:
        """What refs that are UpstreamBuilding wait for, and what that waits for, all the way."""
        sql = f"""
            WITH RECURSIVE waiting(id) AS (
                SELECT id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND state = 'UpstreamBuilding'
                UNION SELECT n.id FROM waiting JOIN {PREFIX}refs r ON r.id = waiting.id
                JOIN {PREFIX}missing m ON m.instance_id = r.canonical_id JOIN {PREFIX}refs n ON n.id = m.ref_id
                WHERE n.state = 'UpstreamBuilding'
            ) {_NEEDS} FROM waiting JOIN {PREFIX}refs r ON r.id = waiting.id JOIN {PREFIX}instances i ON i.id = r.canonical_id
            JOIN {PREFIX}missing m ON m.instance_id = i.id JOIN {PREFIX}refs n ON n.id = m.ref_id
            WHERE n.state IS NOT 'Live'"""
        return [_need(row) for row in self._all(sql, Keys(refs), now, now)]

    def next_retry_at(self) -> float | None:
        """When the next ref that waits for its retry becomes due."""
        (row,) = self._all(f"SELECT min(retry_at) FROM {PREFIX}refs WHERE due = 1 AND retry_at IS NOT NULL")
        at: float | None = row[0]
        return at

    # Job runs and launches

    def launch(self, launch_id: str) -> LaunchView | None:
        rows = self._all(_LAUNCHES + "WHERE launch_id = ?", launch_id)
        return LaunchView(*rows[0]) if rows else None

    def open_launches(self) -> list[LaunchView]:
        """Launches with job runs that have not ended."""
        return [
            LaunchView(*row) for row in self._all(_LAUNCHES + f"WHERE id IN (SELECT o.launch_id {_OPEN}) ORDER BY id")
        ]

    def job_run(self, job_run_id: str) -> JobRunView | None:
        rows = self._all(_JOB_RUNS + "WHERE j.job_run_id = ?", job_run_id)
        return _job_run(rows[0]) if rows else None

    def job_runs_of_launch(self, launch_id: str) -> list[JobRunView]:
        sql = f"""WHERE l.launch_id = ? AND j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
            ORDER BY j.id"""
        return [_job_run(row) for row in self._all(_JOB_RUNS + sql, launch_id)]

    def job_runs(self, *, open_only: bool = False, most: int = 100) -> list[JobRunView]:
        """The newest job runs, the newest first."""
        condition = f"WHERE j.id IN (SELECT o.id {_OPEN}) " if open_only else ""
        return [_job_run(row) for row in self._all(_JOB_RUNS + condition + "ORDER BY j.id DESC LIMIT ?", most)]

    def job_run_counts(self, after_seq: int) -> dict[str, dict[str, int]]:
        """Job runs that were buffered after a seq: by job, how many are in which state."""
        sql = f"""
            SELECT l.job, j.state, count(*) FROM {PREFIX}job_runs j JOIN {PREFIX}launches l ON l.id = j.launch_id
            WHERE j.id >= ? GROUP BY l.job, j.state ORDER BY min(j.id)"""
        counts: dict[str, dict[str, int]] = {}
        for job, state, n in self._all(sql, (after_seq + 1) << BITS):
            counts.setdefault(job, {})[state] = n
        return counts

    # Wants

    def wants(self, *, open_only: bool = False, most: int = 100) -> list[WantView]:
        """The newest wants, the newest first."""
        condition = "WHERE w.state IN ('New', 'Idle', 'Building', 'UpstreamBuilding') " if open_only else ""
        return [_want(row) for row in self._all(_WANTS + condition + "ORDER BY w.id DESC LIMIT ?", most)]

    def overdue_wants(self, now: float, most: int) -> tuple[list[str], list[str]]:
        """(open wants whose time to live has ended, wants past the deadline of their SLA), the first first."""
        expiring = (
            f"SELECT want_id FROM {PREFIX}wants WHERE ended_at IS NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"
        )
        late = f"SELECT want_id FROM {PREFIX}wants WHERE sla_at IS NOT NULL AND sla_at <= ? ORDER BY sla_at LIMIT ?"
        found = [[str(name) for (name,) in self._all(sql, now, most)] for sql in (expiring, late)]
        return found[0], found[1]

    def wants_named(self, name: str) -> list[WantView]:
        """By want id or by request id."""
        return [
            _want(row)
            for row in self._all(_WANTS + "WHERE w.want_id = ? OR w.request_id = ? ORDER BY w.id", name, name)
        ]

    def wants_of_ref(self, ref: str) -> list[WantView]:
        """Every want that ever named a ref (SPEC 5.6)."""
        sql = f"""
            WHERE w.id IN (SELECT want_id FROM {PREFIX}holds WHERE ref_id = (SELECT id FROM {PREFIX}refs WHERE ref = ?)) ORDER BY w.id"""
        return [_want(row) for row in self._all(_WANTS + sql, ref)]

    def named_changes(self, moves: Iterable[tuple[str, int, str | None, str]]) -> list[Change]:
        """Moves of rows as people name them."""
        listed = list(moves)
        names = {
            kind: dict(self._all(sql, Keys({row_id for of, row_id, *_ in listed if of == kind})))
            for kind, sql in _NAMES.items()
        }
        return [Change(kind, names[kind][row_id], before, after) for kind, row_id, before, after in listed]

    def want_state_at(self, want_id: str, seq: int) -> WantState | None:
        """The state a want was in when `seq` was the last event; None before it was recorded (SPEC 3.2)."""
        sql = f"""
            SELECT h.to_state FROM {PREFIX}history h WHERE h.entity_id = (SELECT id FROM {PREFIX}wants WHERE want_id = ?)
            AND h.kind = 'wants' AND h.seq <= ? ORDER BY h.seq DESC, h.place DESC LIMIT 1"""
        rows = self._all(sql, want_id, min(seq, MAX_SEQ))
        return WantState(rows[0][0]) if rows else None

    def failed_wants_of(self, refs: Iterable[str]) -> int:
        """How many wants ended because these refs have failed, and whatever failed because of them by now."""
        sql = f"""
            WITH RECURSIVE failed(id) AS (
                SELECT id FROM {PREFIX}refs
                WHERE ref IN (SELECT value FROM json_each(?)) AND state IN ('Failed', 'UpstreamFailed')
                UNION SELECT r.id FROM failed JOIN {PREFIX}missing m ON m.ref_id = failed.id AND m.active = 1
                JOIN {PREFIX}instances i ON i.id = m.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id
                WHERE r.canonical_id = i.id AND r.state = 'UpstreamFailed'
            ) SELECT count(DISTINCT w.id) FROM failed JOIN {PREFIX}holds x ON x.ref_id = failed.id AND x.open = 0
            JOIN {PREFIX}wants w ON w.id = x.want_id
            WHERE w.state IN ('Failed', 'UpstreamFailed') AND w.source <> 'job run'"""
        ((n,),) = self._all(sql, Keys(refs))
        return int(n)

    def n_live_built_from(self, refs: Sequence[str], uuids: Sequence[str]) -> int:
        """How many other refs are live by data that came from these refs' canonical instances, or from these instances."""
        sql = f"""
            WITH RECURSIVE made(id) AS (
                SELECT canonical_id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND canonical_id IS NOT NULL
                UNION SELECT id FROM {PREFIX}instances WHERE uuid IN (SELECT value FROM json_each(?))
                UNION SELECT x.instance_id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id
            ) SELECT count(*) FROM made JOIN {PREFIX}instances i ON i.id = made.id
            JOIN {PREFIX}refs r ON r.id = i.ref_id AND r.canonical_id = i.id
            WHERE r.state = 'Live' AND r.ref NOT IN (SELECT value FROM json_each(?))"""
        ((n,),) = self._all(sql, Keys(refs), Keys(uuids), Keys(refs))
        return int(n)

    def lineage(self, uuid: str) -> list[Instance]:
        """An instance and everything that it was made of, the oldest first (SPEC 4.6)."""
        sql = f"""
            WITH RECURSIVE made_of(id) AS (
                SELECT id FROM {PREFIX}instances WHERE uuid = ?
                UNION SELECT x.input_id FROM made_of JOIN {PREFIX}instance_inputs x ON x.instance_id = made_of.id
            ) {_INSTANCES} WHERE i.id IN (SELECT id FROM made_of) ORDER BY i.id"""
        return [_instance(row) for row in self._all(sql, uuid)]

    def made_with(self, uuids: Iterable[str]) -> dict[str, MadeWith]:
        """What besides their inputs instances were made with, as it was said when their launches began.

        Of compacted rows: when they were built. Left out is what no launch of ours has built, or older code.
        """
        sql = f"""
            SELECT i.uuid, h.seq FROM {PREFIX}instances i JOIN {PREFIX}instances o ON o.id = coalesce(i.same_as_id, i.id)
            JOIN {PREFIX}history h ON h.entity_id = o.job_run_id AND h.kind = 'job_runs' AND h.to_state = 'Running'
            WHERE i.uuid IN (SELECT value FROM json_each(?))"""
        begun = dict(self._all(sql, Keys(uuids)))
        with self._store.reading() as connection:
            facts = {event.seq: event.fact for event in log.events_at(connection, Keys(dict.fromkeys(begun.values())))}
        started = {uuid: fact for uuid, seq in begun.items() if isinstance(fact := facts[seq], JobRunStarted)}
        return {uuid: fact.made_with for uuid, fact in started.items() if fact.made_with is not None}

    # Counts

    def ref_counts(self) -> list[tuple[str, str, int]]:
        """(asset, canonical state, how many refs), the missing ones left out. Looks at every ref."""
        sql = f"""
            SELECT d.asset, r.state, count(*) FROM {PREFIX}refs r JOIN {PREFIX}datasets d ON d.id = r.dataset_id
            WHERE r.state IS NOT NULL GROUP BY d.asset, r.state ORDER BY d.asset, r.state"""
        return [(asset, state, n) for asset, state, n in self._all(sql)]

    def n_open_wants(self) -> int:
        """How many wants are open."""
        ((n,),) = self._all(f"SELECT count(*) FROM {PREFIX}wants WHERE ended_at IS NULL")
        return int(n)

    # The log

    def events(self, after_seq: int = 0, most: int = 1000) -> list[Event]:
        with self._store.reading() as connection:
            return log.events_after(connection, after_seq, most)

    def events_named(self, names: Iterable[str], after_seq: int, last_seq: int) -> list[Event]:
        """The events of some types within a stretch of the log; the others are not even decoded."""
        with self._store.reading() as connection:
            return log.events_named(connection, Keys(names), after_seq, last_seq)

    def raw_events(self, after_seq: int = 0, most: int = 1000) -> list[tuple[Any, ...]]:
        """(seq, at, type, version, command_id, actor, payload as JSON text), as stored."""
        return self._all(f"{log.READ} WHERE seq > ? ORDER BY seq LIMIT ?", after_seq, most)

    def time_of(self, seq: int) -> float | None:
        """When an event happened; None where there is none."""
        rows = self._all(f"SELECT at FROM {PREFIX}events WHERE seq = ?", seq)
        return rows[0][0] if rows else None

    def beginning(self) -> tuple[float, str]:
        """When the log began, and the command it began with: no other log has the same. It has to have begun."""
        ((at, command_id),) = self._all(f"SELECT at, command_id FROM {PREFIX}events WHERE seq = 1")
        return at, command_id

    def seq_at(self, at: float) -> int:
        """The last event that had happened by then, 0 before the first one.

        Found by halving, twenty looks by key in a million events: times never go back (SPEC 3.1), and an index of
        them would cost every command something.
        """
        with self._store.reading() as connection:

            def time_of(seq: int) -> float:
                (found,) = connection.execute(f"SELECT at FROM {PREFIX}events WHERE seq = ?", (seq,)).fetchone()
                return float(found)

            return bisect_right(range(1, log.head(connection).seq + 1), at, key=time_of)

    def head(self) -> log.Head:
        rows = self._all(log.HEAD)
        return log.Head(*rows[0]) if rows else log.Head(0, 0.0)

    # Who waits

    def scan_waiting_dagster_runs(self) -> list[str]:
        """Dagster runs that wait for what others build (SPEC 8.3). Looks at every delegation."""
        return list(dict.fromkeys(run_id for run_id, *_ in self._all(_WAITING_DAGSTER_RUNS.format(which="1 = 1"))))

    def still_waiting(self, requesters: Iterable[str]) -> dict[str, dict[str, bool]]:
        """Of some requesters the Dagster runs that wait for what others build: for which refs.

        True of a ref that it was given to build, and could not, while its want for that is open: others build it for
        its sake (SPEC 8.1).
        """
        which = "d.requester IN (SELECT value FROM json_each(?))"
        found: dict[str, dict[str, bool]] = {}
        for run_id, ref, is_followed_up in self._all(_WAITING_DAGSTER_RUNS.format(which=which), Keys(requesters)):
            found.setdefault(run_id, {})[ref] = bool(is_followed_up)
        return found

    def late_refs(self, assets: Iterable[str], now: float, most: int) -> dict[str, tuple[int, list[LateRef]]]:
        """By asset, how many of its refs are not live though an open want's SLA has passed, and the first of them.

        Looks at every open want (SPEC 5.5).
        """
        named = list(assets)
        sql = f"""
            SELECT asset, ref, deadline, n FROM (
                SELECT late.asset, late.ref, late.deadline,
                       row_number() OVER (PARTITION BY late.asset ORDER BY late.deadline, late.ref) AS place,
                       count(*) OVER (PARTITION BY late.asset) AS n
                FROM (
                    SELECT s.asset AS asset, r.ref AS ref, min(w.deadline) AS deadline FROM {PREFIX}wants w
                    JOIN {PREFIX}want_refs x ON x.want_id = w.id JOIN {PREFIX}refs r ON r.id = x.ref_id
                    JOIN {PREFIX}datasets s ON s.id = r.dataset_id
                    WHERE w.ended_at IS NULL AND (w.sla_missed_at IS NOT NULL OR w.sla_at <= ?)
                      AND coalesce(r.state, '') <> 'Live' AND s.asset IN (SELECT value FROM json_each(?))
                    GROUP BY s.asset, r.ref
                ) late
            ) numbered WHERE place <= ? ORDER BY asset, deadline, ref"""
        found: dict[str, tuple[int, list[LateRef]]] = {asset: (0, []) for asset in named}
        for asset, ref, deadline, n in self._all(sql, now, Keys(named), most):
            found[asset] = (n, [*found[asset][1], LateRef(ref, deadline)])
        return found

    # Gaps

    def recorded(self, refs: Iterable[str]) -> dict[str, Recorded]:
        """What is recorded of each ref asked for; those that nobody has named yet are left out."""
        rows = self._all(_RECORDED + "r.ref IN (SELECT value FROM json_each(?))", Keys(refs))
        return {row[0]: _recorded(row) for row in rows}

    def recorded_between(self, first: str, last: str) -> RecordedOfDataset:
        """What is recorded of every ref from one text to another, both included: for a year of lots one look (SPEC 10.7)."""
        return _parted(self._all(_RECORDED + "r.ref >= ? AND r.ref <= ?", first, last))

    def recorded_of_dataset(self, asset: str) -> RecordedOfDataset:
        """What is recorded of every ref of a dataset."""
        return _parted(self._all(_RECORDED + _OF_DATASET, *_dataset_range(asset)))

    def last_wants(self, refs: Iterable[str]) -> dict[str, LastWant]:
        """The newest want that ever named each ref; what nobody ever wanted is left out."""
        sql = f"""
            SELECT r.ref, w.want_id, w.state FROM {PREFIX}refs r
            JOIN {PREFIX}wants w ON w.id = (SELECT max(h.want_id) FROM {PREFIX}holds h WHERE h.ref_id = r.id)
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        return {ref: LastWant(want_id, WantState(state)) for ref, want_id, state in self._all(sql, Keys(refs))}
