"""A retry taints the first causes of failures and wants again the refs that failed by them (rule 6.6)."""

from dataclasses import dataclass, replace

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.decide.delegations import answer, delegated
from databuild_dagster.model.errors import InvalidRequest, NothingToRetry
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER, RefRow, WantRow
from databuild_dagster.model.states import FAILING, InstanceState, WantState
from databuild_dagster.model.view import Openness, View
from databuild_dagster.model.wording import LAST_TIME

#: Levels of failures that are followed upstream or downstream of a ref; a graph is not deeper.
MAX_LEVELS = 10_000

_FAILED = frozenset({WantState.FAILED, WantState.UPSTREAM_FAILED})


def retry_refs(command: c.RetryRefs, deciding: Deciding) -> list[e.Fact]:
    """A taint of the first causes, and the wants. Raises `NothingToRetry` for a ref that has not failed."""
    if not command.refs:
        raise InvalidRequest(what="the list of refs", value=[], why="it names none")
    asked = []
    for text, row in deciding.existing_refs(command.refs).items():
        if row is None or row.state not in FAILING:
            raise NothingToRetry(ref=text, state="missing" if row is None or row.state is None else row.state.value)
        asked.append(row)
    causes = first_causes(asked, deciding.view)
    concerned = _waiting_for(causes, deciding.view)
    request_id = deciding.new_id()
    wanted = _wanted_again(concerned, deciding)
    named = {ref for want in wanted for ref in want.refs}
    wanted += [_Again((row.ref,)) for row in asked if row.ref not in named]
    # A live ref is a delegation, as for any want.
    others = {ref for want in wanted for ref in want.refs} - {row.ref for row in concerned}
    answers = answer(dict(deciding.view.refs(sorted(others))), deciding)
    return [
        e.TaintCreated(
            taint_id=deciding.new_id(),
            refs=tuple(sorted(row.ref for row in causes)),
            reason=command.reason or f"retry by request {request_id}",
        ),
        *delegated(request_id, answers, deciding),
        *_wants(wanted, request_id, deciding),
    ]


@dataclass(frozen=True, slots=True)
class _Again:
    """A want that is recorded again, with the time that it was given before."""

    refs: tuple[Ref, ...]
    priority: int = 0
    ttl_seconds: float | None = c.DEFAULT_TTL_SECONDS
    sla_seconds: float | None = None
    fail_fast: bool = False


def first_causes(asked: list[RefRow], view: View) -> list[RefRow]:
    """The failed refs upstream that failed by themselves."""
    causes: dict[int, RefRow] = {}
    seen: set[int] = set()
    level = asked
    for _ in range(MAX_LEVELS):
        seen.update(row.id for row in level)
        causes.update((row.id, row) for row in level if row.state is InstanceState.FAILED)
        waiting = [row.canonical_id for row in level if row.state is InstanceState.UPSTREAM_FAILED]
        missing = view.missing_of(instance_id for instance_id in waiting if instance_id is not None)
        refs = view.refs_by_id({ref_id for _, ref_id in missing if ref_id not in seen})
        level = [row for row in refs.values() if row.state in FAILING]
        if not level:
            break
    return list(causes.values())


def _waiting_for(causes: list[RefRow], view: View) -> list[RefRow]:
    """The causes, and the refs that failed because of them."""
    found = {row.id: row for row in causes}
    level = causes
    for _ in range(MAX_LEVELS):
        instances = view.instances_by_id(instance_id for _, instance_id in view.waiters(row.id for row in level))
        refs = view.refs_by_id({row.ref_id for row in instances.values()} - found.keys())
        level = [row for row in refs.values() if row.state is InstanceState.UPSTREAM_FAILED]
        if not level:
            break
        found.update((row.id, row) for row in level)
    return list(found.values())


def _wanted_again(concerned: list[RefRow], deciding: Deciding) -> list[_Again]:
    """The wants that failed because of `concerned`, within their TTL; of wants with the same refs a single want.

    A want that also names a ref with a different failure would fail at once, and stays ended.
    """
    view = deciding.view
    pairs = view.wants_holding([row.id for row in concerned], Openness.ENDED)
    wants = {want.id: want for _, want in pairs if _counts(want, deciding.now)}
    refs_of: dict[int, list[int]] = {}
    for want_id, ref_id in view.refs_of_wants(wants):
        refs_of.setdefault(want_id, []).append(ref_id)
    rows = view.refs_by_id({ref_id for refs in refs_of.values() for ref_id in refs})
    opened = {row.id for row in concerned}
    again: dict[tuple[Ref, ...], _Again] = {}
    for want in wants.values():
        refs = tuple(rows[ref_id].ref for ref_id in refs_of[want.id])
        if all(ref_id in opened or rows[ref_id].state not in FAILING for ref_id in refs_of[want.id]):
            again[refs] = _Again(refs, want.priority, _ttl(want), _sla(want), bool(want.fail_fast))
    return list(again.values())


def _counts(want: WantRow, now: float) -> bool:
    return want.state in _FAILED and want.source != DERIVATIVE and now < want.expires_at


def _ttl(want: WantRow) -> float | None:
    return None if want.expires_at == NEVER else want.expires_at - want.created_at


def _sla(want: WantRow) -> float | None:
    """The SLA that the want had itself; it counts from now again."""
    has_one = want.sla_at is not None or want.sla_missed_at is not None
    since = want.created_at if want.data_timestamp is None else want.data_timestamp
    return max(want.deadline - since, 0.0) if has_one and want.deadline != NEVER else None


def _wants(wanted: list[_Again], request_id: str, deciding: Deciding) -> list[e.Fact]:
    """A single fact for all wants that differ in their refs alone."""
    groups: dict[_Again, list[_Again]] = {}
    for want in wanted:
        groups.setdefault(replace(want, refs=()), []).append(want)
    return [
        e.WantCreated(
            request_id=request_id,
            wants=tuple(e.WantFact(id=deciding.new_id(), refs=want.refs) for want in group),
            source="user",
            comment="retry",
            priority=alike.priority,
            ttl_seconds=alike.ttl_seconds,
            sla_seconds=alike.sla_seconds,
            # A time far away stays within the years that have dates.
            expires_at=None if alike.ttl_seconds is None else min(deciding.now + alike.ttl_seconds, LAST_TIME),
            deadline=None if alike.sla_seconds is None else min(deciding.now + alike.sla_seconds, LAST_TIME),
            fail_fast=alike.fail_fast,
        )
        for alike, group in groups.items()
    ]
