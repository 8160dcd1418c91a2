"""What follows if a partition is tainted, if an asset's code changes, or if a partition never arrives (rule 8.10).

The question is put to a copy in memory of the refs that it reaches (`store.excerpt`). Commands, rules and ticks there are
those of the store, so the answer is what the orchestrator would do if each job run succeeds. Nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.what_if.reaching import Reached, Reaching
from databuild_dagster.engine.what_if.simulation import SimulatedLaunch, Simulation
from databuild_dagster.engine.why.reasons import Known, look_up
from databuild_dagster.engine.wording import pause_in_words, when
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.context import check_wantable, no_duplicates
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.excerpt import Surroundings
from databuild_dagster.store.queries.wants import WantFilter

_S = InstanceState
#: Names of refs in one reason.
_NAMED = 3
#: The reason of the taint in the excerpt.
_SUPPOSED = "supposed"


class Question(StrEnum):
    """The supposition."""

    #: The data of some refs is wrong.
    TAINT = "taint"
    #: The code of an asset changes, and its live partitions are built again with it.
    CODE = "code"
    #: Some refs never become live.
    MISSING = "missing"


class Effect(StrEnum):
    """What follows for a ref."""

    #: It is launched, now or when its inputs are live.
    BUILD = "build"
    #: A job run builds it already.
    JOIN = "join"
    #: It waits without end for a ref that does not come.
    WAIT = "wait"
    #: It will not become live, or not by itself.
    BLOCKED = "blocked"
    #: It is tainted, and no open want asks for it.
    TAINTED = "tainted"
    #: It stays live, built from an instance that is replaced or tainted.
    STALE = "stale"


class HasArrived(Refused):
    """{ref} is live since {since}, so it has arrived."""

    hint = "`databuild what-if taint {ref}` shows what follows if its data is wrong."


class NothingWasBuilt(Refused):
    """No partition of {asset} is live, so that a change of its code builds nothing again."""

    hint = "`databuild plan` shows what a build would do."


class Change(NamedTuple):
    """What follows for one ref, and why."""

    ref: Ref
    job: str
    effect: Effect
    reason: str
    before: InstanceState | None
    after: InstanceState | None


@dataclass(frozen=True)
class WhatIf:
    """The answer to one question."""

    question: Question
    #: The refs of the question; for `CODE` the live partitions of the asset.
    named: tuple[Ref, ...]
    #: The refs for which something follows, in the order of the launches.
    changes: tuple[Change, ...] = field(repr=False)
    #: In the order in which they begin.
    launches: tuple[SimulatedLaunch, ...]
    #: The refs that were simulated.
    reached: tuple[Ref, ...] = field(repr=False)
    #: Wants that a taint opens again, and wants that are open at the end.
    wants_reopened: int
    wants_open: int
    #: What could not be known, in sentences.
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """The longest chain of launches, by the jobs with a history; None if no job has one."""
        ends = [launch.begins_after + launch.seconds for launch in self.launches if launch.seconds is not None]
        return max([0.0, *ends]) if ends or not self.launches else None

    @property
    def seconds_of_all(self) -> float | None:
        """All launches one after another, without those that are out already; None if no job has a history."""
        new = [launch for launch in self.launches if not launch.is_joined]
        known = [launch.seconds_of_all for launch in new if launch.seconds_of_all is not None]
        return sum(known) if known or not new else None

    @property
    def n_launches(self) -> int:
        return sum(launch.n_launches for launch in self.launches if not launch.is_joined)

    @property
    def without_history(self) -> tuple[str, ...]:
        """The jobs that never succeeded, so that their time is not known."""
        return tuple(dict.fromkeys(launch.job for launch in self.launches if launch.seconds is None))


def if_tainted(engine: Engine, refs: Sequence[Ref], *, downstream: bool = False) -> WhatIf:
    """What follows if these refs are tainted (rule 7). Raises what `TaintPartitions` raises, and `ReachesTooFar`."""

    def suppose(simulation: Simulation) -> None:
        command = c.TaintPartitions(refs=tuple(refs), reason=_SUPPOSED, downstream=downstream)
        simulation.engine.handle(command)

    return _Asking(engine, Question.TAINT, refs, suppose).answer()


def if_code_changes(engine: Engine, asset: str) -> WhatIf:
    """What follows if new code of an asset builds its live partitions again.

    Raises `UnknownAsset`, `NothingWasBuilt`, `ReachesTooFar`.
    """
    spec = engine.queries.known_dataset(asset)
    live = [ref for ref, state in engine.queries.states_of_dataset(asset).items() if state is _S.LIVE]
    if not live or not spec.kind.is_built:
        raise NothingWasBuilt(asset=asset)

    def suppose(simulation: Simulation) -> None:
        changed = msgspec.structs.replace(spec, code_version=f"{spec.code_version or ''}+what-if")
        others = simulation.engine.queries.datasets(spec.location).values()
        registered = tuple(changed if other.asset == asset else other for other in others)
        simulation.engine.handle(c.RegisterDatasets(location=spec.location, datasets=registered))
        simulation.engine.handle(c.CreateWants(wants=tuple((ref,) for ref in live), rebuild=True))

    return _Asking(engine, Question.CODE, live, suppose).answer()


def if_missing(engine: Engine, refs: Sequence[Ref]) -> WhatIf:
    """What follows if these refs never become live: what waits for them, and what is built all the same.

    Raises the errors of a want for refs that cannot be wanted, `HasArrived`, `ReachesTooFar`.
    """
    datasets = {spec.asset: spec for spec in engine.queries.datasets().values()}
    if not refs:
        raise InvalidRequest(what="the question", value=[], why="it names no ref")
    no_duplicates(refs)
    for ref, seen in engine.queries.canonical(refs).items():
        check_wantable(ref, datasets.get, datasets.keys, engine.catalog.why_not)
        if seen.state is _S.LIVE:
            raise HasArrived(ref=ref, since="some time" if seen.live_at is None else when(seen.live_at))
    return _Asking(engine, Question.MISSING, refs, lambda simulation: None).answer()


@dataclass(frozen=True)
class _Asking:
    """One question, from the search for the refs that it reaches to the answer."""

    engine: Engine
    question: Question
    named: Sequence[Ref]
    suppose: Callable[[Simulation], None]

    def answer(self) -> WhatIf:
        engine, is_missing = self.engine, self.question is Question.MISSING
        now = engine.now()
        datasets = {spec.asset: spec for spec in engine.queries.datasets().values()}
        with engine.store.reading() as connection:
            surroundings = Surroundings(connection, now)
            search = Reaching(datasets.values(), engine.catalog, surroundings).search
            reached = search(self.named, built_from=not is_missing, needed_by=is_missing)
            before = look_up(engine.queries, reached.refs, now)
            stale = _stale(engine, before)
            excerpt = surroundings.copy(reached.refs, reached.around, reached.behind)
        with closing(excerpt):
            simulation = Simulation(engine, excerpt, reached.asked_for, self.named if is_missing else ())
            n_open = _n_open(simulation.engine)
            wanted_before = _wanted(simulation.engine, reached.refs)
            self.suppose(simulation)
            supposed = simulation.engine.queries.states(reached.refs)
            n_reopened = _n_open(simulation.engine) - n_open if self.question is Question.TAINT else 0
            simulation.run()
            after = look_up(simulation.engine.queries, reached.refs, now)
            then = _Then(
                question=self.question,
                named=frozenset(self.named),
                datasets=datasets,
                reached=reached,
                before=before,
                supposed=supposed,
                after=after,
                newly_stale=_stale(simulation.engine, after) - stale,
                wanted_before=wanted_before,
                wanted=_wanted(simulation.engine, reached.refs),
                simulation=simulation,
                now=now,
            )
            return WhatIf(
                question=self.question,
                named=tuple(self.named),
                changes=tuple(then.changes()),
                launches=tuple(simulation.launches),
                reached=tuple(reached.refs),
                wants_reopened=n_reopened,
                wants_open=_n_open(simulation.engine),
                notes=tuple(then.notes()),
            )


def _n_open(engine: Engine) -> int:
    return engine.queries.n_wants(WantFilter(open_only=True))


def _wanted(engine: Engine, refs: Iterable[Ref]) -> set[Ref]:
    return {ref for ref, seen in engine.queries.wanted(refs).items() if seen.n_open_wants}


def _stale(engine: Engine, known: Known) -> set[Ref]:
    """The live refs that were built from what is replaced or tainted (rule 4.6)."""
    live = {seen.uuid: ref for ref, seen in known.canonical.items() if seen.state is _S.LIVE and seen.uuid}
    return {live[uuid] for uuid in engine.queries.stale(list(live))}


@dataclass(frozen=True)
class _Then:
    """The state before and after, from which the answer follows."""

    question: Question
    named: frozenset[Ref]
    datasets: Mapping[str, DatasetSpec]
    reached: Reached
    before: Known
    #: After the supposition, before the first tick.
    supposed: Mapping[Ref, InstanceState | None]
    after: Known
    newly_stale: set[Ref]
    #: Refs with an open want before the supposition, and at the end.
    wanted_before: set[Ref]
    wanted: set[Ref]
    simulation: Simulation
    now: float

    def changes(self) -> Iterator[Change]:
        """Refs that are launched first, in this order."""
        in_order = dict.fromkeys(ref for launch in self.simulation.launches for ref in launch.refs)
        out = {ref for launch in self.simulation.launches if launch.is_joined for ref in launch.refs}
        for ref in dict.fromkeys((*in_order, *sorted(self.reached.refs))):
            if ref in self.reached.refs and (
                found := self._effect(ref, is_launched=ref in in_order, is_out=ref in out)
            ):
                spec = self.datasets.get(asset_of(ref))
                job = asset_of(ref) if spec is None else spec.job
                yield Change(ref, job, *found, self.before.state(ref), self.after.state(ref))

    def _effect(self, ref: Ref, *, is_launched: bool, is_out: bool) -> tuple[Effect, str] | None:
        """None for a ref for which nothing follows."""
        if self.question is Question.MISSING and ref in self.named:
            return Effect.BLOCKED, f"it never arrives, as supposed; {self.before.why(ref, self.now)}"
        before, after = self.before.state(ref), self.after.state(ref)
        if is_launched and after is _S.LIVE:
            return (Effect.JOIN, self.before.why(ref, self.now)) if is_out else (Effect.BUILD, self._why_built(ref))
        if after is _S.LIVE:
            return (Effect.STALE, self._why_stale(ref)) if ref in self.newly_stale else None
        if ref in self.wanted and (why := self._what_keeps(ref)) is not None:
            return Effect.BLOCKED, why
        match after:
            case _S.TAINTED:
                return (Effect.TAINTED, self._why_tainted(ref)) if before is not after else None
            case _S.UPSTREAM_BUILDING:
                return (
                    (Effect.WAIT, self._why_it_waits(ref)) if before is not after or self._first_causes(ref) else None
                )
            case _S.BUILDING:
                return Effect.WAIT, "another output of its job run never arrives"
            case _S.FAILED | _S.UPSTREAM_FAILED:
                return (Effect.BLOCKED, self.after.why(ref, self.now)) if before is not after else None
        if (need := self.reached.needing.get(ref)) is not None:
            return Effect.WAIT, f"needs {need}; no open want asks for it"
        if is_launched or before is _S.LIVE:
            return Effect.BLOCKED, f"{self.after.why(ref, self.now)}; no open want asks for it"
        return None

    def _what_keeps(self, ref: Ref) -> str | None:
        """Why an open want does not get the ref built, if not by its inputs."""
        if (pause := self.after.pauses.get(ref)) is not None:
            return pause_in_words(ref, pause)
        if (why := self.simulation.aside.get(ref)) is not None:
            return f"set aside: {why}"
        spec = self.datasets.get(asset_of(ref))
        if self.after.state(ref) is _S.TAINTED and spec is not None and not spec.kind.is_built:
            return "tainted, and no job builds it: it waits until new data arrives"
        return None

    def _why_built(self, ref: Ref) -> str:
        before = self.before.state(ref)
        if before is not _S.LIVE:
            already = "; wanted already" if ref in self.wanted_before else ""
            return self.before.why(ref, self.now) + already
        if self.question is Question.CODE and ref in self.named:
            return "built by other code, as supposed"
        if self.supposed[ref] is not _S.TAINTED:
            return "tainted by its arc: a source has new data"
        return f"{self._taint(ref)}, and an open want asks for it"

    def _why_tainted(self, ref: Ref) -> str:
        return f"{self._taint(ref)}; no open want asks for it"

    def _taint(self, ref: Ref) -> str:
        return (
            "tainted, as supposed" if ref in self.named else f"built from {self._changed_inputs(ref)}, tainted with it"
        )

    def _why_stale(self, ref: Ref) -> str:
        return f"stays live; it was built from {self._changed_inputs(ref)}, which is replaced or tainted"

    def _changed_inputs(self, ref: Ref) -> str:
        known = self.reached.read.get(ref, ())
        changed = [need for need in known if need in self.reached.refs and self._is_changed(need)]
        return few_of(changed or known, _NAMED)

    def _is_changed(self, ref: Ref) -> bool:
        before, after = self.before.canonical[ref], self.after.canonical[ref]
        return (before.uuid, before.state) != (after.uuid, after.state)

    def _why_it_waits(self, ref: Ref) -> str:
        missing = self.after.missing.get(ref, ())
        causes = self._first_causes(ref)
        never = f", for {few_of(sorted(causes), _NAMED)} never arrives" if causes and not causes >= set(missing) else ""
        return f"waits for {few_of(missing, _NAMED)}{never}"

    def _first_causes(self, ref: Ref) -> set[Ref]:
        """The refs that never arrive, by which it waits."""
        if self.question is not Question.MISSING:
            return set()
        seen, level = {ref}, [ref]
        while level:
            level = [need for waiting in level for need in self.after.missing.get(waiting, ()) if need not in seen]
            seen.update(level)
        return seen & self.named

    def notes(self) -> Iterator[str]:
        """What could not be known."""
        by_reason: dict[str, list[Ref]] = {}
        for ref, why in self.reached.unknown.items():
            by_reason.setdefault(why, []).append(ref)
        for why, refs in by_reason.items():
            yield f"The inputs of {few_of(refs, _NAMED)} are not known here: {why}"
        foreign = {asset_of(ref) for ref in self.reached.refs} & {
            spec.asset for spec in self.datasets.values() if spec.kind.is_foreign
        }
        if foreign:
            yield f"The state of {few_of(sorted(foreign), _NAMED)} is as databuild saw it last."
