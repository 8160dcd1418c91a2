"""The refs that some refs need to become live, as `databuild build` serves them (rule 8.9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection

#: The refs of one parameter that are not live, and what they need that is not live: the missing refs of an instance that
#: waits or failed for them, and of the last call of a due ref (rule 6.3). Declared inputs are among these, because a tick
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

    Mostly nothing is paused, and then no ref is looked up. The open pauses of whole datasets are few; those of refs are found by
    their key.
    """
    return f"""(NOT EXISTS (SELECT 1 FROM {PREFIX}pauses p WHERE p.ended_seq IS NULL) OR r.dataset_id NOT IN (
        SELECT p.dataset_id FROM {PREFIX}pauses p WHERE p.is_whole = 1 AND p.ended_seq IS NULL AND p.until > {time})
    AND NOT EXISTS (SELECT 1 FROM {PREFIX}pauses p WHERE p.ref = r.ref AND p.ended_seq IS NULL AND p.until > {time}))"""


#: With the time twice.
NOT_PAUSED = not_paused_at("?")


class Unserved(NamedTuple):
    """A ref of a request, with the state of its want."""

    ref: Ref
    state: WantState


class Awaited(NamedTuple):
    """An open job run that builds a served ref."""

    ref: Ref
    job_run: str
    state: JobRunState
    job: str
    launch_id: str
    #: The process that buffered the launch, and the one that executes it.
    owner: str
    holder: str | None
    dagster_run_id: str | None
    #: It is in its state since then.
    since: float


class DueSoon(NamedTuple):
    """The due refs of one dataset."""

    dataset_id: int
    #: Whether one of them is due now, and the time when the next one is.
    is_now: bool
    retry_at: float | None


_UNSERVED = Selection(Unserved, "w", ref="r.ref")
_AWAITED = Selection(
    Awaited,
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


class ServedQueries(Asking):
    """Served refs, and what builds them."""

    def unserved(self, request_id: str) -> list[Unserved]:
        """Each ref of a request with its want's state, but for wants that are successful. A build asks it twice for each tick."""
        sql = f"""
            SELECT {_UNSERVED.columns} FROM {PREFIX}wants w JOIN {PREFIX}want_refs x ON x.want_id = w.id
            JOIN {PREFIX}refs r ON r.id = x.ref_id WHERE w.request_id = ? AND w.state <> '{WantState.SUCCESSFUL}' ORDER BY w.id"""
        return _UNSERVED.rows(self._all(sql, request_id))

    def served_among(self, serving: Iterable[Ref], refs: Iterable[Ref]) -> set[Ref]:
        """The refs that are served, or that served ones need."""
        sql = f"""{SERVED} SELECT r.ref FROM served JOIN {PREFIX}refs r ON r.id = served.id
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        return {ref for (ref,) in self._all(sql, Keys(serving), Keys(refs))}

    def awaited(self, serving: Iterable[Ref], most: int) -> list[Awaited]:
        """The open job runs that the served refs need, the oldest first, with one line for each ref."""
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
