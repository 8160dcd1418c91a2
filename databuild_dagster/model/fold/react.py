"""Reactions of other machines to a change, until none follows (rules 5.2, 6.4-6.6).

Instances react first, breadth first, each round with rows loaded in bulk; then the wants react once; a want that ended may
free a lease, and instances react again. The depth of the graph bounds the rounds.
"""

from databuild_dagster.model.coordination import DELEGATION, ENDS_DELEGATION, DelegationOutcome
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.fold.folding import Crossing, Folding
from databuild_dagster.model.rows import NEVER, RefRow, WantRow
from databuild_dagster.model.states import (
    FAILING,
    OPEN_WANTS,
    WANT_CAUSE_OF_STATE,
    InstanceCause,
    InstanceState,
    WantCause,
    WantState,
    want_state,
)
from databuild_dagster.model.view import Openness

#: The source of the wants that a Dagster run's claim leaves behind (rules 5.1, 8.1).
CLAIMANT = "dagster run"
#: Twice the longest chain of waiting instances that an event may move.
MAX_ROUNDS = 20_000


def settle(folding: Folding) -> None:
    """React until instances, wants and leases agree. Raises `IllegalMove` past `MAX_ROUNDS`."""
    for _ in range(MAX_ROUNDS):
        if folding.crossings:
            crossings, folding.crossings = _net(folding.crossings), []
            _wake_waiters(folding, crossings)
            _end_delegations(folding, crossings)
        elif folding.seen_by_wants or folding.new_wants:
            _move_wants(folding)
        elif folding.ended_wants:
            _let_go(folding)
        else:
            return
    raise IllegalMove(seq=folding.seq, on="settle", why=f"reactions did not end within {MAX_ROUNDS} rounds")


def _net(crossings: list[Crossing]) -> list[Crossing]:
    """A single crossing per ref: an instance that becomes live and tainted in the same event was never live to readers (rule 7.3)."""
    if len(crossings) == 1:
        return crossings
    net: dict[int, Crossing] = {}
    for ref, before, after in crossings:
        net[ref.id] = (ref, net[ref.id][1] if ref.id in net else before, after)
    return [crossing for crossing in net.values() if crossing[1] is not crossing[2]]


def _wake_waiters(folding: Folding, crossings: list[Crossing]) -> None:
    """Rule 6.6: waiters react when a ref becomes live or fails, and when it ceases to be so."""
    view = folding.view
    crossed = {ref.id: (ref, before, after) for ref, before, after in crossings if _matters(before, after)}
    pairs = view.waiters(crossed) if crossed else []
    if not pairs:
        return
    instances = view.instances_by_id(instance_id for _, instance_id in pairs)
    view.refs_by_id(instance.ref_id for instance in instances.values())
    perhaps_repaired: list[int] = []
    for ref_id, instance_id in pairs:
        ref, before, after = crossed[ref_id]
        instance = instances[instance_id]
        if instance.state is InstanceState.UPSTREAM_BUILDING:
            if after is InstanceState.LIVE:
                instance.n_unmet -= 1
            elif before is InstanceState.LIVE:
                instance.n_unmet += 1
                view.unsettled.add(ref.id)
            if after in FAILING:
                instance.reason = f"{ref.ref} failed"
                folding.move_instance(instance, InstanceCause.DEP_FAILED)
            elif instance.n_unmet == 0:
                folding.move_instance(instance, InstanceCause.DEPS_LIVE)
        elif before in FAILING and after not in FAILING:
            perhaps_repaired.append(instance_id)
    _repair(folding, perhaps_repaired)


def _end_delegations(folding: Folding, crossings: list[Crossing]) -> None:
    """Rule 8.3: an active delegation follows the ref until it is live or failed, by any job run."""
    ended = {ref.id: (ref, after) for ref, _, after in crossings if ref.n_joined and after in ENDS_DELEGATION}
    if not ended:
        return
    instances = folding.view.instances_by_id(ref.canonical_id for ref, _ in ended.values() if ref.canonical_id)
    ends = []
    for ref_id, requester in folding.view.waiting_delegations(ended):
        ref, after = ended[ref_id]
        instance = instances[ref.canonical_id or 0]
        reason = "" if after is InstanceState.LIVE else instance.reason or "its build failed"
        ref.n_joined -= 1
        outcome = DELEGATION.next(DelegationOutcome.WAITING, ENDS_DELEGATION[after], entity=ref.ref, seq=folding.seq)
        ends.append((outcome.value, instance.id, folding.at, reason, requester, ref_id))
    folding.view.end_delegations(ends)


def _matters(before: InstanceState | None, after: InstanceState) -> bool:
    return (before is InstanceState.LIVE) != (after is InstanceState.LIVE) or (before in FAILING) != (after in FAILING)


def _repair(folding: Folding, instance_ids: list[int]) -> None:
    """A canonical upstream-failed instance opens when none of its missing refs is failed (rule 6.6)."""
    if not instance_ids:
        return
    missing = folding.view.missing_of(instance_ids)
    refs = folding.view.refs_by_id(ref_id for _, ref_id in missing)
    still_failed = {instance_id for instance_id, ref_id in missing if refs[ref_id].state in FAILING}
    for instance in folding.view.instances_by_id(instance_ids).values():
        canonical = folding.ref_of(instance).canonical_id == instance.id
        if canonical and instance.id not in still_failed and instance.state is InstanceState.UPSTREAM_FAILED:
            instance.reason = None
            folding.move_instance(instance, InstanceCause.REPAIRED)
            folding.view.unsettled.add(instance.ref_id)


