"""The ledger of requests: who asked for which ref, and who built it; and what a job's builds, and those not built, add up to.

What others built for a request stands in the table of delegations. What was built for it is told by its own job runs,
or by its wants, so that the common case, asking for what is not there, writes nothing for the ledger's sake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any, NamedTuple

import msgspec

from databuild_dagster.model.coordination import MESSAGES, Answer, DelegationOutcome
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.model.states import JobRunState
from databuild_dagster.store.schema import PREFIX as P
from databuild_dagster.store.sqlite import Store
from databuild_dagster.store.unit_of_work import ROWS_PER_EVENT_BITS as BITS


class LedgerEntry(NamedTuple):
    """What one request got for one ref (SPEC 8.1, 15)."""

    #: The request id of wants, or a Dagster run.
    requester: str
    ref: str
    kind: Answer
    #: The job run that builds it, or built it: at present, for what is still waited for.
    job_run: str | None
    uuid: str | None
    outcome: DelegationOutcome
    asked_at: float
    ended_at: float | None
    #: Why it was refused, failed, or was waited for no longer.
    reason: str
    #: The Dagster run that executed the job run; None for what was never one, as data from outside.
    dagster_run_id: str | None

    @property
    def message(self) -> str:
        """The delegation seed's words for it; empty for what was built."""
        return MESSAGES.get(self.kind, "")


class JobMetrics(NamedTuple):
    """What became of a job's runs (SPEC 8.5)."""

    job: str
    #: State to how many job runs are in it.
    counts: dict[str, int]
    #: Share of the ended job runs that succeeded or had nothing to do; None when none ended.
    success_rate: float | None
    #: Builds that were not needed because another's served.
    avoided: int
    #: Of one job run; None when none succeeded.
    median_seconds: float | None

    @property
    def seconds_saved(self) -> float | None:
        """Estimated from the median; None without history."""
        return None if self.median_seconds is None else self.avoided * self.median_seconds


_GOOD = (JobRunState.SUCCEEDED, JobRunState.SKIPPED)
_ENDED = (*_GOOD, JobRunState.FAILED, JobRunState.CANCELED, JobRunState.LOST)

_DELEGATED = f"""
SELECT d.requester, r.ref, d.kind, j.job_run_id, i.uuid, d.outcome, d.asked_at, d.ended_at, d.reason, l.dagster_run_id
FROM {P}delegations d JOIN {P}refs r ON r.id = d.ref_id
JOIN {P}instances i ON i.id = CASE d.outcome
    WHEN 'waiting' THEN r.canonical_id WHEN 'live' THEN coalesce(d.served_id, d.instance_id) ELSE d.instance_id END
JOIN {P}job_runs j ON j.id = i.job_run_id JOIN {P}launches l ON l.id = j.launch_id
WHERE {{which}} ORDER BY d.asked_at DESC, r.ref LIMIT ?"""

#: What an instance's state says of the request that it was built for.
_OUTCOME = """CASE WHEN i.was_live = 1 THEN 'live' WHEN i.state IN ('Failed', 'UpstreamFailed') THEN 'failed'
    WHEN i.state = 'Tainted' THEN 'failed' ELSE 'waiting' END"""

#: A Dagster run that claimed is the owner of its launch.
_CLAIMED = f"""
SELECT l.dagster_run_id, r.ref, 'built', j.job_run_id, i.uuid, {_OUTCOME}, l.buffered_at, j.ended_at,
       coalesce(i.reason, ''), l.dagster_run_id
FROM {P}launches l JOIN {P}job_runs j ON j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
JOIN {P}instances i ON i.id > j.id AND i.id < ((j.id >> {BITS}) + 1) << {BITS} AND i.job_run_id = j.id
JOIN {P}refs r ON r.id = i.ref_id
WHERE l.owner = l.dagster_run_id AND {{which}} ORDER BY l.id DESC, r.ref LIMIT ?"""

#: Of a want that nobody delegated for, what was made of its ref since.
_WANTED = f"""
SELECT w.request_id, r.ref, 'built', j.job_run_id, i.uuid,
       CASE WHEN w.state = 'Successful' THEN 'live' WHEN w.state IN ('Failed', 'UpstreamFailed') THEN 'failed'
            WHEN w.state IN ('Canceled', 'Expired') THEN 'given up' ELSE 'waiting' END,
       w.created_at, w.ended_at, coalesce(i.reason, ''), l.dagster_run_id
FROM {P}wants w JOIN {P}want_refs x ON x.want_id = w.id JOIN {P}refs r ON r.id = x.ref_id
LEFT JOIN {P}instances i ON i.id = r.canonical_id AND i.id > w.id
LEFT JOIN {P}job_runs j ON j.id = i.job_run_id LEFT JOIN {P}launches l ON l.id = j.launch_id
WHERE w.source NOT IN ('job run', 'dagster run') AND {{which}}
  AND NOT EXISTS (SELECT 1 FROM {P}delegations d WHERE d.requester = w.request_id AND d.ref_id = r.id)
ORDER BY w.id DESC, r.ref LIMIT ?"""

