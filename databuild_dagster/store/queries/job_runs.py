"""Job runs and the launches that host them (SPEC 6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from databuild_dagster.model.states import JobRunState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.queries.asking import OF_DATASET, Asking, dataset_range, list_decoder
from databuild_dagster.store.schema import PREFIX
from databuild_dagster.store.unit_of_work import ROWS_PER_EVENT_BITS as BITS


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


class LaunchSpan(NamedTuple):
    """How long a past launch worked on the job runs of it that succeeded."""

    n_job_runs: int
    #: From its start to the end of the first of them, and of the last.
    first_seconds: float
    seconds: float


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


def _job_run(row: tuple[Any, ...]) -> JobRunView:
    return JobRunView(row[0], row[1], row[2], list_decoder.decode(row[3]), JobRunState(row[4]), *row[5:])


class JobRunQueries(Asking):
    """Job runs and launches."""

    def job_run(self, job_run_id: str) -> JobRunView | None:
        rows = self._all(_JOB_RUNS + "WHERE j.job_run_id = ?", job_run_id)
        return _job_run(rows[0]) if rows else None

    def job_runs(self, *, open_only: bool = False, most: int = 100) -> list[JobRunView]:
        """The newest job runs, the newest first."""
        condition = f"WHERE j.id IN (SELECT o.id {_OPEN}) " if open_only else ""
        return [_job_run(row) for row in self._all(_JOB_RUNS + condition + "ORDER BY j.id DESC LIMIT ?", most)]

    def job_runs_named(self, job_run_ids: Iterable[str]) -> dict[str, JobRunView]:
        """By job run id; those that do not exist are left out."""
        rows = self._all(_JOB_RUNS + "WHERE j.job_run_id IN (SELECT value FROM json_each(?))", Keys(job_run_ids))
        return {row[0]: _job_run(row) for row in rows}

    def job_runs_of_launch(self, launch_id: str) -> list[JobRunView]:
        sql = f"""WHERE l.launch_id = ? AND j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
            ORDER BY j.id"""
        return [_job_run(row) for row in self._all(_JOB_RUNS + sql, launch_id)]

    def job_run_counts(self, after_seq: int) -> dict[str, dict[str, int]]:
        """Job runs that were buffered after a seq: by job, how many are in which state."""
        sql = f"""
            SELECT l.job, j.state, count(*) FROM {PREFIX}job_runs j JOIN {PREFIX}launches l ON l.id = j.launch_id
            WHERE j.id >= ? GROUP BY l.job, j.state ORDER BY min(j.id)"""
        counts: dict[str, dict[str, int]] = {}
        for job, state, n in self._all(sql, (after_seq + 1) << BITS):
            counts.setdefault(job, {})[state] = n
        return counts

    def launch(self, launch_id: str) -> LaunchView | None:
        rows = self._all(_LAUNCHES + "WHERE launch_id = ?", launch_id)
        return LaunchView(*rows[0]) if rows else None

    def open_launches(self) -> list[LaunchView]:
        """Launches with job runs that have not ended."""
        return [
            LaunchView(*row) for row in self._all(_LAUNCHES + f"WHERE id IN (SELECT o.launch_id {_OPEN}) ORDER BY id")
        ]

    def launch_spans(self, asset: str, *, most_refs: int = 1000, most: int = 20) -> list[LaunchSpan]:
        """The newest launches that built what is canonical of a dataset, among its last refs by name."""
        found = f"""
            SELECT DISTINCT j.launch_id FROM (
                SELECT r.canonical_id FROM {PREFIX}refs r WHERE {OF_DATASET} AND r.canonical_id IS NOT NULL
                ORDER BY r.ref DESC LIMIT ?
            ) newest JOIN {PREFIX}instances i ON i.id = newest.canonical_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            WHERE j.state = 'Succeeded' AND j.started_at IS NOT NULL ORDER BY j.launch_id DESC LIMIT ?"""
        launches = [launch_id for (launch_id,) in self._all(found, *dataset_range(asset), most_refs, most)]
        spans = f"""
            SELECT count(*), min(j.ended_at) - min(j.started_at), max(j.ended_at) - min(j.started_at) FROM {PREFIX}launches l
            JOIN {PREFIX}job_runs j ON j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND j.launch_id = l.id
            WHERE l.id IN (SELECT value FROM json_each(?)) AND j.state = 'Succeeded' GROUP BY l.id ORDER BY l.id"""
        return [LaunchSpan(*row) for row in self._all(spans, Keys(launches))]
