"""The due refs whose launch waits for learned inputs (rule 6.3).

An input that a function found missing during its last call is remembered until the function's code changes. The next call
may need it or not, because it is not declared. So a learned input never becomes a dep miss: while it is being built the
launch waits, and otherwise the function is called again.

`HOLDS` is what each learned input does to the launch. An input that is not Building must be as urgent as the ref that waits
for it: nothing raises its priority, so the ref could wait without end. Two refs that learned of each other are both
launched, and so is one whose input never comes.
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
    """The way of a learned input to become live, as far as one level of planning knows."""

    BUILDING = "a job run builds it"
    BACKING_OFF = "it is wanted, and its retry comes later"
    DUE = "it is due here, so this level of planning launches it"
    UNDECIDED = "it is due here, and has learned inputs itself"
    WAITING = "it waits for its inputs"
    OTHER = "it failed, is unwanted, a source, or due elsewhere"


class Holds(Label):
    """Whether the launch of the ref that learned the input waits."""

    YES = "yes"
    #: If anything that the input itself waits for holds.
    BY_ITS_INPUTS = "by its inputs"
    NO = "no"


#: By the way of the input: if it is as urgent as the ref that learned it, and if it is not.
_RULES = {
    Coming.BUILDING: (Holds.YES, Holds.YES),
    Coming.BACKING_OFF: (Holds.YES, Holds.NO),
    Coming.DUE: (Holds.YES, Holds.NO),
    Coming.UNDECIDED: (Holds.BY_ITS_INPUTS, Holds.NO),
    Coming.WAITING: (Holds.BY_ITS_INPUTS, Holds.NO),
    Coming.OTHER: (Holds.NO, Holds.NO),
}
HOLDS = {(coming, urgent): _RULES[coming][not urgent] for coming, urgent in product(Coming, (True, False))}


def held_back(
    engine: Engine, datasets: Mapping[int, DatasetSpec], due: Sequence[DueRef], missing: Collection[Ref], now: float
) -> set[Ref]:
    """The refs of this level of planning whose launch waits. `missing` miss declared inputs anyway."""
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
    # Launched now, unless a learned input holds.
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
    """The refs that need one of these, directly or through others."""
    needed_by = defaultdict(list)
    for need in needs:
        needed_by[need.ref].append(need.by)
    found: set[Ref] = set()
    level = refs
    while level:
        level = {by for ref in level for by in needed_by[ref]} - found
        found |= level
    return found
