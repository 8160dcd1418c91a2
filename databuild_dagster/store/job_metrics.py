"""The metrics of jobs: what became of their runs, and the builds that a delegation replaced (rule 8.5)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from threading import Lock
from typing import Final, NamedTuple

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.states import ARC, OPEN_JOB_RUNS, JobRunState
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.format import BITS, end_of_event, one_of
from databuild_dagster.store.format import PREFIX as P
from databuild_dagster.store.queries.instances import IS_BUILD
from databuild_dagster.store.queries.job_runs import TIME_OF_RUN, JobRunQueries
from databuild_dagster.store.store import Store

#: Later than any time.
MAX_TIME = 1e18
#: Larger than any id.
MAX_ID: Final = 2**63 - 1
#: Launches that are read at once.
LAUNCHES_AT_ONCE: Final = 10_000
#: Digits of seconds in the totals of jobs.
DIGITS: Final = 3
_GOOD = (JobRunState.SUCCEEDED, JobRunState.SKIPPED)
_ENDED = (*_GOOD, JobRunState.FAILED, JobRunState.CANCELED, JobRunState.LOST)


class JobMetrics(NamedTuple):
    """The results of a job's runs (rule 8.5)."""

    job: str
    #: State to how many job runs are in it. A reuse counts as a skipped job run.
    counts: dict[str, int]
    #: Share of the ended job runs that succeeded or were skipped; None when none ended.
    success_rate: float | None
    #: Builds that a delegation replaced, counted once for each request and partition key.
    avoided: int
    #: Builds that did not follow a build of an input, whose rows were equal: once for each ref and launch (rule 8.5).
    cut_off: int
    #: The median duration of a job run; None when no job run succeeded.
    median_seconds: float | None

    @property
    def seconds_saved(self) -> float | None:
        """Estimated from the median; None without history."""
        return None if self.median_seconds is None else (self.avoided + self.cut_off) * self.median_seconds


#: Data from outside is in launches without a location.
_RUNS = f"{P}job_runs j JOIN {P}launches l ON l.id = j.launch_id WHERE l.location <> ''"

#: Without skipped job runs, which are the reuses of Dagster runs: `_SPARED` counts those of every request.
_COUNTS = f"""
SELECT l.job, j.state, count(*) FROM {_RUNS} AND j.state <> '{JobRunState.SKIPPED}'
AND {TIME_OF_RUN} >= :since AND {TIME_OF_RUN} < :until GROUP BY l.job, j.state"""

#: The seconds of a launch divided by its job runs, which run at the same time.
_SECONDS = f"""
SELECT l.job, (max(j.ended_at) - min(j.started_at)) / count(*) FROM {_RUNS}
AND j.state = '{JobRunState.SUCCEEDED}' AND j.started_at IS NOT NULL AND j.ended_at >= :since AND j.ended_at < :until
GROUP BY l.id, l.job"""

#: Reuses, and reuses with joined builds: one for each requester and partition key, however many outputs it has.
#: Wants of arcs and of job runs are no requests of their own: a person's or a schedule's request caused them. All wants of a request
#: have the same source, so a single want is read: a request may have ten thousand, and each as many delegations.
_SPARED = f"""
SELECT job, sum(reused), count(*) FROM (
    SELECT s.job, max(CASE WHEN d.kind = '{Answer.REUSE}' THEN 1 ELSE 0 END) AS reused
    FROM {P}delegations d CROSS JOIN {P}refs r ON r.id = d.ref_id CROSS JOIN {P}datasets s ON s.id = r.dataset_id
    CROSS JOIN {P}job_runs j ON j.id = d.job_run_id CROSS JOIN {P}launches l ON l.id = j.launch_id
    WHERE d.kind IN {one_of([Answer.JOIN, Answer.REUSE])} AND d.outcome = '{DelegationOutcome.LIVE}' AND l.location <> ''
      AND d.asked_at >= :since AND d.asked_at < :until
      AND coalesce((SELECT w.source FROM {P}wants w WHERE w.request_id = d.requester LIMIT 1), '') NOT IN ('{ARC}', '{DERIVATIVE}')
    GROUP BY s.job, d.requester, substr(r.ref, length(s.asset) + 1)) AS spared
GROUP BY job"""