_REF_ID = f"(SELECT id FROM {P}refs WHERE ref = ?)"

#: The three parts of the ledger, by what is asked of it.
_ALL = (_DELEGATED.format(which="1"), _CLAIMED.format(which="1"), _WANTED.format(which="1"))
_OF_REQUESTER = (
    _DELEGATED.format(which="d.requester = ?"),
    _CLAIMED.format(which="l.dagster_run_id = ?"),
    _WANTED.format(which="w.request_id = ?"),
)
_OF_REF = (
    _DELEGATED.format(which=f"d.ref_id = {_REF_ID}"),
    _CLAIMED.format(which=f"i.ref_id = {_REF_ID}"),
    _WANTED.format(which=f"w.id IN (SELECT want_id FROM {P}holds WHERE ref_id = {_REF_ID})"),
)


class Ledger:
    """Read-only, as `Queries` is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def entries(self, *, most: int = 100) -> list[LedgerEntry]:
        """The newest entries of all requests, the newest first."""
        return self._entries(_ALL, (), most)

    def of_requester(self, requester: str, *, most: int = 100_000) -> list[LedgerEntry]:
        """What a request, or a Dagster run, got for each ref that it asked for."""
        return self._entries(_OF_REQUESTER, (requester,), most)

    def of_ref(self, ref: str, *, most: int = 100) -> list[LedgerEntry]:
        """Who asked for a ref."""
        return self._entries(_OF_REF, (ref,), most)

    def waiting_requesters(self, requesters: Iterable[str]) -> set[str]:
        """Of these, those that wait for another's build."""
        sql = f"""SELECT DISTINCT requester FROM {P}delegations
            WHERE requester IN (SELECT value FROM json_each(?)) AND outcome = 'waiting'"""
        with self._store.reading() as connection:
            found = connection.execute(sql, (msgspec.json.encode(list(requesters)).decode(),))
            return {requester for (requester,) in found}

    def _entries(self, parts: tuple[str, ...], key: tuple[str, ...], most: int) -> list[LedgerEntry]:
        with self._store.reading() as connection:
            rows: list[tuple[Any, ...]] = [row for sql in parts for row in connection.execute(sql, (*key, most))]
        entries = [
            LedgerEntry._make((*row[:2], Answer(row[2]), *row[3:5], DelegationOutcome(row[5]), *row[6:]))
            for row in rows
        ]
        entries.sort(key=lambda entry: (-entry.asked_at, entry.ref))
        return entries[:most]

    def metrics(self) -> list[JobMetrics]:
        """Every job that has run, or was spared it, by name."""
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        seconds: dict[str, list[float]] = defaultdict(list)
        avoided: dict[str, set[tuple[str, str | None]]] = defaultdict(set)
        with self._store.reading() as connection:
            for job, state, n in connection.execute(_COUNTS):
                counts[job][state] = n
            for job, each in connection.execute(_SECONDS):
                seconds[job].append(each)
            for job, requester, ref in connection.execute(_AVOIDED):
                avoided[job].add((requester, partition_key_of(ref)))
        return [
            _metrics(job, counts[job], seconds[job], len(avoided[job]))
            for job in sorted(counts.keys() | avoided.keys())
        ]


#: Data from outside was never a run of a job.
_COUNTS = f"""
SELECT l.job, j.state, count(*) FROM {P}job_runs j JOIN {P}launches l ON l.id = j.launch_id
WHERE l.location <> '' GROUP BY l.job, j.state"""

#: Of one job run: those of a launch run at the same time, so each has its share.
_SECONDS = f"""
SELECT l.job, (max(j.ended_at) - min(j.started_at)) / count(*) FROM {P}job_runs j JOIN {P}launches l ON l.id = j.launch_id
WHERE j.state = 'Succeeded' AND j.started_at IS NOT NULL GROUP BY l.id"""

_AVOIDED = f"""
SELECT s.job, d.requester, r.ref FROM {P}delegations d JOIN {P}refs r ON r.id = d.ref_id
JOIN {P}datasets s ON s.id = r.dataset_id WHERE d.kind IN ('joined', 'reused') AND d.outcome = 'live'"""


def _metrics(job: str, counts: dict[str, int], seconds: list[float], avoided: int) -> JobMetrics:
    ended = sum(counts.get(state.value, 0) for state in _ENDED)
    good = sum(counts.get(state.value, 0) for state in _GOOD)
    return JobMetrics(
        job=job,
        counts=counts,
        success_rate=good / ended if ended else None,
        avoided=avoided,
        median_seconds=median(seconds) if seconds else None,
    )
