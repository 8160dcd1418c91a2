"""The canonical instances of refs, now or after an earlier event, and many at once for calendars and gaps (rules 3.2, 4, 10.7)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from databuild_dagster.model.errors import Contradiction, MissingRow
from databuild_dagster.model.events import ManifestRemoved
from databuild_dagster.model.records import Time
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import FAILING, InstanceState, JobRunState
from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX, one_of
from databuild_dagster.store.queries.asking import MAX_COUNTED, MAX_SEQ, OF_DATASET, Asking, Selection, dataset_range
from databuild_dagster.store.store import again_if_cut
from databuild_dagster.store.work.row_sets import missing_row


class Canonical(NamedTuple):
    """The canonical instance of a ref; `state` None when it is missing."""

    ref: Ref
    state: InstanceState | None = None
    uuid: str | None = None
    job_run: str | None = None
    retry_at: Time | None = None
    reason: str | None = None
    code_version: str | None = None
    manifest_state: str | None = None
    manifest_uri: str | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    origin: str | None = None
    live_at: Time | None = None
    #: The last known origin of data from outside, in any state.
    known_origin: str | None = None
    #: The digest of the code of its job run (rule 4.7).
    code: str | None = None
    #: An earlier instance has its rows, or had them before an erasure.
    has_earlier_rows: bool = False


_NOW = Selection(
    Canonical,
    "i",
    ref="r.ref",
    state="r.state",
    # None in damaged tables: the instance is not there, or is not what its ref says.
    uuid="CASE WHEN r.state IS NOT i.state THEN NULL ELSE i.uuid END",
    job_run="j.job_run_id",
    files="i.n_files",
    rows="i.n_rows",
    bytes="i.n_bytes",
    known_origin="r.origin",
    code="j.code",
    has_earlier_rows="i.same_as_id IS NOT NULL",
)
_CANONICAL = f"""
SELECT {_NOW.columns}
FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id LEFT JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
WHERE r.canonical_id IS NOT NULL AND """


def state_at(id: str) -> str:
    """The expression of an instance's state at `:seq`: its last row of history up to it."""
    return f"""(SELECT h.to_state FROM {PREFIX}history h WHERE h.entity_id = {id} AND h.kind = 'instances' AND h.seq <= :seq
        ORDER BY h.seq DESC, h.place DESC LIMIT 1)"""


def was_live_at(id: str) -> str:
    """The condition that an instance had been live by `:seq`. Its success records its data and its inputs."""
    return f"""EXISTS (SELECT 1 FROM {PREFIX}history h
        WHERE h.entity_id = {id} AND h.kind = 'instances' AND h.seq <= :seq AND h.to_state = '{InstanceState.LIVE}')"""


#: Whether an instance `s` is an instance `b`, or has its rows (rule 4.8).
HAS_ROWS_OF = "s.id = b.id OR s.id = b.same_as_id OR s.same_as_id = coalesce(b.same_as_id, b.id)"
#: The recursion `made(id)`: instances with the rows of `roots`, and what was built from these rows, directly or not (rule 7.3).
BUILT_FROM_ROOTS = f"""SELECT id FROM roots UNION SELECT s.id FROM roots JOIN {PREFIX}instances s ON s.same_as_id = roots.id
    UNION SELECT s.id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id
    JOIN {PREFIX}instances b ON b.id = x.instance_id JOIN {PREFIX}instances s ON {HAS_ROWS_OF}"""
#: The step of the recursion `chain(ref_id, id, …)` from the newest instance of a ref back to the first instance before `:end`.
TO_THE_ONE_BEFORE = "chain.id >= :end AND p.previous_id IS NOT NULL"
#: The canonical instance at `:seq` for a row of `chain` with an id before `:end`: the row's, unless a later revert chose differently.
#: An instance is canonical from its creation on (rule 4.2), and its id begins with the seq of its creation.
CHOSEN_AT = f"""coalesce(
        (SELECT v.instance_id FROM {PREFIX}reverts v
         WHERE v.ref_id = chain.ref_id AND v.seq <= :seq AND v.seq > (chain.id >> {BITS}) ORDER BY v.seq DESC LIMIT 1),
        chain.id)"""
