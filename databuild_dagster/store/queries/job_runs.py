"""Job runs, the launches that host them, and Dagster runs that wait for foreign builds (rules 6, 8)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.fold.react import CLAIMANT
from databuild_dagster.model.records import Time
from databuild_dagster.model.refs import Ref, derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX, one_of
from databuild_dagster.store.queries.asking import CHAIN, Asking, Selection, dataset_range


class JobRunView(NamedTuple):
    """A job run with fields of its launch."""

    id: str
    job: str
    partition_key: str | None
    refs: tuple[Ref, ...]
    state: JobRunState
    dagster_run_id: str | None
    launch_id: str
    buffered_at: Time
    started_at: Time | None
    ended_at: Time | None
    error: str | None

    @property
    def instances(self) -> tuple[str, ...]:
        """The uuids of its instances, in the order of its refs (rule 2.2); a skipped job run has none."""
        refs = () if self.state is JobRunState.SKIPPED else self.refs
        return tuple(derive_partition_uuid(self.id, ref) for ref in refs)


#: The time of a job run: its end, or its beginning if it has not ended (rule 8.5).
TIME_OF_RUN: Final = "coalesce(j.ended_at, j.buffered_at)"


@dataclass(frozen=True)
class JobRunFilter:
    """The job runs of a list; each field that is given leaves out more."""

    states: tuple[JobRunState, ...] = ()
    job: str | None = None
    #: It has an instance of this ref. A skipped job run has none.
    ref: Ref | None = None
    #: Its time (`TIME_OF_RUN`) is not earlier.
    since: float | None = None
    #: Among so many of the newest job runs; None for all.
    of_newest: int | None = None

    def terms(self) -> list[tuple[str, Any]]:
        """The conditions, each with its parameter."""
        newest = f"(SELECT o.id FROM {PREFIX}job_runs o ORDER BY o.id DESC LIMIT 1 OFFSET ?)"
        terms = [
            ("l.job = ?", self.job),
            (
                f"j.id IN ({CHAIN.format(ref='?')} SELECT i.job_run_id FROM chain JOIN {PREFIX}instances i ON i.id = chain.id)",
                self.ref,
            ),
            (f"{TIME_OF_RUN} >= ?", self.since),
            (f"j.id > coalesce({newest}, 0)", self.of_newest),
        ]
        return [(term, value) for term, value in terms if value is not None]


EVERY_JOB_RUN: Final = JobRunFilter()


class LaunchView(NamedTuple):
    """A launch."""

    launch_id: str
    job: str
    location: str
    owner: str
    holder: str | None
    dagster_run_id: str | None
    buffered_at: float
    started_at: float | None


class LaunchSpan(NamedTuple):
    """The duration of a past launch, by its job runs that succeeded."""

    n_job_runs: int
    #: From its start to the end of the first of them, and of the last.
    first_seconds: float
    seconds: float


_JOB_RUN = Selection(
    JobRunView, "j", id="j.job_run_id", job="l.job", dagster_run_id="l.dagster_run_id", launch_id="l.launch_id"
)
_JOB_RUNS = f"SELECT {_JOB_RUN.columns} FROM {PREFIX}job_runs j JOIN {PREFIX}launches l ON l.id = j.launch_id "
_LAUNCH = Selection(LaunchView, "l")
_LAUNCHES = f"SELECT {_LAUNCH.columns} FROM {PREFIX}launches l "
_SPAN = Selection(
    LaunchSpan,
    "j",
    n_job_runs="count(*)",
    first_seconds="min(j.ended_at) - min(j.started_at)",
    seconds="max(j.ended_at) - min(j.started_at)",
)
#: An open job run holds the lease of each of its refs, and refs that are being built have an index.
_OPEN = f"""
FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id JOIN {PREFIX}job_runs o ON o.id = i.job_run_id
WHERE r.due = 0 AND r.state = '{InstanceState.BUILDING}'"""

#: Only Dagster runs, not wants: a claim makes wants whose request is the Dagster run.
_WAITING_DAGSTER_RUNS = f"""
SELECT d.requester, r.ref, CASE WHEN d.kind = '{Answer.BUILD}' AND EXISTS (
    SELECT 1 FROM {PREFIX}holds x JOIN {PREFIX}wants w ON w.id = x.want_id
    WHERE x.ref_id = d.ref_id AND x.open = 1 AND w.request_id = d.requester) THEN 1 ELSE 0 END
FROM {PREFIX}delegations d JOIN {PREFIX}refs r ON r.id = d.ref_id
WHERE d.outcome = '{DelegationOutcome.WAITING}' AND {{which}} AND EXISTS (
    SELECT 1 FROM {PREFIX}wants w WHERE w.request_id = d.requester AND w.source = '{CLAIMANT}')
