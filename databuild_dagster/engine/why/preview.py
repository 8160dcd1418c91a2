"""A job graph with the action for every ref: build, join, reuse or blocked, and why (rule 8.6).

Two passes over the graph. Upwards from the inputs: the fate of each ref, if it is needed. Downwards from the wanted refs:
which refs are needed. A live ref, or a ref that is being built, needs none of its inputs; a failed ref, and what depends on
it, is not tried; a ref that waits for a source has its other inputs built meanwhile. The tick comes to the same result,
dep miss by dep miss (rules 6.3-6.6), and its own function cuts due refs into launches.

Reads the store, and foreign refs through `Foreign`; changes neither.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.ports import Foreign, Observation
from databuild_dagster.engine.why.code import OtherCode, other_code
from databuild_dagster.engine.why.reasons import KnownRefs, look_up
from databuild_dagster.engine.wording import pause_in_words
from databuild_dagster.model.need import DATA_OF_STATE, Data, Maker, Reason, maker_of, need_of
from databuild_dagster.model.plan import JobGraph, launch_sets
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import LEASED, InstanceState
from databuild_dagster.model.wording import mid_sentence
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.job_runs import LaunchSpan


class Action(StrEnum):
    """The action of a request for a ref."""

    #: It is launched, now or when its inputs are live.
    BUILD = "build"
    #: A job run builds it, or waits for its inputs; the request waits, too.
    JOIN = "join"
    #: It is live, or no planned build reads it.
    REUSE = "reuse"
    #: It will not become live, or not by itself.
    BLOCKED = "blocked"


class Verdict(NamedTuple):
    """The action for a ref, and why."""

    action: Action
    reason: str


class PlannedLaunch(NamedTuple):
    """A launch to start."""

    job: str
    location: str | None
    partition_keys: tuple[str | None, ...]
    refs: tuple[Ref, ...]
    #: From the job's history; None when it has none.
    expected_seconds: float | None
    #: The launches on the longest chain that must come before.
    wave: int = 0


@dataclass(frozen=True)
class AnnotatedPlan:
    """A job graph with the action for every ref."""

    graph: JobGraph
    #: For every ref of the graph.
    verdicts: Mapping[Ref, Verdict] = field(repr=False)
    #: Refs with the action `reuse` that are not live, because no planned build reads them.
    passed_over: frozenset[Ref] = field(repr=False)
    #: In the order in which their inputs can be live.
    launches: tuple[PlannedLaunch, ...]
    #: Assets with live partitions of other code, or with unknown code.
    other_code: Sequence[OtherCode] = ()

    @property
    def expected_seconds(self) -> float | None:
        """The seconds of all launches in sequence, by the jobs with a history; None if no job has one."""
        known = [launch.expected_seconds for launch in self.launches if launch.expected_seconds is not None]
        return sum(known) if known or not self.launches else None

    @property
    def without_history(self) -> tuple[str, ...]:
        """The jobs that never succeeded, so that their time is not known."""
        return tuple(dict.fromkeys(launch.job for launch in self.launches if launch.expected_seconds is None))


def annotate(
    engine: Engine, graph: JobGraph, foreign: Foreign | None = None, reused: Mapping[Ref, str] = MappingProxyType({})
) -> AnnotatedPlan:
    """The actions of a request for the graph's refs now. Without `foreign`, foreign refs are as last seen.

    `reused` are refs that will be live without a build, and why.
    """
    now = engine.now()
    known = look_up(engine.queries, graph.inputs, now)
    fates = _Fates(graph, known, _observed(graph, known, foreign), reused, now)
    fates.look_upwards()
    fates.look_downwards()
    verdicts = fates.verdicts()
    passed_over = frozenset(
        ref for ref, verdict in verdicts.items() if verdict.action is Action.REUSE and fates.fate[ref] is not _Fate.LIVE
    )
    live: dict[str, list[Canonical]] = defaultdict(list)
    for ref in graph.inputs:
        if known.state(ref) is InstanceState.LIVE:
            live[asset_of(ref)].append(known.canonical[ref])
    others = other_code(engine.queries, graph.datasets.values(), live)
    return AnnotatedPlan(graph, verdicts, passed_over, _launches(engine, graph, fates), others)


def _observed(graph: JobGraph, known: KnownRefs, foreign: Foreign | None) -> dict[Ref, Observation]:
    """Foreign refs as the next tick will see them (rule 6.11)."""
    if foreign is None:
        return {}
    not_ours = tuple(
        ref
        for ref in graph.inputs
        if (spec := graph.dataset_of(ref)) is not None and spec.kind.is_foreign and known.state(ref) not in LEASED
    )
    return foreign.observe(not_ours) if not_ours else {}


class _Fate(Enum):
    """The fate of a needed ref."""

    LIVE = "is live"
    #: A job run has it.
    BUILDING = "is being built"
    #: A job run waits for its inputs.
    WAITING = "waits for its inputs"
    #: Nothing prevents its build.
    DUE = "is to be built"
    #: It needs an absent source, or a paused ref.
    STUCK = "waits for a source"
    #: A person keeps it from being built (rule 6.13).
    PAUSED = "is paused"
    FAILS = "cannot be built"


#: By the next tick's reason, if the ref were wanted now.
_FATES = {
    Reason.BUILDING: _Fate.BUILDING,
    Reason.WAITING: _Fate.WAITING,
    Reason.FAILED: _Fate.FAILS,
    Reason.FAILED_UPSTREAM: _Fate.FAILS,
    Reason.UNBUILDABLE: _Fate.FAILS,
    Reason.SOURCE: _Fate.STUCK,
    Reason.NOT_ARRIVED: _Fate.STUCK,
    Reason.PAUSED: _Fate.PAUSED,
    Reason.DUE: _Fate.DUE,
}

#: By the fate of a needed ref that keeps a ref from being built, the fate of the hindered ref; the worst first.
_HINDERED = {_Fate.FAILS: _Fate.FAILS, _Fate.PAUSED: _Fate.STUCK, _Fate.STUCK: _Fate.STUCK}

#: The fates of refs whose missing inputs are wanted.
_ASKS = frozenset({_Fate.WAITING, _Fate.DUE, _Fate.STUCK})


class _Fates:
    """The two passes and their results."""

    def __init__(
        self,
        graph: JobGraph,
        known: KnownRefs,
        observed: Mapping[Ref, Observation],
        reused: Mapping[Ref, str],
        now: float,
    ) -> None:
        self._graph = graph
        self._known = known
        self._observed = observed
        self._reused = reused
        self._now = now
        self.fate: dict[Ref, _Fate] = {}
        #: A stuck or failed ref to the ref that is its cause, which may be itself.
        self._blame: dict[Ref, Ref] = {}
        self.needed = set(graph.wanted)
        #: A ref that is not needed to the ref that would have needed it.
        self._spared_by: dict[Ref, Ref] = {}

    def look_upwards(self) -> None:
        """Inputs before outputs."""
        for job in self._graph.jobs:
            for ref in job.produces:
                self.fate[ref] = self._fate_of(ref)

    def _fate_of(self, ref: Ref) -> _Fate:
        if self._is_live(ref):
            return _Fate.LIVE
        maker = Maker.NOTHING if ref in self._graph.unbuildable else self._maker(ref)
        data = DATA_OF_STATE[self._known.state(ref)]
        # A ref that Dagster no longer has is open after the next tick.
        fate = _FATES[need_of(Data.OPEN if data is Data.LIVE else data, maker).reason]
        if fate is _Fate.WAITING and ref in self._known.pauses:
            fate = _Fate.PAUSED
        if fate is _Fate.PAUSED:
            return self._blamed(ref, fate)
        if fate in (_Fate.FAILS, _Fate.STUCK):
            return self._blamed(ref, fate, () if maker is Maker.NOTHING else self._known.missing.get(ref, ()))
        if fate is _Fate.BUILDING:
            return fate
        inputs = self._graph.inputs[ref]
        for hindered, its_fate in _HINDERED.items():
            if found := next((need for need in inputs if self.fate[need] is hindered), None):
                return self._blamed(ref, its_fate, (found,))
        return fate

    def _blamed(self, ref: Ref, fate: _Fate, inputs: Iterable[Ref] = ()) -> _Fate:
        hindered = [need for need in inputs if need in self.fate and _HINDERED.get(self.fate[need]) is fate]
        self._blame[ref] = next((self._blame.get(need, need) for need in hindered), ref)
        return fate

    def _is_live(self, ref: Ref) -> bool:
        if ref in self._reused:
            return True
        if ref in self._observed and self._known.state(ref) not in LEASED:
            return self._is_news(ref) or (self._observed[ref].live and self._known.state(ref) is InstanceState.LIVE)
        return self._known.state(ref) is InstanceState.LIVE

    def _is_news(self, ref: Ref) -> bool:
        """Whether Dagster has data of it that the store has not recorded yet."""
        seen = self._observed.get(ref)
        return seen is not None and seen.live and seen.origin not in (None, self._known.canonical[ref].known_origin)

    def _maker(self, ref: Ref) -> Maker:
        spec = self._graph.dataset_of(ref)
        return maker_of(spec.kind if spec is not None else None, is_paused=ref in self._known.pauses)

    def look_downwards(self) -> None:
        """Outputs before inputs."""
        for job in reversed(self._graph.jobs):
            for ref in job.produces:
                asks = ref in self.needed and self.fate[ref] in _ASKS
                for need in self._graph.inputs[ref]:
                    if asks:
                        self.needed.add(need)
                    else:
                        self._spared_by.setdefault(need, self._who_spares(ref))

    def _who_spares(self, ref: Ref) -> Ref:
        return ref if ref in self.needed or self.fate[ref] not in _ASKS else self._spared_by[ref]

    def verdicts(self) -> dict[Ref, Verdict]:
        return {ref: self._verdict(ref) for job in self._graph.jobs for ref in job.produces}

    def _verdict(self, ref: Ref) -> Verdict:
        fate = self.fate[ref]
        match fate:
            case _Fate.LIVE:
                return Verdict(Action.REUSE, self._why_and_pause(ref))
            case _Fate.BUILDING:
                return Verdict(Action.JOIN, self._why_and_pause(ref))
        if ref not in self.needed:
            spared_by = self._spared_by[ref]
            why = self.fate[spared_by].value
            if self.fate[spared_by] is not _Fate.FAILS:
                return Verdict(Action.REUSE, f"not needed, for {spared_by} {why}; {self._why(ref)}")
            if fate is _Fate.DUE:
                return Verdict(Action.BLOCKED, f"not tried: {spared_by}, which needs it, {why}")
        match fate:
            case _Fate.DUE:
                return Verdict(Action.BUILD, self._why(ref))
            case _Fate.WAITING:
                return Verdict(Action.JOIN, self._why(ref))
            case _:
                return Verdict(Action.BLOCKED, self._why_blocked(ref))

    def _why(self, ref: Ref) -> str:
        if ref in self._reused:
            return self._reused[ref]
        if self._is_news(ref):
            return f"live, as Dagster says: {self._observed[ref].origin}"
        if ref in self._observed and self._known.state(ref) is InstanceState.LIVE and not self._observed[ref].live:
            return self._observed[ref].reason or "Dagster has no materialization of it any more"
        return self._known.why(ref, self._now)

    def _why_and_pause(self, ref: Ref) -> str:
        """Why, with the pause of the ref, if any (rule 6.13)."""
        pause = self._known.pauses.get(ref)
        return self._why(ref) if pause is None else f"{self._why(ref)}; {pause_in_words(ref, pause)}"

    def _why_blocked(self, ref: Ref) -> str:
        blame = self._blame[ref]
        if blame in self._graph.unbuildable:
            why = self._graph.unbuildable[blame]
            return why if blame == ref else f"needs {blame}, which nothing can build: {mid_sentence(why)}"
        if self.fate[blame] is _Fate.PAUSED:
            if blame == ref:
                return self._why_and_pause(ref)
            return f"needs {blame}, which is {pause_in_words(blame, self._known.pauses[blame])}"
        if self.fate[blame] is _Fate.STUCK:
            if blame == ref:
                return f"a source, which no job builds, {self._why(ref)}: it waits until it appears"
            return f"waits for source {blame}, which no job builds"
        return self._why(ref) if blame == ref else f"{blame} {self._why(blame)}"

    def wave(self) -> dict[Ref, int]:
        """The refs to launch, each with the number of launches that must come before."""
        waves: dict[Ref, int] = {}
        for job in self._graph.jobs:
            for ref in job.produces:
                if ref not in self.needed or self.fate[ref] not in (_Fate.DUE, _Fate.WAITING):
                    continue
                before = [waves.get(need, 0) for need in self._graph.inputs[ref] if self.fate[need] is not _Fate.LIVE]
                retry_at = self._known.canonical[ref].retry_at
                is_later = self.fate[ref] is _Fate.WAITING or (retry_at is not None and retry_at > self._now)
                waves[ref] = max(1 + max(before, default=-1), int(is_later))
        return waves


def _launches(engine: Engine, graph: JobGraph, fates: _Fates) -> tuple[PlannedLaunch, ...]:
    """The launches: refs that are ready at the same time go together, as far as a launch can hold them."""
    ready: dict[tuple[int, str, str], list[Ref]] = defaultdict(list)
    for ref, wave in fates.wave().items():
        spec = graph.datasets[asset_of(ref)]
        ready[wave, spec.location, spec.job].append(ref)
    histories: dict[str, list[LaunchSpan]] = {}
    launches = []
    for (wave, location, job), refs in sorted(ready.items()):
        spec = graph.datasets[asset_of(refs[0])]
        if job not in histories:
            histories[job] = engine.queries.launches.spans(asset_of(refs[0]))
        for by_key in launch_sets(engine.catalog, spec, refs):
            built = tuple(ref for outputs in by_key.values() for ref in outputs)
            seconds = expected_seconds(histories[job], len(by_key))
            launches.append(PlannedLaunch(job, location, tuple(by_key), built, seconds, wave))
    return tuple(launches)


def expected_seconds(history: Iterable[LaunchSpan], n_partitions: int) -> float | None:
    """The median over past launches of the time to the first partition and of the time for each further partition.

    This holds for batched and other launches. Launches of a single partition count for several only if no other launches exist.
    """
    spans = list(history)
    if n_partitions > 1 and (several := [span for span in spans if span.n_job_runs > 1]):
        spans = several
    return median(_stretched(span, n_partitions) for span in spans) if spans else None


def _stretched(span: LaunchSpan, n_partitions: int) -> float:
    if span.n_job_runs == 1:
        return span.seconds * n_partitions
    further = (span.seconds - span.first_seconds) / (span.n_job_runs - 1)
    return span.first_seconds + further * (n_partitions - 1)
