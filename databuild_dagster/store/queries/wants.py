"""Wants, open and ended, and their requesters (rules 5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec

from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.fold.react import CLAIMANT
from databuild_dagster.model.records import Column, Time
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import ARC, OPEN_WANTS, InstanceState, WantState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX, one_of
from databuild_dagster.store.queries.asking import MAX_SEQ, OF_DATASET, Asking, Selection, dataset_range, grouped
from databuild_dagster.store.queries.canonical import FAILED_BY
from databuild_dagster.store.queries.ids import IdKind, IdQueries


class WantView(msgspec.Struct, frozen=True):
    """A want."""

    id: Annotated[str, Column("want")]
    request_id: Annotated[str, Column("request", wide_only=True)]
    refs: Annotated[tuple[Ref, ...], Column()]
    state: Annotated[WantState, Column()]
    #: The kind of requester that recorded it: user, schedule, sensor, arc, job run, dagster run, or the word of a caller.
    source: Annotated[str, Column()]
    #: Which source: the name of the schedule or sensor, the instance that woke the arc, or the id of the run.
    source_id: str | None
    priority: Annotated[int, Column(wide_only=True)]
    created_at: Annotated[Time, Column("created", wide_only=True)]
    #: None for a want that never expires, or has no SLA.
    expires_at: Annotated[Time | None, Column("expires", wide_only=True)]
    comment: Annotated[str, Column(wide_only=True)]
    #: The time of the data that it asks for, if the requester gave it.
    data_timestamp: Time | None
    deadline: Annotated[Time | None, Column()]
    #: The time of the record that its SLA was missed.
    sla_missed_at: Annotated[Time | None, Column("sla", narrow=lambda _: "missed")]
    #: After an input has failed, the other inputs are not built for it (rule 6.14).
    fail_fast: bool
    #: The user or the process that recorded it.
    actor: Annotated[str, Column("by", wide_only=True)]
    ended_at: Annotated[Time | None, Column("ended", wide_only=True)]


class CutWant(WantView, frozen=True):
    """A want with the first of its `n_refs` refs."""

    n_refs: int
    is_cut: bool


class RefOfWant(NamedTuple):
    """A ref with the want that names it."""

    ref: Ref
    want_id: str


@dataclass(frozen=True)
class WantFilter:
    """The wants of a list; each field that is given leaves out more."""

    open_only: bool = False
    #: Also the wants that job runs recorded for their inputs (rule 6.4).
    derivative: bool = True
    ref: Ref | None = None
    asset: str | None = None
    #: States to select; empty for any.
    states: tuple[WantState, ...] = ()
    source: str | None = None
    #: Ids to select; None for any.
    ids: tuple[str, ...] | None = None
    #: The wants as they were when this was the last event (rule 3.2); None for now.
    seq: int | None = None
    #: Recorded after the want of this row id; None for all.
    after_id: int | None = None

    def condition(self) -> tuple[str, list[Any]]:
        """The WHERE clause and its parameters."""
        then = _state_at(self.seq)
        terms: list[tuple[str, tuple[Any, ...]]] = []
        if self.seq is not None:
            terms.append(("w.id < ?", ((min(self.seq, MAX_SEQ) + 1) << BITS,)))
        if self.open_only:
            terms.append((_IS_OPEN if self.seq is None else f"{then} IN {one_of(OPEN_WANTS)}", ()))
        if not self.derivative:
            terms.append(("w.source <> ?", (DERIVATIVE,)))
        if self.source is not None:
            terms.append(("w.source = ?", (self.source,)))
        if self.ids is not None:
            terms.append(("w.want_id IN (SELECT value FROM json_each(?))", (Keys(self.ids),)))
        if self.states:
            terms.append((f"{then} IN {one_of(self.states)}", ()))
        if self.ref is not None:
            terms.append((_NAMES.format(which="r.ref = ?"), (self.ref,)))
        if self.after_id is not None:
            terms.append(("w.id > ?", (self.after_id,)))
        if self.asset is not None:
            # A dataset may have a million wants: of few wants, each is looked at.
            are_few = (self.open_only and self.seq is None) or self.after_id is not None
            named = _NAMES_ONE if are_few else _NAMES
            terms.append((named.format(which=OF_DATASET), dataset_range(self.asset)))
        sql = " AND ".join(term for term, _ in terms)
        return (f"WHERE {sql} " if sql else ""), [value for _, values in terms for value in values]


EVERY_WANT = WantFilter()


class Asker(msgspec.Struct, frozen=True):
    """A want as the reason why an instance was built."""

    request_id: str
    refs: tuple[Ref, ...]
    source: str
    source_id: str | None
    #: The actor of the event that recorded it.
    actor: str
    comment: str
    want: str
    at: Time


class Origin(NamedTuple):
    """The origin of an instance."""

    #: From the start of its job run to the end; None for an instance without a job run, and before the end.
    seconds: float | None
    #: The ids of the wants that were open when it became live.
    wants: list[str]


class StillKept(NamedTuple):
    """A ref that was kept for a withdrawn want, and is kept for a second want."""

    want_id: str
    ref: Ref
    other_want_id: str


class LastWant(NamedTuple):
    """The newest want of a ref."""

    want_id: str
    state: WantState


class LateRef(NamedTuple):
    """A ref that is not live after the deadline of an open want."""

    ref: Ref
    #: The first deadline that has passed.
    deadline: float


_FIRST_REFS_OF_WANT = f"""(SELECT json_group_array(few.ref) FROM (
        SELECT n.ref FROM {PREFIX}want_refs y JOIN {PREFIX}refs n ON n.id = y.ref_id
        WHERE y.want_id = w.id ORDER BY y.ref_id{{limit}}) few)"""
_REFS_OF_WANT = _FIRST_REFS_OF_WANT.format(limit="")
_NAMES = f"""w.id IN (SELECT h.want_id FROM {PREFIX}holds h JOIN {PREFIX}refs r ON r.id = h.ref_id WHERE {{which}})"""
#: The same, asked for each want. Not EXISTS, of which PostgreSQL makes a join with all refs of the dataset.
_NAMES_ONE = f"""(SELECT count(*) FROM {PREFIX}want_refs x JOIN {PREFIX}refs r ON r.id = x.ref_id
        WHERE x.want_id = w.id AND {{which}}) > 0"""


#: By the index of open wants: a walk from the newest want on would pass every ended want.
_IS_OPEN = f"w.id IN (SELECT o.id FROM {PREFIX}wants o WHERE o.ended_at IS NULL)"


def _state_at(seq: int | None, last: str = "h.to_state") -> str:
    """The expression of a want's state when `seq` was the last event, or of another column of the move into it."""
    if seq is None:
        return "w.state"
    return f"""(SELECT {last} FROM {PREFIX}history h WHERE h.entity_id = w.id AND h.kind = 'wants'
        AND h.seq <= {min(seq, MAX_SEQ)} ORDER BY h.seq DESC, h.place DESC LIMIT 1)"""