def _move_wants(folding: Folding) -> None:
    """Rule 5.2: once per event, over the net change of each ref."""
    view = folding.view
    seen, folding.seen_by_wants = folding.seen_by_wants, {}
    new_wants, folding.new_wants = folding.new_wants, []
    refs = view.refs_by_id(seen)
    wants: dict[int, WantRow] = {}
    for ref_id, want in view.wants_holding(seen, Openness.OPEN):
        wants[want.id] = want
        folding.count_state(want, seen[ref_id], -1)
        folding.count_state(want, refs[ref_id].state, +1)
    if tainted := [ref for ref in refs.values() if _was_tainted(seen[ref.id], ref)]:
        wants.update((want.id, want) for want in _reopened(folding, tainted))
    for want in [*wants.values(), *new_wants]:
        counts = (want.n_live, want.n_failed, want.n_upstream_failed, want.n_building, want.n_upstream_building)
        state = want_state(want.n_refs, *counts)
        if state is not want.state:
            move = folding.move_want if state in OPEN_WANTS else folding.end_want
            move(want, WANT_CAUSE_OF_STATE[state])
    for ref in refs.values():
        _release_if_unwanted(folding, ref)


def _was_tainted(before: InstanceState | None, ref: RefRow) -> bool:
    return before is InstanceState.LIVE and ref.state is InstanceState.TAINTED


def _reopened(folding: Folding, tainted: list[RefRow]) -> list[WantRow]:
    """Successful wants that a taint within their TTL, by event time, opens again (rule 5.3)."""
    view = folding.view
    wants = {want.id: want for _, want in view.wants_to_reopen([ref.id for ref in tainted], folding.at)}
    links = view.refs_of_wants(wants)
    refs = view.refs_by_id(ref_id for _, ref_id in links)
    for want in wants.values():
        want.n_live = 0
        want.ended_at = None
        want.reopened = 1
        folding.move_want(want, WantCause.REOPENED)
        view.set_openness(want.id, Openness.OPEN)
    for want_id, ref_id in links:
        count_want(refs[ref_id], wants[want_id])
        folding.count_state(wants[want_id], refs[ref_id].state, +1)
    return list(wants.values())


def count_want(ref: RefRow, want: WantRow) -> None:
    """Add a want to the sums that a ref keeps of its open wants, so that planning needs no join."""
    ref.priority = max(ref.priority, want.priority) if ref.n_open_wants else want.priority
    ref.fail_fast = min(ref.fail_fast, want.fail_fast) if ref.n_open_wants else want.fail_fast
    ref.n_open_wants += 1
    ref.deadline = min(ref.deadline, want.deadline)
    ref.wanted_since = min(ref.wanted_since, want.created_at)
    ref.wanted_until = max(ref.wanted_until, want.expires_at)


def _let_go(folding: Folding) -> None:
    """Remove ended wants from their refs, whose sums are computed again from the open wants."""
    view = folding.view
    ended, folding.ended_wants = folding.ended_wants, []
    links = view.refs_of_wants([want.id for want in ended])
    refs = view.refs_by_id(ref_id for _, ref_id in links)
    left = {ref.id: ref.n_open_wants for ref in refs.values()}
    for _, ref_id in links:
        left[ref_id] -= 1
    _stop_waiting(folding, [want for want in ended if want.state is not WantState.SUCCESSFUL], links, refs)
    pairs = view.wants_holding([ref_id for ref_id, n in left.items() if n], Openness.OPEN)
    for ref in refs.values():
        _forget_wants(ref)
        if ref.state is not InstanceState.LIVE:
            view.unsettled.add(ref.id)
    for ref_id, want in pairs:
        count_want(refs[ref_id], want)
    for ref in refs.values():
        if ref.n_open_wants != left[ref.id]:
            raise IllegalMove(
                seq=folding.seq,
                entity=ref.ref,
                state=str(ref.state),
                on="want ended",
                why="its count of open wants is off",
            )
        _release_if_unwanted(folding, ref)


def _stop_waiting(
    folding: Folding, unserved: list[WantRow], links: list[tuple[int, int]], refs: dict[int, RefRow]
) -> None:
    """End the delegations of wants that ended without success.

    A Dagster run waits by itself, also when the wants that it recorded end; it gives up by an event.
    """
    requests = {want.id: want.request_id for want in unserved if want.source != CLAIMANT}
    asked = {(ref_id, requests[want_id]) for want_id, ref_id in links if want_id in requests and refs[ref_id].n_joined}
    if not asked:
        return
    waiting = [pair for pair in folding.view.waiting_delegations({ref_id for ref_id, _ in asked}) if pair in asked]
    folding.give_up([(refs[ref_id], requester) for ref_id, requester in waiting], "its want ended")


def _forget_wants(ref: RefRow) -> None:
    ref.n_open_wants = 0
    ref.priority = ref.fail_fast = 0
    ref.deadline = ref.wanted_since = NEVER
    ref.wanted_until = 0.0


def _release_if_unwanted(folding: Folding, ref: RefRow) -> None:
    """When the last open want of a waiting ref ends, its lease ends (rule 6.4)."""
    if ref.state is InstanceState.UPSTREAM_BUILDING and not ref.n_open_wants and ref.canonical_id is not None:
        instance = folding.view.instances_by_id([ref.canonical_id])[ref.canonical_id]
        instance.reason = None
        folding.move_instance(instance, InstanceCause.UNWANTED)