#: The launch `l` of an instance.
_LAUNCHED = f"CROSS JOIN {P}job_runs j ON j.id = {{of}}.job_run_id CROSS JOIN {P}launches l ON l.id = j.launch_id"
#: Builds `n` with the rows of `u`, for each ref whose instance `i` at that time had been built from `u`. The next build of the ref
#: follows `n` if it read `n`. Readers come first, for the pairs of `u` and `n` are quadratic. CROSS JOIN keeps SQLite from reading
#: all instances.
_CUT_OFF = f"""
WITH RECURSIVE had(id, root_id) AS (
    SELECT id, same_as_id FROM {P}instances WHERE same_as_id IS NOT NULL
    UNION SELECT same_as_id, same_as_id FROM {P}instances WHERE same_as_id IS NOT NULL
), readers(id, ref_id, job, read_id, root_id, content_hash) AS (
    SELECT i.id, i.ref_id, l.job, u.id, had.root_id, u.content_hash FROM had CROSS JOIN {P}instances u ON u.id = had.id
    CROSS JOIN {P}instance_inputs x ON x.input_id = u.id CROSS JOIN {P}instances i ON i.id = x.instance_id
    {_LAUNCHED.format(of="i")} WHERE i.was_live = 1 AND l.location <> ''
), chain(id, next_id) AS (
    SELECT last_id, {MAX_ID} FROM {P}refs WHERE id IN (SELECT ref_id FROM readers)
    UNION ALL SELECT k.previous_id, CASE WHEN k.was_live = 1 AND {IS_BUILD} THEN k.id ELSE chain.next_id END
    FROM chain CROSS JOIN {P}instances k ON k.id = chain.id {_LAUNCHED.format(of="k")} WHERE k.previous_id IS NOT NULL
)
SELECT job, count(*) FROM (
    SELECT DISTINCT i.job, i.ref_id, l.id FROM readers i CROSS JOIN chain ON chain.id = i.id
    CROSS JOIN {P}instances n ON n.same_as_id = i.root_id AND n.id > i.id AND n.id < chain.next_id
    {_LAUNCHED.format(of="n")}
    WHERE n.live_at >= :since AND n.live_at < :until AND n.id > i.read_id AND n.content_hash = i.content_hash AND {IS_BUILD}
      AND NOT EXISTS (
        SELECT 1 FROM {P}instance_inputs y WHERE y.instance_id = chain.next_id AND y.ref_id = n.ref_id AND y.input_id = n.id)
) AS cut_off
GROUP BY job"""


def metrics_of_jobs(
    store: Store, job: str | None = None, *, since: float = 0.0, until: float = MAX_TIME
) -> list[JobMetrics]:
    """Every job with runs or delegations, by name. Reads all of them; `JobTotals` reads each once.

    The window has job runs by their end, and open job runs by their start; delegations by their request.
    Raises `NotFound` for a job that never ran.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, list[float]] = defaultdict(list)
    window = {"since": since, "until": until}
    with store.reading() as connection:
        for name, state, n in connection.execute(_COUNTS, window):
            counts[name][state] = n
        for name, seconds_of_one in connection.execute(_SECONDS, window):
            seconds[name].append(seconds_of_one)
        medians = {name: median(found) for name, found in seconds.items()}
        found = _with_spared(connection, counts, medians, since, until)
    if job is not None:
        JobRunQueries(store).check_job(job)
    return [metrics for metrics in found if job in (None, metrics.job)]


def _with_spared(
    connection: Connection,
    counts: Mapping[str, Mapping[str, int]],
    medians: Mapping[str, float],
    since: float = 0.0,
    until: float = MAX_TIME,
) -> list[JobMetrics]:
    all_counts: dict[str, dict[str, int]] = {name: dict(of_job) for name, of_job in counts.items()}
    avoided: dict[str, int] = {}
    for name, n_reused, n in connection.execute(_SPARED, {"since": since, "until": until}):
        avoided[name] = n
        if n_reused:
            all_counts.setdefault(name, {})[JobRunState.SKIPPED] = int(n_reused)
    cut_off = dict(connection.execute(_CUT_OFF, {"since": since, "until": until}).fetchall())
    return [
        _metrics(name, all_counts.get(name, {}), medians.get(name), avoided.get(name, 0), cut_off.get(name, 0))
        for name in sorted(all_counts.keys() | avoided.keys() | cut_off.keys())
    ]


def _metrics(job: str, counts: dict[str, int], median_seconds: float | None, avoided: int, cut_off: int) -> JobMetrics:
    ended = sum(counts.get(state.value, 0) for state in _ENDED)
    good = sum(counts.get(state.value, 0) for state in _GOOD)
    return JobMetrics(
        job=job,
        counts=counts,
        success_rate=good / ended if ended else None,
        avoided=avoided,
        cut_off=cut_off,
        median_seconds=median_seconds,
    )


#: The job runs of launches, which are numbered after their launch. CROSS JOIN and the plus keep SQLite from reading all job runs.
_OF_LAUNCHES = f"""
SELECT l.id, l.job, j.state, j.started_at, j.ended_at FROM {P}launches l
CROSS JOIN {P}job_runs j ON j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND +j.launch_id = l.id
WHERE l.location <> '' AND j.state <> '{JobRunState.SKIPPED}' AND {{which}} AND (+j.id) > :first AND (+j.id) < :end ORDER BY l.id"""
_LAST_OF_NEXT = f"SELECT max(id) FROM (SELECT id FROM {P}launches WHERE id > :after ORDER BY id LIMIT :most) following"


class _Launch(NamedTuple):
    """The job runs of a launch by state, and their duration."""

    job: str
    counts: Counter[str]
    #: The time of a single job run, because they run at the same time; None if no job run succeeded.
    seconds: float | None

    @property
    def has_ended(self) -> bool:
        return not any(state in self.counts for state in OPEN_JOB_RUNS)


class JobTotals:
    """The metrics of all jobs from the beginning of the log, for a process that asks for them again and again.

    A launch that has ended is read once: its job runs do not change any more. The median is exact to a thousandth of a second.
    Thread-safe.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        #: The last launch that was read, and the launches before it whose job runs have not all ended.
        self._after = 0
        self._open: list[int] = []
        self._ended = _Ended()

    def metrics(self) -> list[JobMetrics]:
        """Every job with runs or delegations, by name."""
        with self._lock, self._store.reading() as connection:
            still_open = self._read(connection)
            counts = {job: Counter(of_job) for job, of_job in self._ended.counts.items()}
            seconds = {job: Counter(of_job) for job, of_job in self._ended.seconds.items()}
            for launch in still_open:
                _add(launch, counts.setdefault(launch.job, Counter()), seconds.setdefault(launch.job, Counter()))
            medians = {job: _median(of_job) for job, of_job in seconds.items() if of_job}
            return _with_spared(connection, {job: +of_job for job, of_job in counts.items() if of_job}, medians)

    def _read(self, connection: Connection) -> list[_Launch]:
        """Read what is new; returns the launches that have not ended."""
        among_open, of_open = "l.id IN (SELECT value FROM json_each(:ids))", {"ids": Keys(self._open)}
        found = _launches(connection, among_open, of_open, min(self._open), max(self._open)) if self._open else {}
        ended, after = _Ended(), self._after
        while (last := _last_of_next(connection, after)) is not None:
            ended.take(found)
            found = {id: found[id] for id in found if not found[id].has_ended}
            found |= _launches(
                connection, "l.id > :after AND l.id <= :last", {"after": after, "last": last}, after, last
            )
            after = last
        ended.take(found)
        still_open = {id: launch for id, launch in found.items() if not launch.has_ended}
        # After all reads: an error between them would leave launches that are counted and read again, or neither.
        self._ended.merge(ended)
        self._after, self._open = after, list(still_open)
        return list(still_open.values())


