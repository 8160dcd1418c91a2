"""The answer to a supposition: what follows for each ref, in words and as JSON, from the state before and after (rules 8.10, 15)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from databuild_dagster.calls.plans import Stage, rounded, stage_shape
from databuild_dagster.engine.why.reasons import KnownRefs
from databuild_dagster.engine.wording import pause_in_words
from databuild_dagster.features.what_if.reaching import Reached
from databuild_dagster.features.what_if.simulation import SimulatedLaunch
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of

_S = InstanceState
#: Names of refs in a reason.
_NAMED = 3


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


class Change(msgspec.Struct, frozen=True):
    """What follows for a ref, and why."""

    ref: Ref
    job: str
    effect: Effect
    reason: str
    before: InstanceState | None
    after: InstanceState | None


@dataclass(frozen=True)
class WhatIf:
    """The answer to a question."""

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
        """The seconds of the longest chain of launches, by the jobs with a history; None if no job has a history."""
        ends = [launch.begins_after + launch.seconds for launch in self.launches if launch.seconds is not None]
        return max([0.0, *ends]) if ends or not self.launches else None

    @property
    def seconds_of_all(self) -> float | None:
        """The sum of seconds over all new launches, not counting running launches; None if no job has a history."""
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


@dataclass(frozen=True)
class WhatIfState:
    """The state before and after, from which the answer follows."""

    question: Question
    named: frozenset[Ref]
    datasets: Mapping[str, DatasetSpec]
    reached: Reached
    before: KnownRefs
    #: After the supposition, before the first tick.
    supposed: Mapping[Ref, InstanceState | None]
    after: KnownRefs
    newly_stale: set[Ref]
    #: Refs with an open want before the supposition, and at the end.
    wanted_before: set[Ref]
    wanted: set[Ref]
    launches: Sequence[SimulatedLaunch]
    #: What the last ticks set aside, and why.
    aside: Mapping[str, str]
    now: float

    def changes(self) -> Iterator[Change]:
        """Refs that are launched first, in this order."""
        in_order = dict.fromkeys(ref for launch in self.launches for ref in launch.refs)
        out = {ref for launch in self.launches if launch.is_joined for ref in launch.refs}
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
        if (why := self.aside.get(ref)) is not None:
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


class ShownWhatIf(msgspec.Struct, frozen=True):
    """What follows from a supposition; times as in a plan."""

    what: str
    refs: Sequence[Ref]
    changes: Sequence[Change]
    counts: dict[str, int]
    launches: int
    expected_seconds: float | None
    seconds: float | None
    without_history: Sequence[str]
    stages: list[Stage]
    #: Refs that were simulated.
    reached: int
    wants_reopened: int
    wants_open: int
    notes: Sequence[str]


def what_if_shape(found: WhatIf) -> ShownWhatIf:
    """The answer to a what-if as JSON has it."""
    counts = Counter(change.effect for change in found.changes)
    return ShownWhatIf(
        found.question.value,
        found.named,
        found.changes,
        {effect.value: counts[effect] for effect in Effect if counts[effect]},
        found.n_launches,
        rounded(found.seconds_of_all),
        rounded(found.seconds),
        found.without_history,
        [_simulated(launch) for launch in found.launches],
        len(found.reached),
        found.wants_reopened,
        found.wants_open,
        found.notes,
    )


def _simulated(launch: SimulatedLaunch) -> Stage:
    begins, is_joined = launch.begins_after, launch.is_joined
    return stage_shape(launch.job, launch.refs, launch.n_launches, begins, launch.seconds, is_joined=is_joined)
