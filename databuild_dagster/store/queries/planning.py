"""The queries of the planner: due refs, their missing inputs, the sums of their open wants, pauses, subjects that are set aside,
and the refs that `databuild build` serves, with what they need to become live (rules 5.4, 6.3, 6.13, 8.9, 11.7).
"""

from collections import Counter
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from databuild_dagster.model.pauses import PauseInForce, in_force, names_of
from databuild_dagster.model.records import Time
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER, PauseRow
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import LEASED, SCHEDULABLE, InstanceState, JobRunState, WantState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX, one_of
from databuild_dagster.store.queries.asking import MAX_SEQ, Asking, Selection, grouped
from databuild_dagster.store.work.builds import ANY_PAUSE

#: Datasets among which the limit on due refs is divided; more of them exceed it together.
MAX_PARTS = 100
#: Up to so many due refs of the datasets are read even if more than the limit are due in the store: it takes 0.1 ms.
FEW = 100

#: The refs of a parameter that are not live, and what they need that is not live: the missing refs of an instance that
#: waits or failed for them, and of the last call of a due ref (rule 6.3). Declared inputs are included, because a tick
#: records a dep miss before it launches.
SERVED = f"""
    WITH RECURSIVE served(id) AS (
        SELECT id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND state IS NOT '{InstanceState.LIVE}'
        UNION SELECT n.id FROM served JOIN {PREFIX}refs r ON r.id = served.id
        JOIN {PREFIX}missing m ON m.instance_id = CASE WHEN r.due = 1 THEN r.learned_id ELSE r.canonical_id END
        JOIN {PREFIX}refs n ON n.id = m.ref_id WHERE n.state IS NOT '{InstanceState.LIVE}'
    )"""


def not_paused_at(time: str) -> str:
    """The condition that a ref of `r` is not paused at a time, which the condition names twice (rule 6.13).

    Mostly nothing is paused, and then no ref is looked up. The open pauses of whole datasets are few; pauses of refs are found by
    their key.
    """
    return f"""(NOT EXISTS (SELECT 1 FROM {PREFIX}pauses p WHERE p.ended_seq IS NULL) OR r.dataset_id NOT IN (
        SELECT p.dataset_id FROM {PREFIX}pauses p WHERE p.is_whole = 1 AND p.ended_seq IS NULL AND p.until > {time})
    AND NOT EXISTS (SELECT 1 FROM {PREFIX}pauses p WHERE p.ref = r.ref AND p.ended_seq IS NULL AND p.until > {time}))"""


#: With the time twice.
NOT_PAUSED = not_paused_at("?")


class DueRef(NamedTuple):
    """A ref that is due, with the sums of its open wants."""

    ref: Ref
    dataset_id: int
    priority: int
    deadline: float
    wanted_since: float
    #: Row id of the last instance, if its call named inputs that are not declared.
    learned_id: int | None
    #: Launches that it was lost with, since it was last live or tainted (rule 6.18).
    losses: int


def urgency(ref: DueRef) -> tuple[int, float, float, Ref]:
    """The order of launches (rule 11.1)."""
    return -ref.priority, ref.deadline, ref.wanted_since, ref.ref


class DueRefs(NamedTuple):
    """The due refs of some datasets, the most urgent first."""

    refs: list[DueRef]
    #: A dataset with fewer due refs has no further due refs.
    of_each: int

    @property
    def cut_off(self) -> set[int]:
        """The datasets that may have further due refs."""
        if len(self.refs) < self.of_each:
            return set()
        return {id for id, n in Counter(map(_dataset_id, self.refs)).items() if n >= self.of_each}


_dataset_id = attrgetter("dataset_id")


class NeededRef(NamedTuple):
    """A ref that the ref `by` needs, by its last dep miss, or waits for."""

    by: Ref
    ref: Ref
    state: InstanceState | None
    priority: int
    deadline: float
    #: Wanted, and built again when its backoff has passed.
    retries_later: bool
    #: The code version of the job run that missed it.
    code_version: str | None


