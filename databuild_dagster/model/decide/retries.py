"""Opening what failed, and wanting again whatever failed of it (SPEC 6.6)."""

from __future__ import annotations

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import InvalidRequest, NothingToRetry
from databuild_dagster.model.rows import NEVER, RefRow, WantRow
from databuild_dagster.model.standing import DERIVATIVE
from databuild_dagster.model.states import FAILING, InstanceState, WantState
from databuild_dagster.model.view import Openness, View

#: How deep the failures behind a ref, or in front of it, are followed: no deeper than the graph is.
MAX_LEVELS = 10_000

_FAILED = frozenset({WantState.FAILED, WantState.UPSTREAM_FAILED})


def retry_refs(command: c.RetryRefs, deciding: Deciding) -> list[e.Fact]:
    """One command: a taint of the first causes, and the wants. Raises `NothingToRetry` for what has not failed."""
    if not command.refs:
        raise InvalidRequest(what="the list of refs", value=[], why="it names none")
    asked = []
    for text, row in deciding.existing_refs(command.refs).items():
        if row is None or row.state not in FAILING:
            raise NothingToRetry(ref=text, state="missing" if row is None or row.state is None else row.state.value)
        asked.append(row)
    causes = _first_causes(asked, deciding.view)
    concerned = _waiting_for(causes, deciding.view)
    request_id = deciding.new_id()
    reason = command.reason or f"to be tried again by request {request_id}"
    refs = tuple(sorted(row.ref for row in causes))
    wants = _failed_wants(concerned, deciding) or [tuple(row.ref for row in asked)]
    return [
        e.TaintCreated(taint_id=deciding.new_id(), refs=refs, reason=reason),
        *_wanted_again(wants, request_id, deciding),
    ]


def _first_causes(asked: list[RefRow], view: View) -> list[RefRow]:
    """What failed by itself, behind what failed because of it."""
    causes: dict[int, RefRow] = {}
    seen: set[int] = set()
    level = asked
    for _ in range(MAX_LEVELS):
        seen.update(row.id for row in level)
        causes.update((row.id, row) for row in level if row.state is InstanceState.FAILED)
        waiting = [row.canonical_id for row in level if row.state is InstanceState.UPSTREAM_FAILED]
        missing = view.missing_of(each for each in waiting if each is not None)
        refs = view.refs_by_id({ref_id for _, ref_id in missing if ref_id not in seen})
        level = [row for row in refs.values() if row.state in FAILING]
        if not level:
            break
    return list(causes.values())


def _waiting_for(causes: list[RefRow], view: View) -> list[RefRow]:
    """The causes, and whatever failed because of them."""
    found = {row.id: row for row in causes}
    level = causes
    for _ in range(MAX_LEVELS):
        instances = view.instances_by_id(instance_id for _, instance_id in view.waiters(row.id for row in level))
        refs = view.refs_by_id({each.ref_id for each in instances.values() if each.ref_id not in found})
        level = [row for row in refs.values() if row.state is InstanceState.UPSTREAM_FAILED]
        if not level:
            break
        found.update((row.id, row) for row in level)
    return list(found.values())


def _failed_wants(refs: list[RefRow], deciding: Deciding) -> list[WantRow | tuple[str, ...]]:
    """Those still within their TTL; the same refs wanted twice are wanted again once."""
    pairs = deciding.view.wants_holding([row.id for row in refs], Openness.ENDED)
    wants = {want.id: want for _, want in pairs if _counts(want, deciding.now)}
    refs_of: dict[int, list[int]] = {}
    for want_id, ref_id in deciding.view.refs_of_wants(wants):
        refs_of.setdefault(want_id, []).append(ref_id)
    return list({tuple(refs_of[want.id]): want for want in wants.values()}.values())


def _counts(want: WantRow, now: float) -> bool:
    return want.state in _FAILED and want.source != DERIVATIVE and now < want.expires_at


def _wanted_again(wants: list[WantRow | tuple[str, ...]], request_id: str, deciding: Deciding) -> list[e.Fact]:
    """With the priority of before, and as much time as it was given then."""
    facts: list[e.Fact] = []
    rows = [want for want in wants if isinstance(want, WantRow)]
    links = deciding.view.refs_of_wants(want.id for want in rows)
    rows_of_refs = deciding.view.refs_by_id(ref_id for _, ref_id in links)
    texts: dict[int, list[str]] = {}
    for want_id, ref_id in links:
        texts.setdefault(want_id, []).append(rows_of_refs[ref_id].ref)
    for want in wants:
        if isinstance(want, WantRow):
            refs = tuple(texts[want.id])
            ttl = None if want.expires_at == NEVER else want.expires_at - want.created_at
            priority, comment = want.priority, f"retry of want {want.want_id}"
        else:
            refs, ttl, priority, comment = want, c.DEFAULT_TTL_SECONDS, 0, "retry"
        facts.append(
            e.WantCreated(
                request_id=request_id,
                wants=(e.WantFact(id=deciding.new_id(), refs=refs),),
                source="user",
                comment=comment,
                priority=priority,
                ttl_seconds=ttl,
                expires_at=None if ttl is None else deciding.now + ttl,
            )
        )
    return facts
