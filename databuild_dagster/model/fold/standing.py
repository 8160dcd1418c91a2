"""The standing rule of derivative wants, and other facts that follow from a command (rules 6.4, 6.10, 6.14).

While a waiting ref has an open want, each of its missing refs that is not live has an open want of its own, at least
as urgent and as long-lived. Every command restores the rule for the refs that it touched, so a tick has nothing to repair.

Keep going: a failed input does not stop the builds of the other inputs (rule 6.14). When a want ends UpstreamFailed, the missing
refs of its ref that have not failed keep derivative wants, or get them. Such wants need no waiter: they end when they are met, when
they expire, or when all wants that they were made for are canceled or withdrawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from databuild_dagster.model import events as e
from databuild_dagster.model.fold.demands import DERIVATIVE, Demand, derivative_wants
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.rows import InstanceRow, RefRow, WantRow
from databuild_dagster.model.states import ARC, FAILING, InstanceState, JobRunState, WantState
from databuild_dagster.model.view import Openness, View

#: The longest life of a kept want.
KEPT_SECONDS = 7 * 24 * 3600.0


def follow_ups(view: View, now: float, new_id: Callable[[], str]) -> list[e.Fact]:
    """The facts that follow for the touched refs. After their fold the caller asks again, until there are none."""
    touched, view.unsettled = view.unsettled, set()
    ended, view.failed_upstream = view.failed_upstream, []
    if not touched:
        return []
    refs = _with_what_they_wait_for(view, touched)
    kept = refs_to_keep(view, ended, now) if ended else {}
    missing = {ref.id: ref for ref in refs.values() if ref.state is not InstanceState.LIVE} | view.refs_by_id(kept)
    demands = _demands(view, missing, now)
    wants = _open_wants(view, missing)
    stays = {ref_id: next(filter(kept[ref_id].fits, wants[ref_id]), None) for ref_id in kept}
    return [
        *_wants_needed(view, missing, demands, wants, now, new_id),
        *_wants_kept(view, missing, kept, stays, new_id),
        *_lots_opened(view, missing, now, new_id),
        *_wants_needless(missing, demands, wants, {want.id for want in stays.values() if want is not None}),
        *_job_runs_needless(view, missing, demands.keys() | kept.keys()),
    ]


def _with_what_they_wait_for(view: View, touched: set[int]) -> dict[int, RefRow]:
    refs = dict(view.refs_by_id(touched))
    waiting = [ref.canonical_id for ref in refs.values() if ref.state is InstanceState.UPSTREAM_BUILDING]
    refs.update(view.refs_by_id(ref_id for _, ref_id in view.missing_of(w for w in waiting if w is not None)))
    return refs


def _demands(view: View, missing: Mapping[int, RefRow], now: float) -> dict[int, Demand]:
    pairs = view.waiters(missing)
    instances = view.instances_by_id(instance_id for _, instance_id in pairs)
    waiting_refs = view.refs_by_id(instance.ref_id for instance in instances.values())
    demands: dict[int, Demand] = {}
    for ref_id, instance_id in pairs:
        instance = instances[instance_id]
        waiting = waiting_refs[instance.ref_id]
        if instance.state is not InstanceState.UPSTREAM_BUILDING or waiting.wanted_until <= now:
            continue
        demand = Demand(
            waiting.priority, waiting.deadline, waiting.wanted_until, bool(waiting.fail_fast), instance.job_run_id
        )
        demands[ref_id] = demands[ref_id].joined(demand) if ref_id in demands else demand
    return demands


def _open_wants(view: View, missing: dict[int, RefRow]) -> dict[int, list[WantRow]]:
    wants: dict[int, list[WantRow]] = {ref_id: [] for ref_id in missing}
    for ref_id, want in view.wants_holding(missing, Openness.OPEN):
        wants[ref_id].append(want)
    return wants


def _wants_needed(
    view: View,
    missing: dict[int, RefRow],
    demands: dict[int, Demand],
    wants: dict[int, list[WantRow]],
    now: float,
    new_id: Callable[[], str],
) -> list[e.WantCreated]:
    unmet: dict[Demand, list[Ref]] = {}
    for ref_id, demand in demands.items():
        if not any(demand.met_by(want, now) for want in wants[ref_id]):
            unmet.setdefault(demand, []).append(missing[ref_id].ref)
    return derivative_wants(unmet, view, new_id)


def _wants_kept(
    view: View,
    missing: dict[int, RefRow],
    kept: dict[int, KeptNeed],
    stays: Mapping[int, WantRow | None],
    new_id: Callable[[], str],
) -> list[e.Fact]:
    """New derivative wants where no present want stays, and an event for all kept wants (rule 6.14)."""
    if not kept:
        return []
    unmet: dict[Demand, list[Ref]] = {}
    for ref_id, need in kept.items():
        if stays[ref_id] is None:
            unmet.setdefault(need.demand, []).append(missing[ref_id].ref)
    created = derivative_wants(unmet, view, new_id)
    want_ids = {want.refs[0]: want.id for fact in created for want in fact.wants}
    want_ids |= {missing[ref_id].ref: want.want_id for ref_id, want in stays.items() if want is not None}
    keepings: dict[frozenset[int], list[str]] = defaultdict(list)
    for ref_id, need in kept.items():
        keepings[frozenset(need.made_for)].append(want_ids[missing[ref_id].ref])
    names = {want.id: want.want_id for want in view.wants_by_id({id_ for group in keepings for id_ in group}).values()}
    keeping = tuple(
        e.Keeping(want_ids=tuple(sorted(kept_ids)), made_for=tuple(sorted(names[id_] for id_ in group)))
        for group, kept_ids in keepings.items()
    )
    return [*created, e.WantKept(keepings=keeping)]


def _lots_opened(view: View, refs: dict[int, RefRow], now: float, new_id: Callable[[], str]) -> list[e.Fact]:
    """An arc wanted a lot that had failed upstream; now that it is open it is wanted again, once (rule 10.5)."""
    idle = [ref for ref in refs.values() if ref.state is InstanceState.UP_FOR_RETRY and not ref.n_open_wants]
    arcs = view.arcs({asset_of(ref.ref) for ref in idle}) if idle else {}
    lots = {ref.id: ref for ref in idle if (arc := arcs.get(asset_of(ref.ref))) is not None and not arc.removed}
    newest: dict[int, WantRow] = {}
    for ref_id, want in view.wants_holding(lots, Openness.ENDED) if lots else ():
        newest[ref_id] = max(newest.get(ref_id, want), want, key=lambda want: want.id)
    return [
        e.WantCreated(
            request_id=new_id(),
            wants=(e.WantFact(id=new_id(), refs=(lots[ref_id].ref,)),),
            source=ARC,
            source_id=want.source_id,
            comment=f"{want.comment}; no input has failed any more",
            ttl_seconds=want.expires_at - want.created_at,
            expires_at=now + want.expires_at - want.created_at,
        )
        for ref_id, want in newest.items()
        if want.source == ARC
        and want.state is WantState.UPSTREAM_FAILED
        and want.ended_at == want.created_at
        and now < want.expires_at
    ]


def _wants_needless(
    missing: dict[int, RefRow], demands: dict[int, Demand], wants: dict[int, list[WantRow]], kept: Collection[int]
) -> list[e.Fact]:
    """Cancel derivative wants without a waiter; a kept want stays, and a want that a taint has opened again (rules 6.14, 7.1)."""
    needless = [
        want.want_id
        for ref_id in missing
        if ref_id not in demands
        for want in wants[ref_id]
        if want.source == DERIVATIVE and not want.reopened and want.keeping is None and want.id not in kept
    ]
    return [e.WantCanceled(want_ids=tuple(needless), reason="no ref waits for it")] if needless else []


def _job_runs_needless(view: View, refs: dict[int, RefRow], needed: Collection[int]) -> list[e.Fact]:
    """Cancel each queued job run of which no output has an open want, or is about to get an open want (rule 6.10)."""
    unwanted = {
        ref.canonical_id for ref in refs.values() if ref.state is InstanceState.BUILDING and not ref.n_open_wants
    }
    if not unwanted:
        return []
    instances = view.instances_by_id(i for i in unwanted if i is not None)
    job_runs = view.job_runs_by_id(instance.job_run_id for instance in instances.values())
    queued = {row.id: row for row in job_runs.values() if row.state is JobRunState.QUEUED}
    for instance, ref in _outputs(view, queued):
        if ref.n_open_wants or ref.id in needed:
            queued.pop(instance.job_run_id, None)
    if not queued:
        return []
    ids = tuple(row.job_run_id for row in queued.values())
    return [e.JobRunCanceled(job_run_ids=ids, reason="no open want needs it")]


def _outputs(view: View, job_runs: Iterable[int]) -> list[tuple[InstanceRow, RefRow]]:
    instances = view.instances_of_job_runs(job_runs)
    refs = view.refs_by_id(instance.ref_id for instance in instances)
    return [(instance, refs[instance.ref_id]) for instance in instances]


@dataclass
class KeptNeed:
    """The need of a missing ref, and the ended wants that it serves."""

    demand: Demand
    made_for: set[int] = field(default_factory=set)

    def fits(self, want: WantRow) -> bool:
        """Whether an open want of the ref can be kept instead of a new want."""
        return want.source == DERIVATIVE and not want.reopened and want.keeping is None and self.demand.is_of(want)


def refs_to_keep(view: View, ended: Iterable[WantRow], now: float) -> dict[int, KeptNeed]:
    """By missing ref, what is kept for wants that ended UpstreamFailed in this command."""
    wants = {want.id: want for want in ended if not want.fail_fast and now < want.expires_at}
    ended_by_ref: dict[int, list[WantRow]] = defaultdict(list)
    for want_id, ref_id in view.refs_of_wants(wants):
        ended_by_ref[ref_id].append(wants[want_id])
    refs = view.refs_by_id(ended_by_ref).values()
    failed = view.instances_by_id(
        ref.canonical_id for ref in refs if ref.state is InstanceState.UPSTREAM_FAILED and ref.canonical_id is not None
    )
    missing = view.missing_of(failed)
    missing_refs = view.refs_by_id(ref_id for _, ref_id in missing)
    made_for = _made_for(view, failed, ended_by_ref)
    kept: dict[int, KeptNeed] = {}
    for instance_id, ref_id in missing:
        if missing_refs[ref_id].state is InstanceState.LIVE or missing_refs[ref_id].state in FAILING:
            continue
        instance = failed[instance_id]
        demand = _demand(ended_by_ref[instance.ref_id], instance.job_run_id, now)
        before = kept.setdefault(ref_id, KeptNeed(demand))
        before.demand = before.demand.joined(demand)
        before.made_for |= made_for[instance.ref_id]
    return kept


def _demand(wants: list[WantRow], job_run_id: int, now: float) -> Demand:
    return Demand(
        max(want.priority for want in wants),
        min(want.deadline for want in wants),
        min(max(want.expires_at for want in wants), now + KEPT_SECONDS),
        False,
        job_run_id,
    )


def _own_want(want: WantRow) -> tuple[int, ...]:
    return () if want.source == DERIVATIVE else (want.id,)


def _made_for(
    view: View, failed: Mapping[int, InstanceRow], ended_by_ref: Mapping[int, list[WantRow]]
) -> dict[int, set[int]]:
    """By failed ref, the wants of requesters: its own, the wants that its kept wants were made for, and the wants of its waiters."""
    requested: dict[int, set[int]] = defaultdict(set)
    for keeping, want_id in view.kept_for(
        {want.keeping for wants in ended_by_ref.values() for want in wants if want.keeping}
    ):
        requested[keeping].add(want_id)
    made_for = {
        instance.ref_id: {
            served
            for want in ended_by_ref[instance.ref_id]
            for served in (requested[want.keeping] if want.keeping else _own_want(want))
        }
        for instance in failed.values()
    }
    missed_by: dict[int, list[int]] = defaultdict(list)
    for ref_id, instance_id in view.waiters(made_for):
        if instance_id in failed:
            missed_by[failed[instance_id].ref_id].append(ref_id)
    reached = list(made_for)
    while reached:
        ref_id = reached.pop()
        for upstream in missed_by[ref_id]:
            if not made_for[ref_id] <= made_for[upstream]:
                made_for[upstream] |= made_for[ref_id]
                reached.append(upstream)
    # A derivative want that a taint opened again, or a taint of what it served, has no other requester.
    return {ref_id: found or {want.id for want in ended_by_ref[ref_id]} for ref_id, found in made_for.items()}