class Standing(NamedTuple):
    """The facts of a ref for a new request."""

    ref: Ref
    #: The state of its canonical instance, None when it is missing.
    state: InstanceState | None
    #: Its backoff has not passed.
    backs_off: bool
    #: An open want within its TTL names it.
    is_wanted: bool
    #: Nothing launches it (rule 6.13).
    is_paused: bool

    @property
    def is_schedulable(self) -> bool:
        """Rules 4.5, 6.13."""
        return self.state in SCHEDULABLE and not self.backs_off and not self.is_paused


class WantSums(NamedTuple):
    """The sums of a ref's open wants, and its failed attempts."""

    n_open_wants: int = 0
    #: The time when the first was recorded, and the end of the last TTL; infinite without an open want.
    since: float = NEVER
    until: float = 0.0
    #: Since it was last live or tainted: failed attempts, failures of its surroundings, and losses (rules 6.8, 6.17, 6.18).
    attempts: int = 0
    outages: int = 0
    losses: int = 0


#: As `urgency`, and as the index of due refs has them.
_BY_URGENCY = "ORDER BY r.priority DESC, r.deadline, r.wanted_since, r.ref"
_DUE = Selection(DueRef, "r")
_ALL_DUE = f"""
    SELECT {_DUE.columns} FROM {PREFIX}refs r
    WHERE r.due = 1 AND r.dataset_id IN (SELECT value FROM json_each(?)) AND {NOT_PAUSED}
    AND (r.retry_at IS NULL OR r.retry_at <= ?) AND r.wanted_until > ? LIMIT ?"""
#: The refs of the store that are due, or will be after their backoff.
_N_MARKED = f"SELECT count(*) FROM (SELECT 1 FROM {PREFIX}refs WHERE due = 1 LIMIT ?) x"
_NEED = Selection(
    NeededRef,
    "n",
    by="r.ref",
    retries_later="n.due = 1 AND n.wanted_until > ? AND coalesce(n.retry_at, 0) > ?",
    code_version="i.code_version",
)
_STANDING = Selection(
    Standing,
    "r",
    backs_off="coalesce(retry_at, 0) > ?",
    is_wanted="n_open_wants > 0 AND wanted_until > ?",
    # A ref without a row may be paused too, so another query has this.
    is_paused="0",
)
_WANTED = Selection(WantSums, "r", since="wanted_since", until="wanted_until")


_PAUSE = Selection(PauseRow, "p")
#: Recorded by a seq, and not ended by an event up to it.
_OPEN_PAUSES = (
    f"SELECT {_PAUSE.columns} FROM {PREFIX}pauses p WHERE p.seq <= ? AND coalesce(p.ended_seq, {MAX_SEQ} + 1) > ?"
)


class AsideSubject(NamedTuple):
    """A subject that is set aside."""

    kind: Subject
    name: str
    location: str
    reason: str
    #: The time at which this reason began.
    since: Time


_ASIDE = Selection(AsideSubject, "s")
_FROM_ASIDE = f"FROM {PREFIX}set_aside s WHERE s.reason IS NOT NULL"
#: By the index of the subjects that are set aside now.
_ASIDE_NOW = "AND s.name > ''"
#: Mostly there is none, and this takes a fifth of the time of a query with a list of names.
_ANY_ASIDE = f"SELECT 1 {_FROM_ASIDE} {_ASIDE_NOW} LIMIT 1"
_SUBJECTS = {subject.value: subject for subject in Subject}


class UnservedRef(NamedTuple):
    """A ref of a request, with the state of its want."""

    ref: Ref
    state: WantState


class AwaitedRun(NamedTuple):
    """An open job run that builds a served ref."""

    ref: Ref
    job_run: str
    state: JobRunState
    job: str
    launch_id: str
    #: The process that buffered the launch, and the process that executes it.
    owner: str
    holder: str | None
    dagster_run_id: str | None
    #: It is in its state since then.
    since: Time


