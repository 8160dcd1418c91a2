"""Events of the log in few words, with the refs that they name, and the failures that are not repaired (rule 6.15).

Payloads stay on the command line (`databuild log events`), because they hold the paths of files.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import MAX_ATTEMPTS
from databuild_dagster.model.records import Time
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.touched import touched_refs
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.queries.queries import Queries

#: Refs that are named one by one, and causes of failures.
MAX_NAMED: Final = 5
MAX_CAUSES: Final = 20
_NO_REASON: Final = "its build failed"


class ShownEvent(msgspec.Struct, frozen=True):
    """An event; `refs` are the first of `n_refs`, which counts a job run as a single ref."""

    seq: int
    at: Time
    type: str
    actor: str
    refs: list[Ref]
    n_refs: int
    #: The reason or the comment that its actor gave.
    text: str


def event_shapes(queries: Queries, events: Sequence[e.Event]) -> list[ShownEvent]:
    """Events in their order; the refs of all job runs are looked up at once."""
    named = [(event, list(_refs(event)), list(_job_runs(event))) for event in events]
    job_runs = queries.job_runs.named({id for _, _, ids in named for id in ids[:MAX_NAMED]})
    found: list[ShownEvent] = []
    for event, refs, ids in named:
        of_runs = (ref for id in ids[:MAX_NAMED] if id in job_runs for ref in job_runs[id].refs)
        first = list(dict.fromkeys([*refs[:MAX_NAMED], *of_runs]))
        kind, text = str(type(event.fact).__struct_config__.tag), str(_first(event.fact, "reason", "comment") or "")
        n_refs = max(len(first), len(refs) + len(ids))
        found.append(ShownEvent(event.seq, Time(event.at), kind, event.actor, first[:MAX_NAMED], n_refs, text))
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


class Alike(msgspec.Struct, frozen=True):
    """Refs of the same asset that failed by themselves by the same cause: the last refs, and the number of all."""

    refs: list[Ref]
    #: 10,001 for more than 10,000, as the next number.
    n: int
    #: The reason of the last failure.
    why: str
    #: The refs that failed because of them.
    n_waiting: int


class Retrying(msgspec.Struct, frozen=True):
    """Wanted refs of the same asset that are retried after the same error: the last refs, and the number of all."""

    refs: list[Ref]
    n: int
    why: str
    #: The most attempts that any of the refs has used, of `of`; outages and kills do not count (rules 6.17, 6.18).
    attempts: int
    of: int


class Failures(msgspec.Struct, frozen=True):
    """The unrepaired failures and the refs that are retried, by asset and cause, the last first."""

    #: All unrepaired failures; 10,001 for more than 10,000.
    n: int
    #: The causes, of which `alike` has the last; at most 1,000 are looked at.
    n_causes: int
    alike: list[Alike]
    retrying: list[Retrying]


def failures_of(queries: Queries) -> Failures:
    """The causes of what failed by itself and is failed now, and of what is retried (rule 6.15)."""
    canonical = queries.canonical
    n_causes, failed = canonical.failed_alike(MAX_CAUSES)
    _, retried = canonical.retried_alike(MAX_CAUSES)
    return Failures(
        canonical.n_failed_first(),
        n_causes,
        [Alike(group.refs, group.n, one_line(group.why or _NO_REASON, None), group.n_waiting) for group in failed],
        [
            Retrying(group.refs, group.n, one_line(group.why or _NO_REASON, None), group.attempts, MAX_ATTEMPTS)
            for group in retried
        ],
    )