#: An instance at a seq. An instance that had not been live by then (`d` is NULL) had no data.
_THEN = Selection(
    Canonical,
    "d",
    ref="r.ref",
    state=state_at("i.id"),
    uuid="i.uuid",
    job_run="j.job_run_id",
    retry_at="NULL",
    reason="NULL",
    code_version="CASE WHEN d.id IS NULL THEN l.code_version ELSE d.code_version END",
    manifest_state=f"CASE WHEN i.manifest_state = '{REMOVED}' THEN i.manifest_state ELSE d.manifest_state END",
    files="d.n_files",
    rows="d.n_rows",
    bytes="d.n_bytes",
    known_origin="NULL",
    has_earlier_rows="i.same_as_id IS NOT NULL",
    code="j.code",
)
#: The canonical instances at a seq.
_CANONICAL_AT = f"""
WITH RECURSIVE chain(ref_id, id) AS (
    SELECT r.id, r.last_id FROM {PREFIX}refs r WHERE r.last_id IS NOT NULL AND {{refs}}
    UNION ALL
    SELECT chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id WHERE {TO_THE_ONE_BEFORE}
)
SELECT {_THEN.columns}
FROM chain JOIN {PREFIX}refs r ON r.id = chain.ref_id JOIN {PREFIX}instances i ON i.id = {CHOSEN_AT}
     JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
     LEFT JOIN {PREFIX}instances d ON d.id = i.id AND {was_live_at("i.id")}
WHERE chain.id < :end ORDER BY r.ref"""


def _before_removal(canonical: Canonical) -> Canonical:
    """The instance with the manifest state before a removal: without files it was empty."""
    if canonical.manifest_state != REMOVED:
        return canonical
    complete = "complete" if canonical.files else "empty"
    return canonical._replace(manifest_state=None if canonical.manifest_uri is None else complete)


def _failed_by(roots: str) -> str:
    """The refs whose ids a statement selects, and the refs that failed because of them, as the table `failed`."""
    return f"""
    WITH RECURSIVE failed(id) AS (
        {roots} UNION SELECT r.id FROM failed JOIN {PREFIX}missing m ON m.ref_id = failed.id AND m.active = 1
        JOIN {PREFIX}instances i ON i.id = m.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id
        WHERE r.canonical_id = i.id AND r.state = '{InstanceState.UPSTREAM_FAILED}'
    )"""


#: The refs among the given refs that failed, and the refs that failed because of them, as the table `failed`.
FAILED_BY = _failed_by(
    f"SELECT id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND state IN {one_of(FAILING)}"
)


#: Refs of `FailedAlike` that are named, and refs of which the attempts are counted.
MAX_OF_ALIKE = 3
MAX_ATTEMPTED = 1_000
#: Causes that are looked at.
MAX_CAUSES = 1_000
#: The beginning of the index of causes: state and `due` of refs that failed by themselves, and of wanted refs that are retried.
_FAILED = (InstanceState.FAILED, 0)
_RETRIED = (InstanceState.UP_FOR_RETRY, 1)


_Which = tuple[InstanceState, int]


def _with_cause(which: _Which, alias: str = "r") -> str:
    """The condition of the index of causes."""
    state, due = which
    return f"{alias}.state = '{state}' AND {alias}.due = {due} AND {alias}.cause IS NOT NULL"


class FailedAlike(NamedTuple):
    """Refs of a dataset that failed by themselves, or are tried again, by the same cause (rule 6.15)."""

    #: The last failures, at most `MAX_OF_ALIKE`.
    refs: list[Ref]
    #: The reason of the last failure.
    why: str | None
    #: The number of all, at most `MAX_COUNTED` + 1.
    n: int
    #: The highest number of attempts used by any of the last `MAX_ATTEMPTED`.
    attempts: int
    #: The refs that failed because of them, at most `MAX_COUNTED` + 1.
    n_waiting: int