class DueSoon(NamedTuple):
    """The due refs of a dataset."""

    dataset_id: int
    #: Whether a ref is due now, and the time when the next ref is due.
    is_now: bool
    retry_at: float | None


_UNSERVED = Selection(UnservedRef, "w", ref="r.ref")
_AWAITED = Selection(
    AwaitedRun,
    "j",
    ref="r.ref",
    job_run="j.job_run_id",
    job="l.job",
    launch_id="l.launch_id",
    owner="l.owner",
    holder="l.holder",
    dagster_run_id="l.dagster_run_id",
    since="coalesce(j.started_at, j.buffered_at)",
)
_DUE_SOON = Selection(
    DueSoon,
    "r",
    is_now="max(CASE WHEN coalesce(r.retry_at, 0) <= ? THEN 1 ELSE 0 END)",
    retry_at="min(CASE WHEN r.retry_at > ? THEN r.retry_at END)",
)


class PlanningQueries(Asking):
    """Refs as the planner and its explanations see them."""

    def due_refs(self, dataset_ids: Iterable[int], now: float, most: int, *, skipped: int = 0) -> DueRefs:
        """Refs that are due (rule 5.4) and not paused (rule 6.13), after the `skipped` most urgent refs of each dataset.

        If more than `most` are due in the store, it is shared by the datasets that have due refs, in equal parts for up to
        `MAX_PARTS` of them. A dataset costs its part, however many of its refs are due, because the index has them in this order.
        """
        ids = Keys(dataset_ids)
        if not skipped and (together := self._all_due(ids, now, most)) is not None:
            return DueRefs(together, most + 1)
        sql = f"""
            WITH RECURSIVE with_due(id) AS (
                SELECT min(dataset_id) FROM {PREFIX}refs WHERE due = 1
                UNION ALL SELECT (SELECT min(dataset_id) FROM {PREFIX}refs WHERE due = 1 AND dataset_id > with_due.id)
                FROM with_due WHERE with_due.id IS NOT NULL
            ) SELECT id FROM with_due WHERE id IN (SELECT value FROM json_each(?)) AND NOT EXISTS (
                SELECT 1 FROM {PREFIX}pauses p
                WHERE p.dataset_id = with_due.id AND p.is_whole = 1 AND p.ended_seq IS NULL AND p.until > ?)"""
        with_due = Keys(id for (id,) in self._all(sql, ids, now))
        part = -(-most // max(1, min(len(with_due), MAX_PARTS)))
        sql = f"""
            SELECT {_DUE.columns} FROM {PREFIX}datasets d CROSS JOIN {PREFIX}refs r ON r.id IN (SELECT * FROM (
                SELECT r.id FROM {PREFIX}refs r WHERE r.due = 1 AND r.dataset_id = d.id AND {NOT_PAUSED}
                AND (r.retry_at IS NULL OR r.retry_at <= ?) AND r.wanted_until > ?
                {_BY_URGENCY} LIMIT ? OFFSET ?))
            WHERE d.id IN (SELECT value FROM json_each(?))"""
        found = _DUE.rows(self._all(sql, now, now, now, now, part, skipped, with_due))
        return DueRefs(sorted(found, key=urgency), part)

    def _all_due(self, dataset_ids: Keys, now: float, most: int) -> list[DueRef] | None:
        """All due refs of the datasets in the order of launches, or None if there may be more than `most`."""
        few = min(most, FEW)
        asked = (dataset_ids, now, now, now, now)
        found = self._all(_ALL_DUE, *asked, few + 1)
        if len(found) > few:
            ((n_marked,),) = self._all(_N_MARKED, most + 1)
            if n_marked > most:
                return None
            found = self._all(_ALL_DUE, *asked, most)
        return sorted(_DUE.rows(found), key=urgency)

    def due_among(
        self, serving: Iterable[Ref], dataset_ids: Iterable[int], now: float, most: int, *, skipped: int = 0
    ) -> DueRefs:
        """The due refs among some refs and what they need, divided as in `due_refs`. Reads no other due ref (rule 8.9)."""
        # The plus keeps SQLite from reading the index of all due refs.
        sql = f"""{SERVED}, due AS (
                SELECT r.id, r.dataset_id, row_number() OVER (PARTITION BY r.dataset_id {_BY_URGENCY}) AS place
                FROM served JOIN {PREFIX}refs r ON r.id = served.id
                WHERE +r.due = 1 AND r.dataset_id IN (SELECT value FROM json_each(?)) AND {NOT_PAUSED}
                AND (r.retry_at IS NULL OR r.retry_at <= ?) AND r.wanted_until > ?
            ), part AS (SELECT (? + n - 1) / n AS size FROM (
                SELECT coalesce(nullif(count(DISTINCT dataset_id), 0), 1) AS n FROM due) x)
            SELECT (SELECT size FROM part), {_DUE.columns} FROM due JOIN {PREFIX}refs r ON r.id = due.id
            WHERE due.place > ? AND due.place <= ? + (SELECT size FROM part) {_BY_URGENCY}"""
        asked = (Keys(serving), Keys(dataset_ids), now, now, now, now, most, skipped, skipped)
        found = _DUE.by(self._all(sql, *asked))
        return DueRefs([ref for _, ref in found], found[0][0] if found else most)

    def next_retry(self, dataset_ids: Iterable[int], now: float) -> float | None:
        """The end of the next backoff of a ref of the datasets that an open want names and that is not paused then.

        None if no such ref backs off.
        """
        sql = f"""
            SELECT min(r.retry_at) FROM {PREFIX}refs r
            WHERE r.due = 1 AND r.dataset_id IN (SELECT value FROM json_each(?)) AND {not_paused_at("r.retry_at")}
            AND r.retry_at > ? AND r.wanted_until > r.retry_at"""
        ((at,),) = self._all(sql, Keys(dataset_ids), now)
        return None if at is None else float(at)

    def marked_due(self, refs: Iterable[Ref]) -> set[Ref]:
        """The refs that an open want names and that can be built, perhaps later."""
        sql = f"SELECT ref FROM {PREFIX}refs WHERE due = 1 AND ref IN (SELECT value FROM json_each(?))"
        return {ref for (ref,) in self._all(sql, Keys(refs))}

    def learned_inputs(self, refs: Iterable[Ref], now: float) -> list[NeededRef]:
        """Missing refs of the last dep miss of each ref that are leased now, or due now or later (rule 6.3)."""
        sql = f"""
            SELECT {_NEED.columns} FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.learned_id
            JOIN {PREFIX}missing m ON m.instance_id = i.id JOIN {PREFIX}refs n ON n.id = m.ref_id
            WHERE r.ref IN (SELECT value FROM json_each(?)) AND (n.due = 1 AND n.wanted_until > ? OR n.state IN {one_of(LEASED)})"""
        return _NEED.rows(self._all(sql, now, now, Keys(refs), now))

    def waited_for(self, refs: Iterable[Ref], now: float) -> list[NeededRef]:
        """The refs for which UpstreamBuilding refs wait, directly or not."""
        sql = f"""
            WITH RECURSIVE waiting(id) AS (
                SELECT id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND state = '{InstanceState.UPSTREAM_BUILDING}'
                UNION SELECT n.id FROM waiting JOIN {PREFIX}refs r ON r.id = waiting.id
                JOIN {PREFIX}missing m ON m.instance_id = r.canonical_id JOIN {PREFIX}refs n ON n.id = m.ref_id
                WHERE n.state = '{InstanceState.UPSTREAM_BUILDING}'
            ) SELECT {_NEED.columns} FROM waiting JOIN {PREFIX}refs r ON r.id = waiting.id JOIN {PREFIX}instances i ON i.id = r.canonical_id
            JOIN {PREFIX}missing m ON m.instance_id = i.id JOIN {PREFIX}refs n ON n.id = m.ref_id
            WHERE n.state IS NOT '{InstanceState.LIVE}'"""
        return _NEED.rows(self._all(sql, Keys(refs), now, now))

    def waiting_for(self, refs: Iterable[Ref]) -> dict[Ref, tuple[Ref, ...]]:
        """Each awaited ref among `refs`, with the UpstreamBuilding refs that wait for it, directly or not."""
        sql = f"""
            WITH RECURSIVE waiting(asked, id) AS (
                SELECT ref, id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))
                UNION SELECT asked, i.ref_id FROM waiting JOIN {PREFIX}missing m ON m.ref_id = waiting.id AND m.active = 1
                JOIN {PREFIX}instances i ON i.id = m.instance_id AND i.state = '{InstanceState.UPSTREAM_BUILDING}'
            ) SELECT waiting.asked, r.ref FROM waiting JOIN {PREFIX}refs r ON r.id = waiting.id
            WHERE r.ref <> waiting.asked ORDER BY r.ref"""
        return grouped(self._all(sql, Keys(refs)))

    def missing_of(self, uuid: str) -> tuple[Ref, ...]:
        """The missing refs of an instance that are not live: it waits for them, or failed for them."""
        return self.missing_of_each([uuid]).get(uuid, ())

    def missing_of_each(self, uuids: Iterable[str]) -> dict[str, tuple[Ref, ...]]:
        """`missing_of` for many instances, by uuid; an instance without any is left out."""
        sql = f"""
            SELECT i.uuid, r.ref FROM {PREFIX}instances i JOIN {PREFIX}missing m ON m.instance_id = i.id
            JOIN {PREFIX}refs r ON r.id = m.ref_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND m.active = 1 AND coalesce(r.state, '') <> '{InstanceState.LIVE}'
            ORDER BY r.ref"""
        return grouped(self._all(sql, Keys(uuids)))

    def standings(self, refs: Iterable[Ref], now: float) -> dict[Ref, Standing]:
        """The facts of every ref for a new request (rules 4.5, 5.4, 6.13)."""
        asked = list(refs)
        sql = f"""
            SELECT {_STANDING.columns} FROM {PREFIX}refs r
            WHERE ref IN (SELECT value FROM json_each(?))"""
        found = {standing.ref: standing for standing in _STANDING.rows(self._all(sql, now, now, Keys(asked)))}
        standings = {ref: found.get(ref) or Standing(ref, None, False, False, False) for ref in asked}
        for ref in self.paused(asked, now):
            standings[ref] = standings[ref]._replace(is_paused=True)
        return standings

    def wanted(self, refs: Iterable[Ref]) -> dict[Ref, WantSums]:
        """The sums of the open wants of every ref asked for (rule 5.4)."""
        asked = list(refs)
        sql = f"""
            SELECT ref, {_WANTED.columns} FROM {PREFIX}refs r
            WHERE ref IN (SELECT value FROM json_each(?))"""
        found = dict(_WANTED.by(self._all(sql, Keys(asked))))
        return {ref: found.get(ref) or WantSums() for ref in asked}

    def attempts(self, refs: Iterable[Ref]) -> dict[Ref, int]:
        """The failed attempts of each ref since it was last live or tainted (rule 6.8); unknown refs are left out."""
        sql = f"SELECT ref, attempts FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))"
        return dict(self._all(sql, Keys(refs)))

    def paused(self, refs: Collection[Ref], now: float, *, seq: int = MAX_SEQ) -> dict[Ref, PauseInForce]:
        """Each of the refs that nothing may launch at a time, with its pause."""
        if seq == MAX_SEQ and not self._all(ANY_PAUSE):
            return {}
        sql = f"{_OPEN_PAUSES} AND p.ref IN (SELECT value FROM json_each(?))"
        pauses = _PAUSE.rows(self._all(sql, seq, seq, Keys(names_of(refs))))
        return in_force({pause.ref: pause for pause in pauses}, refs, now)

    def pauses_in_force(self, now: float) -> list[PauseRow]:
        """All, the oldest first."""
        return _PAUSE.rows(
            self._all(
                f"{_OPEN_PAUSES} AND p.ended_seq IS NULL AND p.until > ? ORDER BY p.seq, p.ref", MAX_SEQ, MAX_SEQ, now
            )
        )

    def set_aside(self) -> list[AsideSubject]:
        """All, the oldest first."""
        return _ASIDE.rows(self._all(f"SELECT {_ASIDE.columns} {_FROM_ASIDE} {_ASIDE_NOW} ORDER BY s.since, s.name"))

    def reasons(self, location: str) -> dict[str, tuple[Subject, str]]:
        """The kind and the reason of each subject of a location, by name. Each tick reads them."""
        sql = f"SELECT s.name, s.kind, s.reason {_FROM_ASIDE} {_ASIDE_NOW} AND s.location = ?"
        return {name: (_SUBJECTS[kind], reason) for name, kind, reason in self._all(sql, location)}

    def set_aside_of_boundary(self, asset: str) -> list[AsideSubject]:
        """Its lots, and the files for no lot, by name."""
        kinds = one_of((Subject.LOT, Subject.FILE))
        sql = (
            f"SELECT {_ASIDE.columns} {_FROM_ASIDE} AND s.kind IN {kinds} AND substr(s.name, 1, ?) = ? ORDER BY s.name"
        )
        return _ASIDE.rows(self._all(sql, len(asset) + 1, asset + "@"))

    def asides_of(self, names: Iterable[str]) -> list[AsideSubject]:
        """The subjects among `names` that are set aside, in any location."""
        if not self._all(_ANY_ASIDE):
            return []
        sql = f"SELECT {_ASIDE.columns} {_FROM_ASIDE} AND s.name IN (SELECT value FROM json_each(?)) ORDER BY s.since, s.name"
        return _ASIDE.rows(self._all(sql, Keys(names)))

    def unserved(self, request_id: str) -> list[UnservedRef]:
        """Each ref of a request with its want's state, but for wants that are successful. A build asks it twice for each tick."""
        sql = f"""
            SELECT {_UNSERVED.columns} FROM {PREFIX}wants w JOIN {PREFIX}want_refs x ON x.want_id = w.id
            JOIN {PREFIX}refs r ON r.id = x.ref_id WHERE w.request_id = ? AND w.state <> '{WantState.SUCCESSFUL}' ORDER BY w.id"""
        return _UNSERVED.rows(self._all(sql, request_id))

    def served_among(self, serving: Iterable[Ref], refs: Iterable[Ref]) -> set[Ref]:
        """The refs that are served, or that served refs need."""
        sql = f"""{SERVED} SELECT r.ref FROM served JOIN {PREFIX}refs r ON r.id = served.id
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        return {ref for (ref,) in self._all(sql, Keys(serving), Keys(refs))}

    def awaited(self, serving: Iterable[Ref], most: int) -> list[AwaitedRun]:
        """The open job runs that the served refs need, the oldest first, with a line for each ref."""
        sql = f"""{SERVED} SELECT {_AWAITED.columns} FROM served JOIN {PREFIX}refs r ON r.id = served.id
            JOIN {PREFIX}instances i ON i.id = r.canonical_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            JOIN {PREFIX}launches l ON l.id = j.launch_id
            WHERE r.state = '{InstanceState.BUILDING}' ORDER BY j.id, r.ref LIMIT ?"""
        return _AWAITED.rows(self._all(sql, Keys(serving), most))

    def due_soon(self, serving: Iterable[Ref], now: float) -> list[DueSoon]:
        """The datasets of the served refs that are due, or are when their backoff has passed."""
        # The plus keeps SQLite from reading the index of all due refs.
        sql = f"""{SERVED} SELECT {_DUE_SOON.columns} FROM served JOIN {PREFIX}refs r ON r.id = served.id
            WHERE +r.due = 1 AND r.wanted_until > ? AND {NOT_PAUSED} GROUP BY r.dataset_id"""
        return _DUE_SOON.rows(self._all(sql, Keys(serving), now, now, now, now, now))
