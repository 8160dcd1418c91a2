"""The refs that failed by themselves, and how many refs wait for each (rule 6.15)."""

from __future__ import annotations

from typing import Final, TypedDict

from databuild_dagster.engine.why.first_failures import FirstFailure
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.queries.queries import Queries

#: The end of the log in which failures are looked for. The tables have no index of failed refs: it would cost each
#: command a page, for a question that people ask.
MAX_EVENTS: Final = 20_000
#: Failures that are named.
MAX_NAMED: Final = 20
#: Failed refs whose first causes are looked for.
MAX_LOOKED_AT: Final = 500
_FAILING_EVENTS: Final = e.names_of(e.JobRunFailed, e.JobRunLost, e.JobRunDepMissed, e.JobRunCanceled)


class FailureShape(TypedDict):
    """A ref that failed by itself, and the number of refs that failed because of it."""

    ref: Ref
    why: str
    n_waiting: int


class FailuresShape(TypedDict):
    """The failures of the end of the log that are not repaired."""

    failures: list[FailureShape]
    n_others: int
    #: Failures before this event are not among them.
    since_seq: int


def recent_failures(queries: Queries) -> FailuresShape:
    """The refs that failed in the last `MAX_EVENTS` events, and are failed now."""
    head = queries.head().seq
    since = max(head - MAX_EVENTS, 0)
    events = queries.events_named(_FAILING_EVENTS, since, head)
    ids = {id for event in events for id in _ended(event)}
    refs = [ref for job_run in queries.job_runs_named(ids).values() for ref in job_run.refs]
    failing = [ref for ref, state in queries.states(dict.fromkeys(refs)).items() if state in FAILING]
    found = queries.failed_first_behind(failing[-MAX_LOOKED_AT:])
    named = [
        FirstFailure(ref, one_line(why or "its build failed"), len(queries.failed_upstream_of([ref])))
        for ref, why in found[-MAX_NAMED:][::-1]
    ]
    return {
        "failures": [{"ref": one.ref, "why": one.why, "n_waiting": one.n_waiting} for one in named],
        "n_others": max(len(found) - len(named), 0),
        "since_seq": since + 1,
    }


def _ended(event: e.Event) -> tuple[str, ...]:
    match event.fact:
        case e.JobRunFailed(failures=failures) | e.JobRunLost(failures=failures):
            return tuple(failure.job_run_id for failure in failures)
        case e.JobRunDepMissed(misses=misses):
            return tuple(miss.job_run_id for miss in misses)
        case e.JobRunCanceled(job_run_ids=ids):
            return tuple(ids)
        case _:
            return ()