def _time_of(seq: object) -> str:
    return f"(SELECT e.at FROM {PREFIX}events e WHERE e.seq = {seq})"


#: The actor of the event that recorded a want.
_ACTOR = f"(SELECT e.actor FROM {PREFIX}events e WHERE e.seq = w.id >> {BITS})"


@lru_cache(maxsize=64)
def _want(seq: int | None, most_refs: int | None = None) -> Selection[Any]:
    """The columns of a want when `seq` was the last event; None for now. With `most_refs`, the columns of a `CutWant`."""
    missed = f"CASE WHEN w.sla_missed_at <= {_time_of(seq)} THEN w.sla_missed_at END"
    # A taint may have opened it since.
    ended = f"CASE WHEN {_state_at(seq)} NOT IN {one_of(OPEN_WANTS)} THEN {_time_of(_state_at(seq, 'h.seq'))} END"
    return Selection(
        WantView if most_refs is None else CutWant,
        "w",
        id="w.want_id",
        refs=_REFS_OF_WANT if most_refs is None else _FIRST_REFS_OF_WANT.format(limit=f" LIMIT {most_refs}"),
        state=_state_at(seq),
        sla_missed_at="w.sla_missed_at" if seq is None else missed,
        actor=_ACTOR,
        ended_at="w.ended_at" if seq is None else ended,
        **({} if most_refs is None else {"is_cut": f"w.n_refs > {most_refs}"}),
    )


_WANT: Selection[WantView] = _want(None)
_FAILED = (WantState.FAILED, WantState.UPSTREAM_FAILED)
#: A want of more refs is not looked through.
MAX_NAMED = 1_000
_WANTS = f"SELECT {_WANT.columns} FROM {PREFIX}wants w "
#: The sources that this package records.
_SOURCES = ("user", "schedule", "sensor", ARC, DERIVATIVE, CLAIMANT)
_ASKER = Selection(Asker, "w", refs=_REFS_OF_WANT, want="w.want_id", at="w.created_at", actor=_ACTOR)
_LAST_WANT = Selection(LastWant, "w")


