"""Keep going: one failed input does not stop the builds of the others (rule 6.14).

When a want ends UpstreamFailed, the missing refs of its ref that have not failed keep derivative wants, or get them. These need
no waiter: they end when they are met, when they expire, or when all wants that they were made for are canceled or withdrawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from databuild_dagster.model.fold.demands import DERIVATIVE, Demand
from databuild_dagster.model.rows import InstanceRow, WantRow
from databuild_dagster.model.states import FAILING, InstanceState
from databuild_dagster.model.view import View

#: The longest life of a kept want.
KEPT_SECONDS = 7 * 24 * 3600.0


@dataclass
class Kept:
    """The need of one missing ref, and the ended wants that it serves."""

    demand: Demand
    made_for: set[int] = field(default_factory=set)

    def fits(self, want: WantRow) -> bool:
        """Whether an open want of the ref can be kept instead of a new one."""
        return want.source == DERIVATIVE and not want.reopened and want.keeping is None and self.demand.is_of(want)


def refs_to_keep(view: View, ended: Iterable[WantRow], now: float) -> dict[int, Kept]:
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
    kept: dict[int, Kept] = {}
    for instance_id, ref_id in missing:
        if missing_refs[ref_id].state is InstanceState.LIVE or missing_refs[ref_id].state in FAILING:
            continue
        instance = failed[instance_id]
        demand = _demand(ended_by_ref[instance.ref_id], instance.job_run_id, now)
        before = kept.setdefault(ref_id, Kept(demand))
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


def _made_for(
    view: View, failed: Mapping[int, InstanceRow], ended_by_ref: Mapping[int, list[WantRow]]
) -> dict[int, set[int]]:
    """By failed ref, the wants of requesters: its own, those that its kept wants were made for, and those of its waiters."""
    requested: dict[int, set[int]] = defaultdict(set)
    for keeping, want_id in view.kept_for(
        {want.keeping for wants in ended_by_ref.values() for want in wants if want.keeping}
    ):
        requested[keeping].add(want_id)
    made_for = {
        instance.ref_id: {
            served
            for want in ended_by_ref[instance.ref_id]
            for served in (requested[want.keeping] if want.keeping else () if want.source == DERIVATIVE else (want.id,))
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