ORDER BY d.requester, r.ref"""


class JobRunQueries(Asking):
    """Job runs and waiting Dagster runs."""

    def get(self, job_run_id: str) -> JobRunView | None:
        return next(iter(_JOB_RUN.rows(self._all(_JOB_RUNS + "WHERE j.job_run_id = ?", job_run_id))), None)

    def newest(
        self, which: JobRunFilter = EVERY_JOB_RUN, *, open_only: bool = False, most: int = 100
    ) -> list[JobRunView]:
        """The newest job runs of a filter, the newest first."""
        terms = which.terms()
        conditions = [term for term, _ in terms]
        if which.states:
            conditions.append(f"j.state IN {one_of(which.states)}")
        if open_only:
            conditions.append(f"j.id IN (SELECT o.id {_OPEN})")
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        sql = f"{_JOB_RUNS}{where}ORDER BY j.id DESC LIMIT ?"
        return _JOB_RUN.rows(self._all(sql, *(value for _, value in terms), most))

    def check_job(self, job: str) -> None:
        """Raises `NotFound`, with near names, for a job without a job run."""
        names = [name for (name,) in self._all(f"SELECT DISTINCT job FROM {PREFIX}launches ORDER BY job")]
        if job not in names:
            raise NotFound(kind="job with a job run", name=job, names=names)

    def named(self, job_run_ids: Iterable[str]) -> dict[str, JobRunView]:
        """The job runs by id; unknown ids are left out."""
        answer = self._all(_JOB_RUNS + "WHERE j.job_run_id IN (SELECT value FROM json_each(?))", Keys(job_run_ids))
        return {job_run.id: job_run for job_run in _JOB_RUN.rows(answer)}

    def of_launch(self, launch_id: str) -> list[JobRunView]:
        sql = f"""WHERE l.launch_id = ? AND j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
            ORDER BY j.id"""
        return _JOB_RUN.rows(self._all(_JOB_RUNS + sql, launch_id))

    def scan_waiting_dagster_runs(self) -> list[str]:
        """Dagster runs that wait for foreign builds (rule 8.3). Scans all delegations."""
        return list(dict.fromkeys(run_id for run_id, *_ in self._all(_WAITING_DAGSTER_RUNS.format(which="1 = 1"))))

    def still_waiting(self, requesters: Iterable[str]) -> dict[str, dict[Ref, bool]]:
        """The waiting Dagster runs among some requesters, with their refs.

        True for a ref that the Dagster run should have built and could not, while its want is open: other launches build it for that want
        (rule 8.1).
        """
        which = "d.requester IN (SELECT value FROM json_each(?))"
        found: dict[str, dict[Ref, bool]] = {}
        for run_id, ref, is_followed_up in self._all(_WAITING_DAGSTER_RUNS.format(which=which), Keys(requesters)):
            found.setdefault(run_id, {})[ref] = bool(is_followed_up)
        return found


class LaunchQueries(Asking):
    """Launches."""

    def get(self, launch_id: str) -> LaunchView | None:
        return next(iter(_LAUNCH.rows(self._all(_LAUNCHES + "WHERE launch_id = ?", launch_id))), None)

    def open(self) -> list[LaunchView]:
        """Launches with job runs that have not ended."""
        return _LAUNCH.rows(self._all(_LAUNCHES + f"WHERE id IN (SELECT o.launch_id {_OPEN}) ORDER BY id"))

    def spans(self, asset: str, *, most_refs: int = 1000, most: int = 20) -> list[LaunchSpan]:
        """The newest launches that built canonical instances of a dataset, among its last refs by name."""
        # The ref without a key apart: for "one or a range", SQLite would sort all refs of the dataset.
        found = f"""
            SELECT DISTINCT j.launch_id FROM (
                SELECT canonical_id FROM {PREFIX}refs WHERE ref = ?
                UNION ALL SELECT * FROM (
                    SELECT canonical_id FROM {PREFIX}refs WHERE ref >= ? AND ref < ? AND canonical_id IS NOT NULL
                    ORDER BY ref DESC LIMIT ?) newest
            ) newest JOIN {PREFIX}instances i ON i.id = newest.canonical_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            WHERE j.state = '{JobRunState.SUCCEEDED}' AND j.started_at IS NOT NULL ORDER BY j.launch_id DESC LIMIT ?"""
        launches = [launch_id for (launch_id,) in self._all(found, *dataset_range(asset), most_refs, most)]
        spans = f"""
            SELECT {_SPAN.columns} FROM {PREFIX}launches l
            JOIN {PREFIX}job_runs j ON j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
            WHERE l.id IN (SELECT value FROM json_each(?)) AND j.state = '{JobRunState.SUCCEEDED}' GROUP BY l.id ORDER BY l.id"""
        return _SPAN.rows(self._all(spans, Keys(launches)))