class Requester(msgspec.Struct, frozen=True):
    """The person, schedule or arc behind a request: the requester of its first want."""

    source: str
    source_id: str | None
    actor: str
    comment: str


_REQUESTER = Selection(Requester, "w", actor=_ACTOR)


class WantQueries(Asking):
    """Wants, open and ended."""

    def newest(self, which: WantFilter = EVERY_WANT, *, most: int = 100) -> list[WantView]:
        """The newest wants of a filter, the newest first."""
        return self._newest_of(_want(which.seq), which, most)

    def newest_cut(self, which: WantFilter, *, most: int, most_refs: int) -> list[CutWant]:
        """The same, each with the first `most_refs` of its refs."""
        return self._newest_of(_want(which.seq, most_refs), which, most)

    def _newest_of(self, want: Selection[Any], which: WantFilter, most: int) -> list[Any]:
        condition, parameters = which.condition()
        sql = f"SELECT {want.columns} FROM {PREFIX}wants w {condition}ORDER BY w.id DESC LIMIT ?"
        return want.rows(self._all(sql, *parameters, most))

    def count(self, which: WantFilter, most: int = MAX_SEQ) -> int:
        """The number of wants of a filter; the count stops at `most`."""
        condition, parameters = which.condition()
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {PREFIX}wants w {condition}LIMIT ?) counted"
        ((n,),) = self._all(sql, *parameters, most)
        return int(n)

    def before_newest(self, n: int, seq: int | None = None) -> int | None:
        """The row id of the want before the newest `n` wants, when `seq` was the last event; None if there are no more."""
        end = (min(MAX_SEQ if seq is None else seq, MAX_SEQ) + 1) << BITS
        rows = self._all(f"SELECT id FROM {PREFIX}wants WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?", end, n)
        return rows[0][0] if rows else None

    def check_source(self, source: str) -> None:
        """Raises `NotFound`, with near names, for a source that no want has and that this package does not record."""
        if source in _SOURCES:
            return
        recorded = [name for (name,) in self._all(f"SELECT DISTINCT source FROM {PREFIX}wants")]
        names = list(dict.fromkeys([*_SOURCES, *recorded]))
        if source not in names:
            raise NotFound(kind="source of wants", name=source, names=names)

    def named(self, name: str, seq: int | None = None) -> list[WantView]:
        """By want id or by request id, as they were when `seq` was the last event; None for now."""
        want, known = _want(seq), "" if seq is None else f" AND w.id < {(min(seq, MAX_SEQ) + 1) << BITS}"
        sql = f"""
            SELECT {want.columns} FROM {PREFIX}wants w WHERE (w.want_id = ? OR w.request_id = ?){known} ORDER BY w.id"""
        return want.rows(self._all(sql, name, name))

    def states_in_requests(self, request_ids: Iterable[str], seq: int | None = None) -> list[tuple[str, WantState]]:
        """Each state that a want of a request has, when `seq` was the last event; None for now."""
        end = (min(MAX_SEQ if seq is None else seq, MAX_SEQ) + 1) << BITS
        sql = f"""
            SELECT DISTINCT w.request_id, {_state_at(seq)} FROM {PREFIX}wants w
            WHERE w.request_id IN (SELECT value FROM json_each(?)) AND w.id < ?"""
        return [(id, WantState(state)) for id, state in self._all(sql, Keys(set(request_ids)), end)]

    def known(self, name: str) -> list[WantView]:
        """The wants of a want id or request id, in full or by its end. Raises as `IdQueries.full`."""
        return self.named(IdQueries(self._store).full(IdKind.WANT, name))

    def refs_of(self, name: str, most: int, offset: int = 0) -> tuple[int, list[RefOfWant]]:
        """The number of refs of a want or request by its whole id, and a page of them in the order of the wants."""
        of_name = "WHERE w.want_id = ? OR w.request_id = ?"
        ((n,),) = self._all(f"SELECT coalesce(sum(w.n_refs), 0) FROM {PREFIX}wants w {of_name}", name, name)
        sql = f"""
            SELECT r.ref, w.want_id FROM {PREFIX}wants w JOIN {PREFIX}want_refs y ON y.want_id = w.id
            JOIN {PREFIX}refs r ON r.id = y.ref_id {of_name} ORDER BY w.id, y.ref_id LIMIT ? OFFSET ?"""
        return int(n), [RefOfWant(*row) for row in self._all(sql, name, name, most, offset)]

    def of_ref(self, ref: Ref) -> list[WantView]:
        """Every want that ever named a ref (rule 5.6)."""
        sql = f"""
            WHERE w.id IN (SELECT want_id FROM {PREFIX}holds WHERE ref_id = (SELECT id FROM {PREFIX}refs WHERE ref = ?)) ORDER BY w.id"""
        return _WANT.rows(self._all(_WANTS + sql, ref))

    def last_of(self, refs: Iterable[Ref]) -> dict[Ref, LastWant]:
        """The newest want of each ref; a ref without any is left out."""
        sql = f"""
            SELECT r.ref, {_LAST_WANT.columns} FROM {PREFIX}refs r
            JOIN {PREFIX}wants w ON w.id = (SELECT max(h.want_id) FROM {PREFIX}holds h WHERE h.ref_id = r.id)
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        return dict(_LAST_WANT.by(self._all(sql, Keys(refs))))

    def derivative(self, refs: Iterable[Ref]) -> list[WantView]:
        """The newest want that a job run recorded for each ref, if it is open or failed (rule 6.4), the oldest first."""
        sql = f"""WHERE w.state IN {one_of([*OPEN_WANTS, *_FAILED])} AND w.id IN (
            SELECT max(d.id) FROM {PREFIX}refs r JOIN {PREFIX}holds h ON h.ref_id = r.id JOIN {PREFIX}wants d ON d.id = h.want_id
            WHERE r.ref IN (SELECT value FROM json_each(?)) AND d.source = ? GROUP BY r.id) ORDER BY w.id"""
        return _WANT.rows(self._all(_WANTS + sql, Keys(refs), DERIVATIVE))

    def refs_kept_for(self, request_id: str) -> list[Ref]:
        """The refs of the open wants that are kept for a request (rule 6.14)."""
        sql = f"""
            SELECT DISTINCT r.ref FROM {PREFIX}wants f JOIN {PREFIX}kept_for k ON k.want_id = f.id
            JOIN {PREFIX}wants w ON w.keeping = k.keeping AND w.ended_at IS NULL
            JOIN {PREFIX}want_refs x ON x.want_id = w.id JOIN {PREFIX}refs r ON r.id = x.ref_id
            WHERE f.request_id = ? ORDER BY r.ref"""
        return [ref for (ref,) in self._all(sql, request_id)]

    def kept_for_others(self, want_ids: Iterable[str]) -> list[StillKept]:
        """The refs that were kept for withdrawn wants and stay wanted, because they are kept for other wants too (rule 6.14)."""
        sql = f"""
            SELECT DISTINCT f.want_id, r.ref, o.want_id FROM {PREFIX}wants f JOIN {PREFIX}kept_for k ON k.want_id = f.id
            JOIN {PREFIX}wants w ON w.keeping = k.keeping AND w.ended_at IS NULL
            JOIN {PREFIX}kept_for j ON j.keeping = k.keeping JOIN {PREFIX}wants o ON o.id = j.want_id AND o.withdrawn = 0
            JOIN {PREFIX}want_refs x ON x.want_id = w.id JOIN {PREFIX}refs r ON r.id = x.ref_id
            WHERE f.want_id IN (SELECT value FROM json_each(?)) AND f.withdrawn = 1 ORDER BY f.want_id, r.ref, o.want_id"""
        return [StillKept(*row) for row in self._all(sql, Keys(want_ids))]

    def n_open(self) -> int:
        """The number of open wants."""
        ((n,),) = self._all(f"SELECT count(*) FROM {PREFIX}wants WHERE ended_at IS NULL")
        return int(n)

    def overdue(self, now: float, most: int) -> tuple[list[str], list[str]]:
        """(open wants past their TTL, wants past their SLA), the earliest first."""
        sql = f"""
            SELECT * FROM (SELECT 0 AS late, want_id FROM {PREFIX}wants
                           WHERE ended_at IS NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?) expiring
            UNION ALL
            SELECT * FROM (SELECT 1 AS late, want_id FROM {PREFIX}wants
                           WHERE sla_at IS NOT NULL AND sla_at <= ? ORDER BY sla_at LIMIT ?) missed
        """
        found: tuple[list[str], list[str]] = ([], [])
        for late, name in self._all(sql, now, most, now, most):
            found[late].append(str(name))
        return found

    def late_refs(self, assets: Iterable[str], now: float, most: int) -> dict[str, tuple[int, list[LateRef]]]:
        """By asset, the number of refs that are not live after an open want's SLA, and the first of them (rule 5.5).

        Scans all open wants.
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
                      AND coalesce(r.state, '') <> '{InstanceState.LIVE}' AND s.asset IN (SELECT value FROM json_each(?))
                    GROUP BY s.asset, r.ref
                ) late
            ) numbered WHERE place <= ? ORDER BY asset, deadline, ref"""
        found: dict[str, tuple[int, list[LateRef]]] = {asset: (0, []) for asset in named}
        for asset, ref, deadline, n in self._all(sql, now, Keys(named), most):
            found[asset] = (n, [*found[asset][1], LateRef(ref, deadline)])
        return found

    def repaired(self, ids: Iterable[str]) -> list[str]:
        """The wants among `ids` that ended by a failure, name at most `MAX_NAMED` refs, and have only live refs now."""
        sql = f"""
            SELECT w.want_id FROM {PREFIX}wants w
            WHERE w.want_id IN (SELECT value FROM json_each(?)) AND w.state IN {one_of(_FAILED)} AND w.n_refs <= ?
              AND NOT EXISTS (SELECT 1 FROM {PREFIX}want_refs x JOIN {PREFIX}refs r ON r.id = x.ref_id
                  WHERE x.want_id = w.id AND r.state IS NOT '{InstanceState.LIVE}')"""
        return [want_id for (want_id,) in self._all(sql, Keys(ids), MAX_NAMED)]

    def n_failed_because_of(self, refs: Iterable[Ref]) -> int:
        """The number of wants that failed because of `refs`, or of refs that `refs` made fail."""
        sql = f"""
            {FAILED_BY} SELECT count(DISTINCT w.id) FROM failed JOIN {PREFIX}holds x ON x.ref_id = failed.id AND x.open = 0
            JOIN {PREFIX}wants w ON w.id = x.want_id
            WHERE w.state IN {one_of(_FAILED)} AND w.source <> '{DERIVATIVE}'"""
        ((n,),) = self._all(sql, Keys(refs))
        return int(n)

    def origins(self, uuids: Iterable[str]) -> dict[str, Origin]:
        """The origins of instances, by uuid."""
        sql = f"""
            SELECT i.uuid, j.ended_at - j.started_at, w.want_id FROM {PREFIX}instances i
            LEFT JOIN {PREFIX}job_runs j ON j.id = i.job_run_id LEFT JOIN {PREFIX}holds h ON h.ref_id = i.ref_id
            LEFT JOIN {PREFIX}wants w ON w.id = h.want_id AND w.created_at <= i.live_at
                AND coalesce(w.ended_at, i.live_at) >= i.live_at
            WHERE i.uuid IN (SELECT value FROM json_each(?)) ORDER BY w.id"""
        found: dict[str, Origin] = {}
        for uuid, seconds, want_id in self._all(sql, Keys(uuids)):
            origin = found.setdefault(uuid, Origin(seconds, []))
            if want_id is not None:
                origin.wants.append(want_id)
        return found

    def askers(self, uuids: Iterable[str]) -> dict[str, tuple[Asker, ...]]:
        """The wants that were open for their refs when instances were created, by uuid; unwanted instances are left out."""
        sql = f"""
            SELECT i.uuid, {_ASKER.columns}
            FROM {PREFIX}instances i JOIN {PREFIX}holds h ON h.ref_id = i.ref_id JOIN {PREFIX}wants w ON w.id = h.want_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND w.id < i.id AND coalesce(w.ended_at, i.created_at) >= i.created_at
              AND (SELECT s.to_state FROM {PREFIX}history s WHERE s.entity_id = w.id AND s.kind = 'wants' AND s.seq < i.created_seq
                   ORDER BY s.seq DESC, s.place DESC LIMIT 1) IN {one_of(OPEN_WANTS)}
            ORDER BY i.id, w.id"""
        return grouped(_ASKER.by(self._all(sql, Keys(uuids))))

    def requesters(self, request_ids: Iterable[str]) -> dict[str, Requester]:
        """The requester of each request; a name that is no request, such as a Dagster run, is left out."""
        sql = f"""
            SELECT w.request_id, {_REQUESTER.columns} FROM {PREFIX}wants w WHERE w.id IN (
                SELECT min(x.id) FROM {PREFIX}wants x WHERE x.request_id IN (SELECT value FROM json_each(?))
                GROUP BY x.request_id)"""
        return dict(_REQUESTER.by(self._all(sql, Keys(request_ids))))
