"""Events of the log in few words, with the refs that they name, and the failures that are not repaired (rule 6.15).

Payloads stay on the command line (`databuild log events`), because they hold the paths of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypedDict, cast

from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import MAX_ATTEMPTS
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.touched import touched_refs
from databuild_dagster.model.wording import one_line
from databuild_dagster.shapes.fields import when
from databuild_dagster.store.queries.queries import Queries

#: Refs that are named one by one, and failures.
MAX_NAMED: Final = 5
MAX_FAILURES: Final = 20
_NO_REASON: Final = "its build failed"


class EventShape(TypedDict):
    """One event; `refs` are the first of `n_refs`, which counts a job run as one ref."""

    seq: int
    at: str
    type: str
    actor: str
    refs: list[Ref]
    n_refs: int
    #: The reason or the comment that its actor gave.
    text: str


def event_shapes(queries: Queries, events: Sequence[e.Event]) -> list[EventShape]:
    """Events in their order; the refs of all job runs are looked up at once."""
    named = [(event, list(_refs(event)), list(_job_runs(event))) for event in events]
    job_runs = queries.job_runs_named({id for _, _, ids in named for id in ids[:MAX_NAMED]})
    found: list[EventShape] = []
    for event, refs, ids in named:
        of_runs = (ref for id in ids[:MAX_NAMED] if id in job_runs for ref in job_runs[id].refs)
        first = list(dict.fromkeys([*refs[:MAX_NAMED], *of_runs]))
        found.append(
            {
                "seq": event.seq,
                "at": cast("str", when(event.at)),
                "type": str(type(event.fact).__struct_config__.tag),
                "actor": event.actor,
                "refs": first[:MAX_NAMED],
                "n_refs": max(len(first), len(refs) + len(ids)),
                "text": str(_first(event.fact, "reason", "comment") or ""),
            }
        )
    return found


def _refs(event: e.Event) -> Iterable[Ref]:
    match event.fact:
        case e.WantCreated(wants=wants):
            return [ref for want in wants for ref in want.refs]
        case e.PartitionsPaused(refs=refs) | e.PartitionsResumed(refs=refs):
            return refs
        case e.PartitionDelegated(delegations=delegations):
            return [delegation.ref for delegation in delegations]
        case e.ArcFired(firings=firings):
            return [lot for firing in firings for lot in firing.lots]
        case _:
            return sorted(touched_refs(event).refs)


def _job_runs(event: e.Event) -> Iterable[str]:
    match event.fact:
        case e.JobRunStarted(job_run_ids=ids):
            return ids
        case _:
            return touched_refs(event).job_runs


def _first(fact: e.Fact, *names: str) -> Any:
    return next((value for name in names if (value := getattr(fact, name, None))), None)


class FailureShape(TypedDict):
    """A ref that failed by itself, and the number of refs that failed because of it; 10,001 for more than 10,000."""

    ref: Ref
    why: str
    n_waiting: int


class AlikeShape(TypedDict):
    """Refs of one asset that failed by themselves for one reason: the last ones, and the number of all."""

    refs: list[Ref]
    n: int
    why: str
    #: Those that wait behind the first of the refs.
    n_waiting: int


class RetryingShape(TypedDict):
    """Wanted refs of one asset that are tried again after one error: the last ones, and the number of all."""

    refs: list[Ref]
    n: int
    why: str
    #: The attempts that one of them has used at most, of `of`; outages and kills are none (rules 6.17, 6.18).
    attempts: int
    of: int


class FailuresShape(TypedDict):
    """The newest failures that are not repaired, one by one, and by asset and reason; and what is tried again."""

    failures: list[FailureShape]
    alike: list[AlikeShape]
    retrying: list[RetryingShape]
    #: All that are not repaired, those above among them; 10,001 for more than 10,000.
    n: int


def newest_failures(queries: Queries) -> FailuresShape:
    """The refs that failed by themselves and are failed now, the last one first."""
    n, found = queries.failed_first(MAX_FAILURES)
    failures: list[FailureShape] = [
        {"ref": ref, "why": one_line(why or _NO_REASON), "n_waiting": queries.n_failed_because_of(ref)}
        for ref, why in found
    ]
    alike: list[AlikeShape] = [
        {
            "refs": group.refs,
            "n": group.n,
            "why": one_line(group.why or _NO_REASON),
            "n_waiting": queries.n_failed_because_of(group.refs[0]),
        }
        for group in queries.failed_alike(MAX_FAILURES)
    ]
    retrying: list[RetryingShape] = [
        {
            "refs": group.refs,
            "n": group.n,
            "why": one_line(group.why or _NO_REASON),
            "attempts": group.attempts,
            "of": MAX_ATTEMPTS,
        }
        for group in queries.retried_alike(MAX_FAILURES)
    ]
    return {"failures": failures, "alike": alike, "retrying": retrying, "n": n}