class _Ended:
    """The sums of launches that have ended, by job."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.seconds: dict[str, Counter[float]] = defaultdict(Counter)

    def take(self, found: Mapping[int, _Launch]) -> None:
        """Add the ended launches among `found`."""
        for launch in found.values():
            if launch.has_ended:
                _add(launch, self.counts[launch.job], self.seconds[launch.job])

    def merge(self, other: _Ended) -> None:
        for job, counts in other.counts.items():
            self.counts[job].update(counts)
        for job, seconds in other.seconds.items():
            self.seconds[job].update(seconds)


def _last_of_next(connection: Connection, after: int) -> int | None:
    """The last of the next launches that are read at once; None if there are no more."""
    ((last,),) = connection.execute(_LAST_OF_NEXT, {"after": after, "most": LAUNCHES_AT_ONCE}).fetchall()
    return None if last is None else int(last)


def _add(launch: _Launch, counts: Counter[str], seconds: Counter[float]) -> None:
    counts.update(launch.counts)
    if launch.seconds is not None:
        seconds[round(launch.seconds, DIGITS)] += 1


def _launches(
    connection: Connection, which: str, parameters: Mapping[str, object], first: int, last: int
) -> dict[int, _Launch]:
    """The launches for which a condition holds, all of which are between two."""
    bounds = {"first": first, "end": end_of_event(last)}
    runs: dict[int, list[tuple[str, str, float | None, float | None]]] = defaultdict(list)
    for launch_id, *run in connection.execute(_OF_LAUNCHES.format(which=which), {**parameters, **bounds}):
        runs[launch_id].append(tuple(run))
    return {launch_id: _launch(of_launch) for launch_id, of_launch in runs.items()}


def _launch(runs: list[tuple[str, str, float | None, float | None]]) -> _Launch:
    times = [
        (began, ended)
        for _, state, began, ended in runs
        if state == JobRunState.SUCCEEDED and began is not None and ended is not None
    ]
    seconds = (max(ended for _, ended in times) - min(began for began, _ in times)) / len(times) if times else None
    return _Launch(runs[0][0], Counter(state for _, state, _, _ in runs), seconds)


def _median(counted: Counter[float]) -> float:
    """The median of values that are counted."""
    n_before = 0
    halves: list[float] = []
    n = counted.total()
    for value in sorted(counted):
        n_before += counted[value]
        while len(halves) < 2 and n_before > (n - 1 + len(halves)) // 2:
            halves.append(value)
    return sum(halves) / 2
