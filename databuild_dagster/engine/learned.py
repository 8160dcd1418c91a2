"""Which due refs wait for inputs that only their last call told of (SPEC 6.3).

What a function found missing while it ran is remembered, and forgotten when its code changes. It may need the same
next time, or not, for nobody declared it. So a learned input never becomes a dep miss; while it is being built the
launch waits, since a call now would most likely be in vain, and else the function is asked again.

`HOLDS` says what each learned input does to the launch. One that is not Building has to be as urgent as the ref that waits
for it: nothing raises its priority, so it could be passed over for ever. Two refs that learned of each other lead nowhere,
as does a wait for something that never comes, so both are launched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import product

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.machine import Label
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.planning import DueRef, Need


class Coming(Label):
    """How a learned input is about to become live, as far as one level of planning can tell."""

    BUILDING = "a job run builds it"
    BACKING_OFF = "it is wanted, and its retry comes later"
    DUE = "it is due here, so that this very level of planning sees to it"
    UNDECIDED = "it is due here, and has learned of inputs itself"
    WAITING = "it waits for its inputs"
    OTHER = "it failed, is unwanted, a source, or due elsewhere"


class Holds(Label):
    """Whether the launch of the ref that learned of the input waits."""

    YES = "yes"
    #: If anything that the input itself waits for holds.
    BY_ITS_INPUTS = "by its inputs"
    NO = "no"


#: By how the input comes, and whether it is as urgent as the ref that learned of it.
HOLDS = {
    (Coming.BUILDING, True): Holds.YES,
    (Coming.BUILDING, False): Holds.YES,
    (Coming.BACKING_OFF, True): Holds.YES,
    (Coming.BACKING_OFF, False): Holds.NO,
    (Coming.DUE, True): Holds.YES,
    (Coming.DUE, False): Holds.NO,
    (Coming.UNDECIDED, True): Holds.BY_ITS_INPUTS,
    (Coming.UNDECIDED, False): Holds.NO,
    (Coming.WAITING, True): Holds.BY_ITS_INPUTS,
    (Coming.WAITING, False): Holds.NO,
    (Coming.OTHER, True): Holds.NO,
    (Coming.OTHER, False): Holds.NO,
}
assert HOLDS.keys() == set(product(Coming, (True, False))), "each case is decided once"


def held_back(
    engine: Engine, datasets: Mapping[int, DatasetSpec], due: Sequence[DueRef], missing: Collection[Ref], now: float
) -> set[Ref]:
    """Of the refs that this level of planning looks at, those whose launch waits. `missing` miss declared inputs anyway."""
    asking = {ref.ref: ref for ref in due if ref.learned_id is not None and ref.ref not in missing}
    if not asking:
        return set()
    here = {ref.ref for ref in due}
    learned = [
        need
        for need in engine.queries.learned_inputs(asking, now)
        if need.code_version == datasets[asking[need.by].dataset_id].code_version
        and HOLDS[_coming(need, here), _is_as_urgent(need, asking[need.by])] is not Holds.NO
    ]
    waiting = [need.ref for need in learned if need.state is InstanceState.UPSTREAM_BUILDING]
    needs = [*learned, *(engine.queries.waited_for(waiting, now) if waiting else ())]
    #: Launched now, unless something holds that they learned of.
    undecided = {need.by for need in learned}
    holding = {need.ref for need in needs if HOLDS[_coming(need, here, undecided), True] is Holds.YES}
    return _led_to(holding, needs) & undecided


def _coming(need: Need, here: Collection[Ref], undecided: Collection[Ref] = ()) -> Coming:
    if need.state is InstanceState.BUILDING:
        return Coming.BUILDING
    if need.state is InstanceState.UPSTREAM_BUILDING:
        return Coming.WAITING
    if need.retries_later:
        return Coming.BACKING_OFF
    if need.ref not in here:
        return Coming.OTHER
    return Coming.UNDECIDED if need.ref in undecided else Coming.DUE


def _is_as_urgent(need: Need, ref: DueRef) -> bool:
    return need.priority >= ref.priority and need.deadline <= ref.deadline


def _led_to(refs: set[Ref], needs: Sequence[Need]) -> set[Ref]:
    """Whatever needs one of these, or needs what needs one, and so on."""
    needed_by = defaultdict(list)
    for need in needs:
        needed_by[need.ref].append(need.by)
    found: set[Ref] = set()
    level = refs
    while level:
        level = {by for ref in level for by in needed_by[ref]} - found
        found |= level
    return found
