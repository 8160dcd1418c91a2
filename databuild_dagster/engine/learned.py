"""Which due refs wait for inputs that only their last call told of (SPEC 6.3).

What a function found missing while it ran is remembered, and forgotten when its code changes. It may need the same
next time, or not, for nobody declared it. So a learned input never becomes a dep miss; while it is being built the
launch waits, since a call now would most likely be in vain, and else the function is asked again.

Being built is what a job run builds, or will by itself:

| the learned input                                              | the launch |
|----------------------------------------------------------------|------------|
| is Building                                                    | waits      |
| waits for its backoff, and is wanted                           | waits      |
| is due here, so that this very level of planning sees to it    | waits      |
| is UpstreamBuilding, and waits for any of these                | waits      |
| is anything else: failed, unwanted, a source, due elsewhere, … | goes on    |

What is not Building has to be as urgent as what waits for it: nothing raises its priority, so it could be passed over
for ever. Rows lead on from ref to ref, and only what they lead to from something that moves waits. Two refs that
learned of each other lead nowhere, as does a wait for something that never comes, so both are launched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.planning import DueRef, Need


def held_back(
    engine: Engine, datasets: Mapping[int, DatasetSpec], due: Sequence[DueRef], missing: Collection[str], now: float
) -> set[str]:
    """Of the refs that this level of planning looks at, those whose launch waits. `missing` miss declared inputs anyway."""
    asking = {ref.ref: ref for ref in due if ref.learned_id is not None and ref.ref not in missing}
    if not asking:
        return set()
    here = {ref.ref for ref in due}
    learned = [
        need
        for need in engine.queries.learned_inputs(asking, now)
        if need.code_version == datasets[asking[need.by].dataset_id].code_version
        and _is_at_hand(need, asking[need.by], here)
    ]
    waiting = [need.ref for need in learned if need.state is InstanceState.UPSTREAM_BUILDING]
    needs = [*learned, *(engine.queries.waited_for(waiting, now) if waiting else ())]
    #: Launched now, unless something moves that they learned of.
    undecided = {need.by for need in learned}
    moving = {
        need.ref
        for need in needs
        if need.state is InstanceState.BUILDING
        or need.retries_later
        or (need.ref in here and need.ref not in undecided)
    }
    return _led_to(moving, needs) & undecided


def _is_at_hand(need: Need, ref: DueRef, here: set[str]) -> bool:
    if need.state is InstanceState.BUILDING:
        return True
    is_as_urgent = need.priority >= ref.priority and need.deadline <= ref.deadline
    return is_as_urgent and (need.state is InstanceState.UPSTREAM_BUILDING or need.retries_later or need.ref in here)


def _led_to(refs: set[str], needs: Sequence[Need]) -> set[str]:
    """Whatever needs one of these, or needs what needs one, and so on."""
    needed_by = defaultdict(list)
    for need in needs:
        needed_by[need.ref].append(need.by)
    found: set[str] = set()
    level = refs
    while level:
        level = {by for ref in level for by in needed_by[ref]} - found
        found |= level
    return found
