"""What follows if a partition is tainted, if an asset's code changes, or if a partition never arrives (rule 8.10).

The question is put to a copy in memory of the refs that it reaches (`store.excerpt`). The copy has the commands, rules and ticks
of the store, so the answer is what the orchestrator would do if each job run succeeds. Nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.reasons import KnownRefs, look_up
from databuild_dagster.engine.wording import when
from databuild_dagster.features.what_if.alike import Alike, Likeness, known_of_all
from databuild_dagster.features.what_if.answers import Question, WhatIf, WhatIfState
from databuild_dagster.features.what_if.reaching import Reached, Reaching
from databuild_dagster.features.what_if.simulation import SimulatedLaunch, Simulation
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.context import check_wantable, no_duplicates
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.excerpt import Surroundings
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.store import Store

_S = InstanceState
#: The reason of the taint in the excerpt.
_SUPPOSED = "supposed"


class HasArrived(Refused):
    """{ref} is live since {since}, so it has arrived."""

    hint = "`databuild plan --if-tainted {ref}` shows what follows if its data is wrong."


class NothingWasBuilt(Refused):
    """No partition of {asset} is live, so that a change of its code builds nothing again."""

    hint = "`databuild plan` shows what a build would do."


def if_tainted(engine: Engine, refs: Sequence[Ref], *, downstream: bool = False) -> WhatIf:
    """What follows if the refs are tainted (rule 7). Raises what `TaintPartitions` raises, and `ReachesTooFar`."""

    no_duplicates(refs)

    def suppose(simulation: Simulation) -> None:
        named = simulation.alike.simulated(refs)
        simulation.engine.handle(c.TaintPartitions(refs=named, reason=_SUPPOSED, downstream=downstream))

    return _Asking(engine, Question.TAINT, refs, suppose).answer()


def if_code_changes(engine: Engine, asset: str) -> WhatIf:
    """What follows if new code of an asset builds its live partitions again.

    Raises `UnknownAsset`, `NothingWasBuilt`, `ReachesTooFar`.
    """
    spec = engine.queries.datasets.known(asset)
    live = [ref for ref, state in engine.queries.canonical.states_of_dataset(asset).items() if state is _S.LIVE]
    if not live or not spec.kind.is_built:
        raise NothingWasBuilt(asset=asset)

    def suppose(simulation: Simulation) -> None:
        changed = msgspec.structs.replace(spec, code_version=f"{spec.code_version or ''}+what-if")
        others = simulation.engine.queries.datasets.all(spec.location).values()
        registered = tuple(changed if other.asset == asset else other for other in others)
        simulation.engine.handle(c.RegisterDatasets(location=spec.location, datasets=registered))
        wants = tuple((ref,) for ref in simulation.alike.simulated(live))
        simulation.engine.handle(c.CreateWants(wants=wants, rebuild=True))

    return _Asking(engine, Question.CODE, live, suppose).answer()


def if_missing(engine: Engine, refs: Sequence[Ref]) -> WhatIf:
    """What follows if the refs never become live: what waits for them, and what is built all the same.

    Raises the errors of a want for refs that cannot be wanted, `HasArrived`, `ReachesTooFar`.
    """
    datasets = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
    if not refs:
        raise InvalidRequest(what="the question", value=[], why="it names no ref")
    no_duplicates(refs)
    for ref, seen in engine.queries.canonical.of(refs).items():
        check_wantable(ref, datasets.get, datasets.keys, engine.catalog.why_not)
        if seen.state is _S.LIVE:
            raise HasArrived(ref=ref, since="some time" if seen.live_at is None else when(seen.live_at))
    return _Asking(engine, Question.MISSING, refs, lambda simulation: None).answer()


@dataclass(frozen=True)
class _Asking:
    """A question, from the search for the refs that it reaches to the answer."""

    engine: Engine
    question: Question
    named: Sequence[Ref]
    suppose: Callable[[Simulation], None]

    def answer(self) -> WhatIf:
        engine, is_missing = self.engine, self.question is Question.MISSING
        now = engine.now()
        datasets = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
        with engine.store.reading() as connection:
            surroundings = Surroundings(connection, now)
            searching = Reaching(datasets.values(), engine.catalog, surroundings)
            reached = searching.search(self.named, built_from=not is_missing, needed_by=is_missing)
            before = look_up(engine.queries, reached.refs, now)
            known = _Before(datasets, reached, before, _stale(engine, before), now)
            likeness = Likeness(
                searching, surroundings, reached, frozenset(self.named), frozenset(known.stale | before.pauses.keys())
            )
            future = self._future(known, likeness)
        return self._in_full(known, future)

    def _future(self, known: _Before, likeness: Likeness) -> _Future:
        """The first simulation that holds for all refs; the last of at most three separates refs whose wants end at other times."""
        horizon = known.now
        while True:
            alike = likeness.alike(horizon)
            future = self._simulated(known, alike, likeness.excerpt(alike))
            if likeness.holds(alike, horizon, known.now + future.seconds, future.wanted):
                return future
            twice_as_long = known.now + 2 * future.seconds
            horizon = twice_as_long if horizon == known.now < twice_as_long else NEVER

    def _simulated(self, known: _Before, alike: Alike, excerpt: Store) -> _Future:
        is_missing = self.question is Question.MISSING
        with closing(excerpt):
            reached = known.reached
            simulation = Simulation(self.engine, excerpt, reached.asked_for, self.named if is_missing else (), alike)
            queries, simulated = simulation.engine.queries, alike.simulated(reached.refs)
            n_open, wanted_before = _n_open(simulation), _wanted(simulation, simulated)
            self.suppose(simulation)
            supposed = queries.canonical.states(simulated)
            n_reopened = _n_open(simulation) - n_open if self.question is Question.TAINT else 0
            simulation.run()
            after = look_up(queries, simulated, known.now)
            return _Future(
                alike=alike,
                launches=tuple(simulation.launches),
                aside=simulation.aside,
                seconds=simulation.seconds,
                supposed=supposed,
                after=after,
                stale=_stale(simulation.engine, after),
                wanted_before=wanted_before,
                wanted=_wanted(simulation, simulated),
                n_reopened=n_reopened,
                n_open=_n_open(simulation),
            )

    def _in_full(self, known: _Before, future: _Future) -> WhatIf:
        """The answer about all refs, from the answer about the simulated refs."""
        alike, refs = future.alike, known.reached.refs
        then = WhatIfState(
            question=self.question,
            named=frozenset(self.named),
            datasets=known.datasets,
            reached=known.reached,
            before=known.known,
            supposed={ref: future.supposed[alike.one_for(ref)] for ref in refs},
            after=known_of_all(future.after, known.known, alike, known.reached.declared),
            newly_stale=set(alike.all_of(future.stale)) - known.stale,
            wanted_before=set(alike.all_of(future.wanted_before)),
            wanted=set(alike.all_of(future.wanted)),
            launches=future.launches,
            aside={name: why for one, why in future.aside.items() for name in alike.all_of([Ref(one)])},
            now=known.now,
        )
        return WhatIf(
            question=self.question,
            named=tuple(self.named),
            changes=tuple(then.changes()),
            launches=future.launches,
            reached=tuple(refs),
            wants_reopened=future.n_reopened,
            wants_open=future.n_open,
            notes=tuple(then.notes()),
        )


class _Before(NamedTuple):
    """The state of the refs that a question reaches, before it is put."""

    datasets: dict[str, DatasetSpec]
    reached: Reached
    known: KnownRefs
    stale: set[Ref]
    now: float


class _Future(NamedTuple):
    """The end of a simulation. Launches name all refs, and the rest is about simulated refs only."""

    alike: Alike
    launches: tuple[SimulatedLaunch, ...]
    aside: dict[str, str]
    seconds: float
    #: After the supposition, before the first tick.
    supposed: dict[Ref, InstanceState | None]
    after: KnownRefs
    stale: set[Ref]
    #: Refs with an open want before the supposition, and at the end.
    wanted_before: set[Ref]
    wanted: set[Ref]
    n_reopened: int
    n_open: int


def _n_open(simulation: Simulation) -> int:
    """The number of open wants of all refs: a ref that is not simulated has as many as its simulated ref, each with a single ref."""
    queries = simulation.engine.queries
    others = simulation.alike.n_others()
    n_more = sum(others[ref] * seen.n_open_wants for ref, seen in queries.planning.wanted(others).items())
    return queries.wants.count(WantFilter(open_only=True)) + n_more


def _wanted(simulation: Simulation, refs: Iterable[Ref]) -> set[Ref]:
    return {ref for ref, seen in simulation.engine.queries.planning.wanted(refs).items() if seen.n_open_wants}


def _stale(engine: Engine, known: KnownRefs) -> set[Ref]:
    """The live refs that were built from what is replaced or tainted (rule 4.6)."""
    live = {seen.uuid: ref for ref, seen in known.canonical.items() if seen.state is _S.LIVE and seen.uuid}
    return {live[uuid] for uuid in engine.queries.instances.stale(list(live))}