class RunBehind(NamedTuple):
    """The run that is the cause of an UpstreamFailed ref."""

    #: The Dagster run in which a ref behind it failed; None if none did.
    dagster_run_id: str | None
    #: The job run whose cancellation failed a ref behind it (rule 6.10); None for none.
    canceled_job_run: str | None


#: States by their text; a call of the enumeration takes three times as long, and planning asks for thousands.
_STATES: dict[str | None, InstanceState | None] = {None: None, **{state.value: state for state in InstanceState}}


class MarkedRef(NamedTuple):
    """A ref with the state of its canonical instance."""

    ref: Ref
    state: InstanceState | None
    #: "complete" or "empty" once the instance was live, "removed" after a removal.
    manifest_state: str | None
    uuid: str | None
    is_wanted: bool


class MarkedGroup(NamedTuple):
    """The number of refs with equal beginnings that have the same state."""

    #: The first characters of the partition keys.
    beginning: str
    state: InstanceState | None
    is_wanted: bool
    n: int


_MARKED = Selection(MarkedRef, "r", manifest_state="i.manifest_state", uuid="i.uuid", is_wanted="r.n_open_wants > 0")
_GROUP = Selection(
    MarkedGroup, "r", beginning="substr(r.ref, ?, ?)", is_wanted="r.n_open_wants > 0 AS is_wanted", n="count(*)"
)


class RecordedRef(NamedTuple):
    """The recorded facts of a ref for a gap report. A ref that no event names has none."""

    ref: Ref
    #: The state of its canonical instance, None when it is missing; the two fields below are of that instance too.
    state: InstanceState | None
    manifest_state: str | None
    retry_at: float | None
    n_open_wants: int
    #: The time when the first of its open wants was recorded, and the end of the last open want's TTL.
    wanted_since: float
    wanted_until: float


class RecordedOfDataset(NamedTuple):
    """Refs of a dataset: live refs with the state of their manifest, and refs in other states. Most are live."""

    live: dict[Ref, str | None]
    others: dict[Ref, RecordedRef]


#: Numbers of a canonical instance, by name: what it has, and the seconds of the job run that built it.
NUMBERS: Mapping[str, str] = {
    "rows": "i.n_rows",
    "bytes": "i.n_bytes",
    "files": "i.n_files",
    "seconds": "j.ended_at - j.started_at",
}
#: Instances whose authors' numbers are named.
MAX_NAMED: Final = 100
_recorded_numbers = msgspec.json.Decoder(dict[str, float]).decode


_ROW = Selection(RecordedRef, "r", manifest_state="i.manifest_state")
_RECORDED = f"""
SELECT {_ROW.columns}
FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id WHERE """


_STATED = _ROW.places("ref", "state", "manifest_state")
_LIVE = InstanceState.LIVE.value


def _parted(answer: list[tuple[Any, ...]]) -> RecordedOfDataset:
    """Most refs are live, and an object for each live ref would cost more than the query."""
    live, others = {}, []
    ref, state, manifest_state = _STATED
    for row in answer:
        if row[state] == _LIVE:
            live[row[ref]] = row[manifest_state]
        else:
            others.append(row)
    return RecordedOfDataset(live, {recorded.ref: recorded for recorded in _ROW.rows(others)})


