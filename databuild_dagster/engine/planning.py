"""From due refs to launches, dep misses and observations, as commands for the tick (rules 6.2, 6.3, 11.2).

Reads the store only, and imports no user code. Each command is decided again in its own transaction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, product
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.observing import observe
from databuild_dagster.engine.outages import needs_of
from databuild_dagster.engine.ports import Foreign, LaunchOrder
from databuild_dagster.engine.set_aside import SetAside, plannable
from databuild_dagster.engine.tick_pass import Pass, TickLimits
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.machine import Label
from databuild_dagster.model.need import MAKER_OF_KIND, Action, Data, Inputs, Maker, Need, Reason, Room, need_of
from databuild_dagster.model.plan import launch_sets, outputs_by_key
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.surroundings import PARTS_AFTER_LOSS, Surrounding
from databuild_dagster.store.queries.job_runs import LaunchView
from databuild_dagster.store.queries.planning import DueRef, NeededRef, urgency

#: Reasons of due refs that more room for launches would not change: the look at their asset passes over them.
_HELD_BACK = (Reason.LEARNED_INPUTS, Reason.UNBUILDABLE)

#: Wanted refs of sources that a tick looks at in Dagster.
MAX_OBSERVED = 1_000

#: The command that records a launch, and the order to Dagster.
Launch = tuple[c.BufferLaunch, LaunchOrder]


@dataclass
class Plan:
    """The results of a level of planning."""

    #: Foreign refs with a recorded change; the due refs must be read again.
    observed: list[Ref] = field(default_factory=list)
    #: Refs that are live without a build; the due refs must be read again.
    provided: list[Ref] = field(default_factory=list)
    missed: list[c.BufferMissed] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    #: Whether more refs than the limit may be due.
    is_cut_off: bool = False

    @property
    def makes_due(self) -> bool:
        """Whether the next level may find other due refs.

        A launch makes no ref due, but its refs are due no longer, so further due refs come within the limit.
        """
        return bool(self.observed or self.provided or self.missed or (self.launches and self.is_cut_off))


class RoomLeft(NamedTuple):
    """The number of launches that may still be started."""

    #: By this tick.
    of_tick: int
    #: By this location, until an open launch ends.
    of_location: int
    #: The open launches of each job.
    out: Counter[str]
    #: Surroundings that no launch may need (rule 6.17).
    out_of_reach: frozenset[Surrounding]

    @classmethod
    def within(
        cls,
        limits: TickLimits,
        open_launches: Iterable[LaunchView],
        location: str,
        n_launched: int,
        out_of_reach: frozenset[Surrounding] = frozenset(),
    ) -> RoomLeft:
        """The room of a location whose tick has started `n_launched` launches by now."""
        out = Counter(launch.job for launch in open_launches if launch.location == location)
        return cls(limits.launches - n_launched, limits.open_launches - out.total(), out, out_of_reach)

    def without(self, launched: Sequence[str]) -> RoomLeft:
        """The room after the jobs `launched` were launched, once for each launch.

        The next tick counts launches that other processes start or end meanwhile.
        """
        if not launched:
            return self
        n = len(launched)
        return RoomLeft(self.of_tick - n, self.of_location - n, self.out + Counter(launched), self.out_of_reach)

    @property
    def is_none(self) -> bool:
        return self.of_tick <= 0 or self.of_location <= 0

    def for_one_more(self, spec: DatasetSpec, chosen: Sequence[str]) -> Room:
        """The room for a launch of the job after the chosen jobs."""
        if not self.out_of_reach.isdisjoint(needs_of(spec)):
            return Room.OUTAGE
        if spec.concurrency is not None and self.out[spec.job] + chosen.count(spec.job) >= spec.concurrency:
            return Room.JOB_FULL
        if len(chosen) >= self.of_location:
            return Room.LOCATION_FULL
        return Room.FREE if len(chosen) < self.of_tick else Room.TICK_FULL


class LaunchSet(NamedTuple):
    """Refs of a job that a launch builds, by partition key."""

    spec: DatasetSpec
    by_key: dict[str | None, tuple[Ref, ...]]
    #: The places of the refs among the due refs, the most urgent first.
    places: list[int]


class Level(NamedTuple):
    """The row of `model.need` for each due ref, and the launches, most urgent first."""

    needs: dict[Ref, Need]
    launches: list[LaunchSet]


def missing_inputs(
    due: Iterable[DueRef], inputs: Mapping[Ref, tuple[Ref, ...]], states: Mapping[Ref, InstanceState | None]
) -> dict[Ref, tuple[Ref, ...]]:
    """The due refs with declared inputs that are not live, each with its missing inputs."""
    return {
        ref.ref: found
        for ref in due
        if (found := tuple(need for need in inputs[ref.ref] if states[need] is not InstanceState.LIVE))
    }


@cache
def _need_of_due(kind: DatasetKind, inputs: Inputs) -> Need:
    """The row of a due ref before the limits."""
    return need_of(Data.OPEN, MAKER_OF_KIND[kind], inputs=inputs)


@cache
def _need_within(room: Room) -> Need:
    """The row of a due ref that is ready, by the limits."""
    return need_of(Data.OPEN, room=room)


def decide_level(
    engine: Engine,
    datasets: Mapping[int, DatasetSpec],
    due: Sequence[DueRef],
    missing: Mapping[Ref, tuple[Ref, ...]],
    room: RoomLeft,
    now: float,
    aside: SetAside,
) -> Level:
    """The row of each due ref by the store alone. A launch is as urgent as its most urgent ref (rule 11.1).

    `aside` gets the refs of jobs whose partitions no launch can be made of.
    """
    held = held_back(engine, datasets, due, missing, now)
    of_live = {id: _need_of_due(datasets[id].kind, Inputs.LIVE) for id in {ref.dataset_id for ref in due}}
    needs: dict[Ref, Need] = {}
    ready: dict[str, dict[Ref, int]] = defaultdict(dict)
    for place, ref in enumerate(due):
        spec, need = datasets[ref.dataset_id], of_live[ref.dataset_id]
        if ref.ref in missing or ref.ref in held:
            need = _need_of_due(spec.kind, Inputs.MISSING if ref.ref in missing else Inputs.LEARNED)
        needs[ref.ref] = need
        if need.action is Action.BUILD:
            ready[spec.job][ref.ref] = place
    sets: list[LaunchSet] = []
    for at in ready.values():
        spec = datasets[due[next(iter(at.values()))].dataset_id]
        of_job: list[dict[str | None, tuple[Ref, ...]]] = []
        try:
            of_job = list(chain.from_iterable(launch_sets(engine.catalog, spec, part) for part in parts_of(due, at)))
        except Exception as error:
            aside.because_of(error, *at)
        if not of_job:
            needs |= dict.fromkeys(at, need_of(Data.OPEN, Maker.NOTHING))
        for by_key in of_job:
            sets.append(LaunchSet(spec, by_key, sorted([at[ref] for refs in by_key.values() for ref in refs])))
    launches: list[LaunchSet] = []
    chosen: list[str] = []
    for launch_set in sorted(sets, key=lambda launch_set: launch_set.places[0]):
        need = _need_within(room.for_one_more(launch_set.spec, chosen))
        if need.action is Action.BUILD:
            chosen.append(launch_set.spec.job)
            launches.append(launch_set)
        else:
            needs |= dict.fromkeys([due[place].ref for place in launch_set.places], need)
    return Level(needs, launches)


def parts_of(due: Sequence[DueRef], at: Mapping[Ref, int]) -> list[list[Ref]]:
    """The refs of a job, apart by their losses: a launch that ends its process again takes few other refs with it (rule 6.18).

    The outputs of a partition key stay together, because the same job run builds them (rule 6.1).
    """
    if not any(due[place].losses for place in at.values()):
        return [list(at)]
    by_losses: dict[int, list[tuple[Ref, ...]]] = defaultdict(list)
    for outputs in outputs_by_key(at).values():
        by_losses[max(due[at[ref]].losses for ref in outputs)].append(outputs)
    parts = []
    for n_losses, keys in by_losses.items():
        size = -(-len(keys) // PARTS_AFTER_LOSS) if n_losses else len(keys)
        parts += [list(chain.from_iterable(keys[start : start + size])) for start in range(0, len(keys), size)]
    return parts


def plan_due(
    this: Pass,
    known: Mapping[int, DatasetSpec],
    aside: SetAside,
    *,
    now: float,
    room: RoomLeft,
    is_last: bool = False,
) -> Plan:
    """A level: due refs of the location with missing inputs miss; if no ref misses, or on the last level, the other refs are
    launched within the limits. `known` are the registered datasets of all locations. `aside` gets the refs that cannot be planned.

    A miss makes its inputs due, which may belong to the same launches, or be more urgent. Refs with a learned input that is
    being built wait for it without an event.
    """
    engine = this.engine
    datasets = built_here(known, this.location)
    looks = DueLooks(engine, "planning", this.serving)
    look = looks.look(datasets, now, this.limits.due_refs)
    plan = Plan(is_cut_off=bool(look.passed))
    if not look.refs:
        return plan
    siblings = [] if this.serving is None else _due_siblings(this, datasets, look.refs, now)
    found = plannable(engine, datasets, look.refs + siblings, aside)
    due, inputs = found
    foreign = {spec.asset for spec in known.values() if spec.kind.is_foreign}
    if foreign:
        refs = [ref.ref for ref in due if datasets[ref.dataset_id].asset in foreign]
        _observe(this, refs, plan, aside)
        inputs_of_due = dict.fromkeys(chain.from_iterable(inputs.values()))
        _observe(this, [ref for ref in inputs_of_due if asset_of(ref) in foreign], plan, aside)
    due, states = found.with_states(engine, aside)
    if plan.observed:
        return plan
    for provide in this.providers:
        with aside.guard("instances without a build", kind=Subject.QUESTION):
            plan.provided += provide(engine, [ref.ref for ref in due], specs=datasets.values()).live
    if plan.provided:
        return plan
    missing = missing_inputs(due, inputs, states)
    aside.planned.update(missing)
    if missing:
        by_job: dict[str, dict[Ref, tuple[Ref, ...]]] = defaultdict(dict)
        spec_of = {ref.ref: datasets[ref.dataset_id] for ref in due if ref.ref in missing}
        for ref in missing:
            by_job[spec_of[ref].job][ref] = missing[ref]
        plan.missed += [_missed(this, spec_of[next(iter(missed))], missed) for missed in by_job.values()]
    if room.is_none or (plan.missed and not is_last):
        return plan
    level = decide_level(engine, datasets, due, missing, room, now, aside)
    aside.planned.update(ref.ref for ref in due if ref.ref not in aside)
    for launch_set in level.launches:
        plan.launches.append(_launch(this, datasets, launch_set, [due[place] for place in launch_set.places]))
    looks.pass_over(look, {ref.dataset_id for ref in due if level.needs[ref.ref].reason not in _HELD_BACK})
    return plan


def observe_sources(
    engine: Engine, foreign: Foreign, source_ids: Iterable[int], now: float, most: int, aside: SetAside
) -> list[Ref]:
    """Observe wanted refs of declared sources, at most `MAX_OBSERVED`, or `most`; of more, the refs of each source in turn."""
    looks = DueLooks(engine, "sources")
    look = looks.look(source_ids, now, min(most, MAX_OBSERVED))
    looks.pass_over(look)
    return _observed(engine, foreign, [ref.ref for ref in look.refs], aside)


def _observed(engine: Engine, foreign: Foreign, refs: Sequence[Ref], aside: SetAside) -> list[Ref]:
    """The refs with a recorded change; a ref with a missing row is set aside alone (rule 3.5)."""
    return aside.in_parts(refs, partial(observe, engine, foreign), lambda ref: [ref]) if refs else []


def _due_siblings(this: Pass, datasets: Mapping[int, DatasetSpec], due: Sequence[DueRef], now: float) -> list[DueRef]:
    """The other outputs, of the job runs that build the refs `due`, that are due too (rule 8.9)."""
    assets: dict[str, list[str]] = defaultdict(list)
    for spec in datasets.values():
        assets[spec.job].append(spec.asset)
    siblings = {
        make_ref(asset, partition_key_of(ref.ref))
        for ref in due
        for asset in assets[datasets[ref.dataset_id].job]
        if asset != datasets[ref.dataset_id].asset
    } - {ref.ref for ref in due}
    if not siblings:
        return []
    found = this.engine.queries.planning.due_among(siblings, datasets, now, this.limits.due_refs)
    return [ref for ref in found.refs if ref.ref in siblings]


def _observe(this: Pass, refs: Sequence[Ref], plan: Plan, aside: SetAside) -> None:
    """Without an answer of Dagster the refs keep their last known state."""
    with aside.guard("the state of foreign refs", kind=Subject.QUESTION):
        plan.observed += _observed(this.engine, this.foreign, refs, aside)


def _missed(this: Pass, spec: DatasetSpec, missing: dict[Ref, tuple[Ref, ...]]) -> c.BufferMissed:
    """A job run per partition key, with only the outputs that miss something."""
    runs = _runs(this.engine, outputs_by_key(missing))
    return c.BufferMissed(
        launch_id=this.engine.new_id(),
        job=spec.job,
        location=this.location,
        owner=this.owner,
        runs=runs,
        misses=tuple(c.RunMiss(run.job_run_id, {ref: missing[ref] for ref in run.refs}) for run in runs),
        code_version=spec.code_version,
    )


def _runs(engine: Engine, by_key: Mapping[str | None, tuple[Ref, ...]]) -> tuple[BufferedRun, ...]:
    return tuple(BufferedRun(engine.new_id(), refs, key) for key, refs in by_key.items())


def _launch(this: Pass, datasets: Mapping[int, DatasetSpec], launch_set: LaunchSet, refs: list[DueRef]) -> Launch:
    command = c.BufferLaunch(
        launch_id=this.engine.new_id(),
        job=launch_set.spec.job,
        location=this.location,
        owner=this.owner,
        runs=_runs(this.engine, launch_set.by_key),
        code_version=launch_set.spec.code_version,
    )
    order = LaunchOrder(
        launch_id=command.launch_id,
        job=launch_set.spec.job,
        location=this.location,
        kind=launch_set.spec.kind,
        assets=tuple(dict.fromkeys(datasets[ref.dataset_id].asset for ref in refs)),
        partition_keys=tuple(launch_set.by_key),
        priority=max(ref.priority for ref in refs),
    )
    return command, order


class DueLook(NamedTuple):
    """A look at due refs."""

    #: The most urgent first.
    refs: list[DueRef]
    #: The datasets that may have further due refs, each with the number of refs up to here.
    passed: dict[int, int]


def built_here(datasets: Mapping[int, DatasetSpec], location: str) -> dict[int, DatasetSpec]:
    """The datasets whose refs an orchestrator of the location launches. It launches no ref of a source or a boundary."""
    return {id: spec for id, spec in datasets.items() if spec.location == location and spec.kind.is_built}


class DueLooks:
    """The place of each dataset in its due refs, where the next look begins. `name` is the name of the looker.

    A level of planning looks at a part of each asset's due refs, so that no asset keeps a second asset waiting (rule 11.6). A part of which
    nothing can be launched, because its refs are set aside or wait for learned inputs, is followed by the next part of the same
    asset at the next tick. The places are in the memory of the process: a new process begins with the most urgent refs.

    With `serving`, the looks cover only the refs `serving` and what they need (rule 8.9).
    """

    def __init__(self, engine: Engine, name: str, serving: Collection[Ref] | None = None) -> None:
        queries = engine.queries
        self._due = queries.planning.due_refs if serving is None else partial(queries.planning.due_among, serving)
        self._places: dict[int, int] = engine.memory.of((DueLooks, name), dict)

    def look(self, dataset_ids: Iterable[int], now: float, most: int) -> DueLook:
        """Due refs of the datasets, at most `most`, as `PlanningQueries.due_refs` divides them."""
        by_place: dict[int, list[int]] = {}
        for id in dataset_ids:
            by_place.setdefault(self._places.get(id, 0), []).append(id)
        refs: list[DueRef] = []
        passed: dict[int, int] = {}
        for place, ids in by_place.items():
            found = self._due(ids, now, -(-most // len(by_place)), skipped=place)
            cut_off = found.cut_off
            refs += found.refs
            passed |= dict.fromkeys(cut_off, place + found.of_each)
            if place:
                # At the end the next look begins with the most urgent ones again.
                self.begin_again(id for id in ids if id not in cut_off)
        if len(by_place) > 1:
            refs.sort(key=urgency)
        return DueLook(refs, passed)

    def pass_over(self, look: DueLook, but: Collection[int] = ()) -> None:
        """The next look at the datasets of `look` begins after it, except for the datasets `but`."""
        self._places.update((id, place) for id, place in look.passed.items() if id not in but)

    def begin_again(self, dataset_ids: Iterable[int]) -> None:
        """The next look at the given datasets begins with the most urgent refs."""
        for id in dataset_ids:
            self._places.pop(id, None)


# Learned inputs (rule 6.3).
#
# An input that a function found missing during its last call is remembered until the function's code changes. The next call
# may need it or not, because it is not declared. So a learned input never becomes a dep miss: while it is being built the
# launch waits, and otherwise the function is called again.
#
# `HOLDS` is what each learned input does to the launch. An input that is not Building must be as urgent as the ref that waits
# for it: nothing raises its priority, so the ref could wait without end. Two refs that learned of each other are both
# launched, and so is one whose input never comes.


class LearnedInput(Label):
    """The way of a learned input to become live, as far as a level of planning knows."""

    BUILDING = "a job run builds it"
    BACKING_OFF = "it is wanted, and its retry comes later"
    DUE = "it is due here, so this level of planning launches it"
    UNDECIDED = "it is due here, and has learned inputs itself"
    WAITING = "it waits for its inputs"
    OTHER = "it failed, is unwanted, a source, or due elsewhere"


class LaunchHold(Label):
    """Whether the launch of the ref that learned the input waits."""

    YES = "yes"
    #: If anything that the input itself waits for holds.
    BY_ITS_INPUTS = "by its inputs"
    NO = "no"


#: By the way of the input: if it is as urgent as the ref that learned it, and if it is not.
_RULES = {
    LearnedInput.BUILDING: (LaunchHold.YES, LaunchHold.YES),
    LearnedInput.BACKING_OFF: (LaunchHold.YES, LaunchHold.NO),
    LearnedInput.DUE: (LaunchHold.YES, LaunchHold.NO),
    LearnedInput.UNDECIDED: (LaunchHold.BY_ITS_INPUTS, LaunchHold.NO),
    LearnedInput.WAITING: (LaunchHold.BY_ITS_INPUTS, LaunchHold.NO),
    LearnedInput.OTHER: (LaunchHold.NO, LaunchHold.NO),
}
HOLDS = {(coming, urgent): _RULES[coming][not urgent] for coming, urgent in product(LearnedInput, (True, False))}


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
        for need in engine.queries.planning.learned_inputs(asking, now)
        if need.code_version == datasets[asking[need.by].dataset_id].code_version
        and HOLDS[_coming(need, here), _is_as_urgent(need, asking[need.by])] is not LaunchHold.NO
    ]
    waiting = [need.ref for need in learned if need.state is InstanceState.UPSTREAM_BUILDING]
    needs = [*learned, *(engine.queries.planning.waited_for(waiting, now) if waiting else ())]
    # Launched now, unless a learned input holds.
    undecided = {need.by for need in learned}
    holding = {need.ref for need in needs if HOLDS[_coming(need, here, undecided), True] is LaunchHold.YES}
    return _led_to(holding, needs) & undecided


def _coming(need: NeededRef, here: Collection[Ref], undecided: Collection[Ref] = ()) -> LearnedInput:
    if need.state is InstanceState.BUILDING:
        return LearnedInput.BUILDING
    if need.state is InstanceState.UPSTREAM_BUILDING:
        return LearnedInput.WAITING
    if need.retries_later:
        return LearnedInput.BACKING_OFF
    if need.ref not in here:
        return LearnedInput.OTHER
    return LearnedInput.UNDECIDED if need.ref in undecided else LearnedInput.DUE


def _is_as_urgent(need: NeededRef, ref: DueRef) -> bool:
    return need.priority >= ref.priority and need.deadline <= ref.deadline


def _led_to(refs: set[Ref], needs: Sequence[NeededRef]) -> set[Ref]:
    """The refs that need any of `refs`, directly or not."""
    needed_by = defaultdict(list)
    for need in needs:
        needed_by[need.ref].append(need.by)
    found: set[Ref] = set()
    level = refs
    while level:
        level = {by for ref in level for by in needed_by[ref]} - found
        found |= level
    return found