class CanonicalQueries(Asking):
    """Canonical instances of refs."""

    def _seen(self, answer: list[tuple[Any, ...]]) -> list[Canonical]:
        found = _NOW.rows(answer, manifest_uri=self._store.places.whole)
        for canonical in found:
            if canonical.uuid is None or canonical.job_run is None:
                raise self._damage_of(canonical.ref)
        return found

    def _damage_of(self, ref: Ref) -> MissingRow:
        """The error about a wrong canonical pointer of a ref (rule 3.5)."""
        sql = f"""
            SELECT r.canonical_id, r.state, i.state, i.job_run_id FROM {PREFIX}refs r
            LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id WHERE r.ref = ?"""
        ((row_id, said, state, job_run_id),) = self._all(sql, ref)
        if state is None:
            return self._missing("instances", row_id)
        if said != state:
            return Contradiction(
                seq=row_id >> BITS, entity=ref, state=said, on="its canonical instance", why=f"that is {state}"
            )
        return self._missing("job_runs", job_run_id)

    def of(self, refs: Sequence[Ref]) -> dict[Ref, Canonical]:
        """The canonical instance of every ref asked for (rules 4)."""
        answer = self._all(_CANONICAL + "r.ref IN (SELECT value FROM json_each(?))", Keys(refs))
        found = {canonical.ref: canonical for canonical in self._seen(answer)}
        return {ref: found.get(ref) or Canonical(ref) for ref in refs}

    def states(self, refs: Iterable[Ref]) -> dict[Ref, InstanceState | None]:
        """Canonical states alone, for planning; missing refs are None."""
        wanted = list(refs)
        if not wanted:
            return {}
        sql = f"SELECT ref, state FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))"
        found = dict(self._all(sql, Keys(wanted)))
        return {ref: _STATES[found.get(ref)] for ref in wanted}

    def input_states(self, refs: Iterable[Ref]) -> tuple[dict[Ref, InstanceState | None], dict[Ref, MissingRow]]:
        """As `states`, and the live refs among `refs` whose instance is missing in a damaged store (rule 3.5)."""
        wanted = list(refs)
        if not wanted:
            return {}, {}
        sql = f"""
            SELECT r.ref, r.state, CASE WHEN i.id IS NULL AND r.state = '{InstanceState.LIVE}' THEN r.canonical_id END
            FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        rows = self._all(sql, Keys(wanted))
        found = {row[0]: row[1] for row in rows}
        damaged = {row[0]: self._missing("instances", row[2]) for row in rows if row[2] is not None}
        return {ref: _STATES[found.get(ref)] for ref in wanted}, damaged

    @again_if_cut
    def _missing(self, table: str, row_id: int) -> MissingRow:
        with self._store.reading() as connection:
            return missing_row(connection, table, row_id)

    def failed_upstream_of(self, refs: Iterable[Ref]) -> list[Ref]:
        """The UpstreamFailed refs among `refs`, and the UpstreamFailed refs whose failure `refs` caused (rule 6.6)."""
        sql = f"""
            {FAILED_BY} SELECT r.ref FROM failed JOIN {PREFIX}refs r ON r.id = failed.id
            WHERE r.state = '{InstanceState.UPSTREAM_FAILED}' ORDER BY r.ref"""
        return [ref for (ref,) in self._all(sql, Keys(refs))]

    def n_failed_first(self) -> int:
        """The number of refs that failed by themselves, at most `MAX_COUNTED` + 1."""
        failed = f"SELECT 1 FROM {PREFIX}refs r WHERE {_with_cause(_FAILED)} LIMIT ?"
        ((n,),) = self._all(f"SELECT count(*) FROM ({failed}) counted", MAX_COUNTED + 1)
        return int(n)

    def failed_alike(self, most: int) -> tuple[int, list[FailedAlike]]:
        """The causes of all refs that failed by themselves: their number, at most `MAX_CAUSES`, and those that failed last."""
        return self._alike(_FAILED, most)

    def retried_alike(self, most: int) -> tuple[int, list[FailedAlike]]:
        """The causes of errors after which wanted refs are tried again, as `failed_alike`."""
        return self._alike(_RETRIED, most)

    def _alike(self, which: _Which, most: int) -> tuple[int, list[FailedAlike]]:
        # The index leads from each cause to the next one, so that the refs of a cause are not read one by one.
        following = f"SELECT n.id FROM {PREFIX}refs n WHERE {_with_cause(which, 'n')}"
        sql = f"""
            WITH RECURSIVE causes(id, place) AS (
                SELECT id, 1 FROM ({following} ORDER BY n.dataset_id, n.cause LIMIT 1) head
                UNION ALL SELECT coalesce(
                    ({following} AND n.dataset_id = r.dataset_id AND n.cause > r.cause ORDER BY n.cause LIMIT 1),
                    ({following} AND n.dataset_id > r.dataset_id ORDER BY n.dataset_id, n.cause LIMIT 1)), place + 1
                FROM causes JOIN {PREFIX}refs r ON r.id = causes.id WHERE place < ?
            ) SELECT r.dataset_id, r.cause, (
                SELECT max(n.canonical_id) FROM {PREFIX}refs n
                WHERE {_with_cause(which, "n")} AND n.dataset_id = r.dataset_id AND n.cause = r.cause) AS last
            FROM causes JOIN {PREFIX}refs r ON r.id = causes.id ORDER BY last DESC"""
        causes = self._all(sql, MAX_CAUSES)
        found = [self._alike_by(which, dataset_id, cause) for dataset_id, cause, _ in causes[:most]]
        return len(causes), [alike for alike in found if alike is not None]

    def _alike_by(self, which: _Which, dataset_id: int, cause: str) -> FailedAlike | None:
        """The refs of a cause; None if all of them were opened since it was found."""
        of_cause = f"WHERE {_with_cause(which)} AND r.dataset_id = ? AND r.cause = ?"
        newest = f"FROM {PREFIX}refs r {of_cause} ORDER BY r.canonical_id DESC LIMIT ?"
        named = f"""
            SELECT r.ref, i.reason FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id
            {of_cause} ORDER BY r.canonical_id DESC LIMIT ?"""
        rows = self._all(named, dataset_id, cause, MAX_OF_ALIKE)
        ((n,),) = self._all(f"SELECT count(*) FROM (SELECT 1 {newest}) counted", dataset_id, cause, MAX_COUNTED + 1)
        attempted = f"SELECT max(attempts) FROM (SELECT r.attempts {newest}) counted"
        ((attempts,),) = self._all(attempted, dataset_id, cause, MAX_ATTEMPTED)
        waiting = f"{_failed_by(f'SELECT id FROM (SELECT r.id {newest}) few')} SELECT count(*) FROM (SELECT id FROM failed LIMIT ?) counted"
        n_first = min(int(n), MAX_COUNTED)
        ((n_walked,),) = self._all(waiting, dataset_id, cause, n_first, n_first + MAX_COUNTED + 1)
        if not rows:
            return None
        n_waiting = max(int(n_walked) - n_first, 0)
        return FailedAlike([ref for ref, _ in rows], rows[0][1], int(n), int(attempts or 0), n_waiting)

    def failed_as(self, refs: Iterable[Ref], most: int) -> list[Ref]:
        """Refs that failed by themselves by the same cause as a ref of `refs` in their dataset, the last first."""
        # A condition on the state of the named refs would have SQLite look for them among all that failed.
        sql = f"""
            SELECT r.ref FROM (
                SELECT DISTINCT o.dataset_id, CASE WHEN o.state = '{InstanceState.FAILED}' THEN o.cause END AS cause
                FROM {PREFIX}refs o WHERE o.ref IN (SELECT value FROM json_each(?))
            ) few JOIN {PREFIX}refs r ON {_with_cause(_FAILED)} AND r.dataset_id = few.dataset_id AND r.cause = few.cause
            ORDER BY r.canonical_id DESC LIMIT ?"""
        return [ref for (ref,) in self._all(sql, Keys(refs), most)]

    def failed_first_behind(self, refs: Iterable[Ref]) -> list[tuple[Ref, str | None]]:
        """The refs that failed by themselves, among `refs` and behind their UpstreamFailed refs, with the reason, in order."""
        sql = f"""
            WITH RECURSIVE behind(id) AS (
                SELECT id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND state IN {one_of(FAILING)}
                UNION SELECT m.ref_id FROM behind JOIN {PREFIX}refs r ON r.id = behind.id
                JOIN {PREFIX}missing m ON m.instance_id = r.canonical_id AND m.active = 1
                WHERE r.state = '{InstanceState.UPSTREAM_FAILED}'
            ) SELECT r.ref, i.reason FROM behind JOIN {PREFIX}refs r ON r.id = behind.id
            JOIN {PREFIX}instances i ON i.id = r.canonical_id
            WHERE r.state = '{InstanceState.FAILED}' ORDER BY i.id"""
        return self._all(sql, Keys(refs))

    def runs_that_failed_first(self, refs: Iterable[Ref]) -> dict[Ref, RunBehind]:
        """Each UpstreamFailed ref among `refs`, with the run in which a ref behind it failed."""
        sql = f"""
            WITH RECURSIVE behind(asked, id) AS (
                SELECT ref, id FROM {PREFIX}refs
                WHERE ref IN (SELECT value FROM json_each(?)) AND state = '{InstanceState.UPSTREAM_FAILED}'
                UNION SELECT asked, m.ref_id FROM behind JOIN {PREFIX}refs r ON r.id = behind.id
                JOIN {PREFIX}missing m ON m.instance_id = r.canonical_id AND m.active = 1
                WHERE r.state = '{InstanceState.UPSTREAM_FAILED}'
            ) SELECT behind.asked, min(CASE WHEN j.state <> '{JobRunState.CANCELED}' THEN l.dagster_run_id END),
            min(CASE WHEN j.state = '{JobRunState.CANCELED}' THEN j.job_run_id END) FROM behind JOIN {PREFIX}refs r ON r.id = behind.id
            JOIN {PREFIX}instances i ON i.id = r.canonical_id AND i.state = '{InstanceState.FAILED}'
            JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
            GROUP BY behind.asked"""
        return {ref: RunBehind(*runs) for ref, *runs in self._all(sql, Keys(refs))}

    def states_of_dataset(self, asset: str) -> dict[Ref, InstanceState]:
        """The canonical state of every ref of a dataset that has an instance."""
        sql = f"SELECT r.ref, r.state FROM {PREFIX}refs r WHERE r.state IS NOT NULL AND {OF_DATASET}"
        return {ref: InstanceState(state) for ref, state in self._all(sql, *dataset_range(asset))}

    def unwanted(self, most: int) -> tuple[int, list[Ref]]:
        """The refs that wait for inputs or for a retry although no open want names them: their number, and the oldest.

        Scans all refs.
        """
        sql = f"""
            SELECT ref, count(*) OVER () FROM {PREFIX}refs
            WHERE state IN {one_of([InstanceState.UPSTREAM_BUILDING, InstanceState.UP_FOR_RETRY])} AND n_open_wants = 0
            ORDER BY canonical_id LIMIT ?"""
        rows = self._all(sql, most)
        return (int(rows[0][1]) if rows else 0), [ref for ref, _ in rows]

    def build_request_of_live(self, ref: Ref) -> str | None:
        """The Dagster run, or else the launch, that built the live instance of a ref; None when it is not live."""
        rows = self._all(f"SELECT build_request_id FROM {PREFIX}available_partitions WHERE partition_ref = ?", ref)
        return rows[0][0] if rows else None

    def of_dataset(self, asset: str) -> list[Canonical]:
        """Every ref of a dataset that has an instance, ordered by ref."""
        return self._seen(self._all(_CANONICAL + OF_DATASET + "ORDER BY r.ref", *dataset_range(asset)))

    def newest_live(self, asset: str) -> Canonical | None:
        """The live instance of a dataset that was made last; an instance with rows is preferred."""
        order = f"AND i.state = '{InstanceState.LIVE}' ORDER BY (coalesce(i.n_rows, 0) > 0) DESC, i.id DESC LIMIT 1"
        return next(iter(self._seen(self._all(_CANONICAL + OF_DATASET + order, *dataset_range(asset)))), None)

    def at(self, refs: Sequence[Ref], seq: int) -> dict[Ref, Canonical]:
        """For every ref asked for, what its readers saw when `seq` was the last event (rule 3.2).

        The state is that of then, and so is what it held: nothing before it was live, and all of it until the log says
        that it was removed. Reasons and retries are left out.
        """
        found = self._canonical_at("r.ref IN (SELECT value FROM json_each(:refs))", {"refs": Keys(refs)}, seq)
        by_ref = {canonical.ref: canonical for canonical in found}
        return {ref: by_ref.get(ref) or Canonical(ref) for ref in refs}

    def of_dataset_at(self, asset: str, seq: int) -> list[Canonical]:
        """Every ref of a dataset that had an instance when `seq` was the last event, ordered by ref."""
        one, first, end = dataset_range(asset)
        of_dataset = "(r.ref = :one OR (r.ref >= :first AND r.ref < :after)) "
        return self._canonical_at(of_dataset, {"one": one, "first": first, "after": end}, seq)

    @again_if_cut
    def _canonical_at(self, refs: str, parameters: dict[str, Any], seq: int) -> list[Canonical]:
        seq = min(seq, MAX_SEQ)
        named = {**parameters, "seq": seq, "end": (seq + 1) << BITS}
        with self._store.reading() as connection:
            rows = connection.execute(_CANONICAL_AT.format(refs=refs), named).fetchall()
            found = _THEN.rows(rows, manifest_uri=self._store.places.whole)
            if all(canonical.manifest_state != REMOVED for canonical in found):
                return found
            # Removals are rare: the log has their times, instead of a column of every instance.
            events = log.events_named(connection, Keys(["ManifestRemoved"]), 0, seq)
        gone = {uuid for event in events if isinstance(event.fact, ManifestRemoved) for uuid in event.fact.uuids}
        return [canonical if canonical.uuid in gone else _before_removal(canonical) for canonical in found]

    def marked(self, refs: Iterable[Ref]) -> list[MarkedRef]:
        """The refs among `refs` that were ever wanted or built, by key."""
        sql = f"""
            SELECT {_MARKED.columns} FROM {PREFIX}refs r LEFT JOIN {PREFIX}instances i ON i.id = r.canonical_id
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        return _MARKED.rows(self._all(sql, Keys(refs)))

    def marked_groups(self, asset: str, n_characters: int) -> list[MarkedGroup]:
        """The refs of a dataset, counted by the beginning of their partition keys. Looks at every ref of the dataset."""
        sql = f"""
            SELECT {_GROUP.columns} FROM {PREFIX}refs r WHERE {OF_DATASET} GROUP BY 1, 2, 3"""
        return _GROUP.rows(self._all(sql, len(asset) + 2, n_characters, *dataset_range(asset)))

    def numbers(self, asset: str, name: str) -> dict[Ref, float]:
        """A number for each live or tainted ref of a dataset that has it. Looks at every ref of the dataset.

        A name that is not of `NUMBERS` is that of a number of the author's metadata.
        """
        is_own = name in NUMBERS
        sql = f"""
            SELECT r.ref, {NUMBERS[name] if is_own else "i.numbers"} AS number
            FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id
            JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            WHERE r.state IN {one_of([InstanceState.LIVE, InstanceState.TAINTED])} AND {OF_DATASET}"""
        found = {ref: number for ref, number in self._all(sql, *dataset_range(asset)) if number is not None}
        if is_own:
            return found
        recorded = {ref: _recorded_numbers(text) for ref, text in found.items()}
        return {ref: numbers[name] for ref, numbers in recorded.items() if name in numbers}

    def recorded_numbers(self, asset: str) -> list[str]:
        """The names of the numbers in the metadata of a dataset's newest `MAX_NAMED` canonical instances that have such numbers."""
        sql = f"""
            SELECT i.numbers FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id
            WHERE i.numbers IS NOT NULL AND {OF_DATASET} ORDER BY i.id DESC LIMIT {MAX_NAMED}"""
        names = {name for (text,) in self._all(sql, *dataset_range(asset)) for name in _recorded_numbers(text)}
        return sorted(names - NUMBERS.keys())

    def recorded(self, refs: Iterable[Ref]) -> dict[Ref, RecordedRef]:
        """The recorded facts of each ref; a ref that no event names is left out."""
        answer = self._all(_RECORDED + "r.ref IN (SELECT value FROM json_each(?))", Keys(refs))
        return {recorded.ref: recorded for recorded in _ROW.rows(answer)}

    def recorded_between(self, first: str, last: str) -> RecordedOfDataset:
        """The recorded facts of every ref whose text is from `first` to `last`, both included (rule 10.7)."""
        return _parted(self._all(_RECORDED + "r.ref >= ? AND r.ref <= ?", first, last))
