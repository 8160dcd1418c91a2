"""Why a ref is, or is not, being built now, followed to the first causes.

Each answer is the row of `model.need` by which the next tick decides, in words; for a due ref the planner itself gives the
row. The row also names the refs that are the cause, which are explained next.

Every ref is explained once, so a ring of waits ends. The answer is bounded, the worst causes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from databuild_dagster.engine.arcs import sources_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import in_words, surely_gone
from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, LEASE_SECONDS
from databuild_dagster.engine.orchestrator_notes import absence_of, limits_of
from databuild_dagster.engine.outages import in_words as outage_in_words
from databuild_dagster.engine.outages import needs_of, out_of_reach, outages
from databuild_dagster.engine.planning import RoomLeft, built_here, decide_level, missing_inputs
from databuild_dagster.engine.returning import provide
from databuild_dagster.engine.set_aside import SetAside, arc_name, launch_name, plannable
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.engine.why.built_again import built_again, to_cancel
from databuild_dagster.engine.why.reasons import NAMED, KnownRefs, counted, look_up
from databuild_dagster.engine.wording import pause_in_words, to_resume, to_retry, when
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.context import MAX_ATTEMPTS, check_wantable
from databuild_dagster.model.errors import NotFound, Refused, UnknownAsset
from databuild_dagster.model.need import (
    DATA_OF_STATE,
    Action,
    Data,
    LeadsTo,
    Maker,
    Need,
    Reason,
    Room,
    maker_of,
    need_of,
    wanted_as,
)
from databuild_dagster.model.refs import Ref, asset_of, parse_ref, partition_key_of
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import FAILING, LEASED, OPEN_WANTS, InstanceState, JobRunState, WantState
from databuild_dagster.model.wording import few_of, mid_sentence, one_line, typed
from databuild_dagster.store.queries.ids import IdKind, may_be_id
from databuild_dagster.store.queries.wants import WantView

_S = InstanceState

#: Causes in an answer.
MAX_CAUSES = 100
#: A silence that is longer than two heartbeats are apart, on a busy machine too.
SILENT_SECONDS = 1.5 * HEARTBEAT_SECONDS
#: Begins the sentence about the refs beyond that.
LEFT_OUT = "not explained here:"
#: Refs that are followed from a waiting ref.
MAX_FOLLOWED = 10
#: The worst first: failures, then refs that no job builds, then refs on their way.
_ORDER: tuple[InstanceState | None, ...] = (
    _S.FAILED,
    _S.UPSTREAM_FAILED,
    None,
    _S.TAINTED,
    _S.UP_FOR_RETRY,
    _S.UPSTREAM_BUILDING,
    _S.BUILDING,
    _S.LIVE,
)


class OnlyLater(NotFound):
    """Nothing had been recorded of {name} as of {at}."""

    hint = "Give a later time, or leave --as-of out to see the present state."


class Cause(msgspec.Struct, frozen=True):
    """A step on the way to the first cause."""

    #: The ref, or the want, that it explains.
    ref: str
    why: str
    #: The number of steps to here.
    depth: int


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer about a ref, a want or a request."""

    ref: str
    #: Of the ref, None if it is missing; of the want; `mixed` for a request whose wants differ.
    state: str | None
    #: The causes of a cause follow it, a level deeper.
    causes: tuple[Cause, ...]
    #: Of a request: the number of its wants in each state.
    wants: dict[str, int] | None = None


def explain(engine: Engine, name: str, *, from_log_alone: bool = False) -> Explanation:
    """Why a ref, or the refs of a want or request, are or are not being built now.

    `from_log_alone` leaves out which processes are alive, and whether an orchestrator ticks. Raises `NotFound`, and for a
    ref that cannot be wanted `InvalidRef`, `UnknownAsset` or `UnknownPartition`.
    """
    following = _Following(engine, from_log_alone=from_log_alone)
    if may_be_id(name) and engine.queries.datasets.get(name) is None:
        name = engine.queries.ids.full(IdKind.WANT, name)
    if wants := engine.queries.wants.named(name):
        return _of_wants(engine, name, wants, following)
    ref = parse_ref(name)
    state = following.known(ref).state(ref)
    # A ref with a history can be explained, even if no job builds it any more.
    if state is None and not engine.queries.planning.wanted([ref])[ref].n_open_wants:
        _check_wantable(engine, ref)
    following.follow([ref], depth=0)
    return Explanation(ref, state.value if state else None, tuple(following.causes))


def causes_of_each(
    engine: Engine, refs: Iterable[Ref], *, from_log_alone: bool = False
) -> dict[Ref, tuple[Cause, ...]]:
    """The causes of refs that are wanted, each as `explain` has them; the next tick is planned once for all."""
    following = _Following(engine, from_log_alone=from_log_alone)
    return {ref: following.causes_of(ref) for ref in refs}


def explain_as_of(engine: Engine, name: str, seq: int, at: float) -> Explanation:
    """The same, by the log up to event `seq`, at the time `at` (rule 3.2).

    Folds the log up to there, which takes as long as a rebuild. Raises what `explain` raises for a name that is unknown
    now; `OnlyLater` for a name that was unknown then.
    """
    try:
        # A fold makes tables, by SQLAlchemy, whose import would slow every other question.
        from databuild_dagster.store.rebuild import as_it_was

        with as_it_was(engine.store, seq) as store:
            then = Engine(store, engine.catalog, clock=lambda: at, new_id=engine.new_id)
            return explain(then, name, from_log_alone=True)
    except (NotFound, UnknownAsset):
        # A misspelled name raises here, and not that it came later.
        explain(engine, name)
        raise OnlyLater(name=name, at=when(at)) from None


def _check_wantable(engine: Engine, ref: Ref) -> None:
    def names() -> list[str]:
        return [spec.asset for spec in engine.queries.datasets.all().values()]

    check_wantable(ref, engine.queries.datasets.get, names, engine.catalog.why_not)


def _of_wants(engine: Engine, name: str, wants: Sequence[WantView], following: _Following) -> Explanation:
    counts = Counter(want.state.value for want in wants)
    for state in WantState:
        same = [want for want in wants if want.state is state]
        if same and (why := _want_in_words(state, len(same), engine.now())):
            following.causes.append(Cause(name, why, 0))
    asking = [want for want in wants if want.state in OPEN_WANTS | {WantState.FAILED, WantState.UPSTREAM_FAILED}]
    states = engine.queries.canonical.states(dict.fromkeys(ref for want in asking for ref in want.refs))
    following.follow([ref for ref, state in states.items() if state is not _S.LIVE], depth=0)
    common = next(iter(counts)) if len(counts) == 1 else "mixed"
    return Explanation(name, common, tuple(following.causes), dict(counts))


def _want_in_words(state: WantState, n: int, now: float) -> str | None:
    """The sentence about wants in a state that their refs do not explain."""
    subject, stays = ("the want", "stays") if n == 1 else (f"{n} wants", "stay")
    match state:
        case WantState.SUCCESSFUL:
            return f"{subject} succeeded: everything asked for was live"
        case WantState.CANCELED:
            return f"{subject} ended canceled: nothing is built for it any more"
        case WantState.EXPIRED:
            return f"{subject} ended expired: its TTL passed, and nothing is built for it any more"
        case WantState.FAILED | WantState.UPSTREAM_FAILED:
            return f"{subject} ended {state.in_words}, and {stays} so; want it again when the cause is repaired"
        case _:
            return None


class _Following:
    """The way from refs to the first causes."""

    def __init__(self, engine: Engine, *, from_log_alone: bool) -> None:
        self._engine = engine
        self._from_log_alone = from_log_alone
        self._queries = engine.queries
        self._now = engine.now()
        self._clock = engine.clock()
        self._seen: set[Ref] = set()
        self._known: dict[Ref, KnownRefs] = {}
        #: By location.
        self._levels: dict[str, dict[Ref, Need]] = {}
        #: The subjects that the next tick sets aside, and why.
        self._aside = SetAside()
        self.causes: list[Cause] = []

    def known(self, ref: Ref) -> KnownRefs:
        """The store's facts about a ref, read once."""
        if ref not in self._known:
            self._known[ref] = look_up(self._queries, [ref], self._now)
        return self._known[ref]

    def causes_of(self, ref: Ref) -> tuple[Cause, ...]:
        """The causes of a ref, as if no other ref had been explained before."""
        self._seen.clear()
        self.causes = []
        self.follow([ref], depth=0)
        return tuple(self.causes)

    def follow(self, refs: Iterable[Ref], *, depth: int) -> None:
        """Depth first, so that a first cause comes before the bound. A single retry opens all that failed behind a ref."""
        stack = [(ref, depth, False) for ref in reversed(self._worst_first(refs))]
        while stack:
            ref, depth, is_opened = stack.pop()
            if ref in self._seen:
                continue
            if len(self.causes) >= MAX_CAUSES:
                left = {ref, *(waiting for waiting, _, _ in stack)} - self._seen
                states = counted(Counter(self._queries.canonical.states(left).values()))
                self.causes.append(Cause(ref, f"{LEFT_OUT} {len(left)} more ({states})", depth))
                return
            self._seen.add(ref)
            why, leads_to = self._of(ref, is_opened=is_opened)
            is_opened = is_opened or self.known(ref).state(ref) is _S.UPSTREAM_FAILED
            self.causes += [Cause(ref, sentence, depth) for sentence in why]
            followed = self._worst_first(need for need in leads_to if need not in self._seen)
            if unfollowed := followed[MAX_FOLLOWED:]:
                states = counted(Counter(self._queries.canonical.states(unfollowed).values()))
                self.causes.append(Cause(ref, f"and {len(unfollowed)} more that it needs: {states}", depth))
            stack += [(need, depth + 1, is_opened) for need in reversed(followed[:MAX_FOLLOWED])]

    def _worst_first(self, refs: Iterable[Ref]) -> list[Ref]:
        found = list(refs)
        if len(found) < 2:
            return found
        states = self._queries.canonical.states(found)
        return sorted(states, key=lambda ref: _ORDER.index(states[ref]))

    def _of(self, ref: Ref, *, is_opened: bool) -> tuple[list[str], Sequence[Ref]]:
        """The sentences about a ref, and the refs that are its cause."""
        known = self.known(ref)
        need, unbuildable = self._need(known, ref)
        why, leads_to = known.why(ref, self._now), self._led_to(need, known, ref)
        if need.reason is Reason.FAILED_UPSTREAM and not is_opened:
            why = f"{why.rstrip('.')}; {to_retry(ref)}"
        elif need.reason is Reason.FAILED and not is_opened:
            why = f"{why.rstrip('.')}; `databuild retry {typed(ref)}` opens it for another build"
        sentences = self._sentences(need, known, ref, why, leads_to, unbuildable) + self._set_aside(need, known, ref)
        if ref in known.pauses:
            sentences.append(f"{pause_in_words(ref, known.pauses[ref])}; {to_resume(known.pauses[ref])}")
        if need.leads_to is LeadsTo.DECLARED:
            # The next tick wants the others.
            states = self._queries.canonical.states(leads_to)
            leads_to = [missing for missing in leads_to if states[missing] in LEASED | FAILING]
        return sentences, leads_to

    def _set_aside(self, need: Need, known: KnownRefs, ref: Ref) -> list[str]:
        """The reasons recorded for the ref, its arc, its launch or files of its boundary, unless the next tick's own is known."""
        names = [arc_name(asset_of(ref)), *([] if ref in self._aside else [ref])]
        if need.data is Data.BUILDING:
            names.append(launch_name(known.job_runs[ref].launch_id))
        asides = [
            aside
            for aside in self._queries.planning.asides_of(names)
            # Late files of a live lot may wait.
            if need.data is not Data.LIVE or aside.kind is Subject.LOT
        ]
        if need.reason is Reason.NOT_ARRIVED:
            of_boundary = self._queries.planning.set_aside_of_boundary(asset_of(ref))
            asides += [aside for aside in of_boundary if aside.kind is Subject.FILE][:NAMED]
        return [
            f"{'' if aside.name == ref else f'{aside.name} is '}set aside for now, since {when(aside.since)}: {aside.reason}"
            for aside in asides
        ]

    def _need(self, known: KnownRefs, ref: Ref) -> tuple[Need, str]:
        """The row, and why no job can build the ref, if so."""
        data, unbuildable = DATA_OF_STATE[known.state(ref)], ""
        if data not in (Data.OPEN, Data.WAITING):
            return need_of(data), unbuildable
        spec = self._queries.datasets.get(asset_of(ref))
        try:
            _check_wantable(self._engine, ref)
        except Refused as refused:
            spec, unbuildable = None, refused.message
        wanted = self._queries.planning.wanted([ref])[ref]
        wish = wanted_as(wanted.n_open_wants, wanted.until, known.canonical[ref].retry_at, self._now)
        maker = maker_of(spec.kind if spec is not None else None, is_paused=ref in known.pauses)
        need = need_of(data, maker, wish)
        if need.action is Action.BUILD and spec is not None:
            # Its inputs and the limits may still hold it back.
            need = self._levels_of(spec.location).get(ref, need_of(data, room=Room.NOT_LOOKED_AT))
            return need, self._aside.get(ref, unbuildable)
        return need, unbuildable

    def _levels_of(self, location: str) -> dict[Ref, Need]:
        """The planner's row for each due ref in the next tick of a location."""
        if location not in self._levels:
            limits = self._limits(location)
            datasets = built_here(self._queries.datasets.all(location), location)
            due = self._queries.planning.due_refs(datasets, self._now, limits.due_refs).refs
            found = plannable(self._engine, datasets, due, self._aside)
            due, states = found.with_states(self._engine, self._aside)
            missing = missing_inputs(due, found.inputs, states)
            lacking = out_of_reach(self._queries.planning.reasons(location))
            room = RoomLeft.within(limits, self._queries.launches.open(), location, 0, lacking)
            self._levels[location] = decide_level(
                self._engine, datasets, due, missing, room, self._now, self._aside
            ).needs
            self._levels[location] |= {Ref(name): need_of(Data.OPEN, Maker.NOTHING) for name in self._aside}
        return self._levels[location]

    def _led_to(self, need: Need, known: KnownRefs, ref: Ref) -> Sequence[Ref]:
        match need.leads_to:
            case LeadsTo.NONE:
                return self._absent_sources(ref) if need.reason is Reason.UNWANTED else ()
            case LeadsTo.FOUND_MISSING:
                return known.missing[ref]
            case LeadsTo.DECLARED:
                inputs = self._engine.catalog.inputs(self._spec(ref), partition_key_of(ref))
                states = self._queries.canonical.states(inputs)
                return [missing for missing, state in states.items() if state is not _S.LIVE]
            case LeadsTo.LEARNED:
                learned = self._queries.planning.learned_inputs([ref], self._now)
                return [found.ref for found in learned if found.code_version == self._spec(ref).code_version]

    def _absent_sources(self, ref: Ref) -> Sequence[Ref]:
        """The sources that wake the lot of an arc, and are not live."""
        sources = sources_of(self._engine, self._spec(ref), partition_key_of(ref))
        return [source for source, state in self._queries.canonical.states(sources).items() if state is not _S.LIVE]

    def _spec(self, ref: Ref) -> DatasetSpec:
        spec = self._queries.datasets.get(asset_of(ref))
        assert spec is not None, "a due ref is registered"
        return spec

    def _sentences(
        self, need: Need, known: KnownRefs, ref: Ref, why: str, leads_to: Sequence[Ref], unbuildable: str
    ) -> list[str]:
        """A sentence for each reason of the table; where a tick must act, also whether an orchestrator runs."""
        match need.reason:
            case Reason.LIVE:
                uuid = known.canonical[ref].uuid or ""
                behind = self._queries.instances.behind([uuid])
                stale = "; stale, for an input was tainted or replaced since" if behind.get(uuid) else ""
                if behind and (
                    equal := list(dict.fromkeys(one.ref for one in self._queries.instances.equal_inputs([uuid])))
                ):
                    stale += f"; no build follows {few_of(equal, NAMED)}, which got equal rows again"
                return [f"{why}: there is nothing to build{stale}"]
            case Reason.BUILDING:
                return self._lease(known, ref)
            case Reason.WAITING | Reason.FAILED_UPSTREAM | Reason.PAUSED | Reason.FAILED:
                return [why]
            case Reason.UNBUILDABLE:
                if ref in self._aside:
                    return [f"{why}; set aside for now: {unbuildable}"]
                nothing = f"{why}; nothing can build it any more: {mid_sentence(unbuildable).rstrip('.')}"
                cancel = to_cancel(self._queries, ref)
                return [f"{nothing}; {cancel} ends what wants it" if cancel else nothing]
            case Reason.NOT_ARRIVED:
                return [f"{why}; a lot of files from outside: it waits until they arrive"]
            case Reason.SOURCE:
                return [f"{why}; a source, which no job builds: it waits until it appears"]
            case Reason.UNWANTED if leads_to:
                source = few_of(leads_to, NAMED)
                return [f"{why}; waiting for its source {source}: its arc wants it when that is live"]
            case Reason.UNWANTED:
                return [
                    f"{why}; no open want names it{self._last_want(ref)}; `databuild want create {typed(ref)}` records one"
                ]
            case Reason.EXPIRED:
                until = when(self._queries.planning.wanted([ref])[ref].until)
                return [
                    f"{why}; outside the TTL of its wants, which ended at {until}: want it again",
                    *self._outages(ref),
                ]
            case Reason.BACKING_OFF:
                return [self._backoff(known, ref)]
            case Reason.LEARNED_INPUTS:
                return [f"{why}; its last call asked for {few_of(leads_to, NAMED)}, which is to be there first"]
            case Reason.MISSES_INPUTS:
                misses = f"{why}; it misses {few_of(leads_to, NAMED)}, which the next tick wants for it"
                return [misses, *self._orchestrator(self._spec(ref).location)]
            case Reason.DUE:
                return self._due(known, ref, why)
            case Reason.OUTAGE:
                return [
                    *self._outages(ref),
                    self._since(known, ref, why),
                    *self._orchestrator(self._spec(ref).location),
                ]
            case Reason.NOT_LOOKED_AT | Reason.JOB_FULL | Reason.LOCATION_FULL | Reason.TICK_FULL:
                spec = self._spec(ref)
                return [
                    self._since(known, ref, why),
                    self._limit(need.reason, spec),
                    *self._orchestrator(spec.location),
                ]
            case _:
                assert_never(need.reason)

    def _lease(self, known: KnownRefs, ref: Ref) -> list[str]:
        return [*self._held(known, ref), *self._tried_before(known, ref)]

    def _tried_before(self, known: KnownRefs, ref: Ref) -> list[str]:
        """The attempts before the one that is being made, and the error of the last of them."""
        wanted, uuid = self._queries.planning.wanted([ref])[ref], known.canonical[ref].uuid
        instance = self._queries.instances.get(uuid, most_inputs=0) if wanted.attempts and uuid else None
        before = (
            instance and instance.previous_uuid and self._queries.instances.get(instance.previous_uuid, most_inputs=0)
        )
        if not before or not before.reason:
            return []
        return [f"attempt {wanted.attempts + 1} of {MAX_ATTEMPTS}; the last one failed with: {one_line(before.reason)}"]

    def _held(self, known: KnownRefs, ref: Ref) -> list[str]:
        run = known.job_runs[ref]
        launch = self._queries.launches.get(run.launch_id)
        assert launch is not None, "a job run has a launch"
        if run.state is JobRunState.QUEUED or launch.holder is None:
            queued = (
                f"its lease is held by job run {run.id} since {when(run.buffered_at)}: launched by {in_words(launch.owner)}, "
                "its Dagster run has not started yet"
            )
            return [queued, *(self._orchestrator(launch.location) if self._is_gone(launch.owner) else ())]
        held = (
            f"its lease is held by job run {run.id} (Dagster run {launch.dagster_run_id}, {in_words(launch.holder)}) "
            f"since {when(run.started_at or run.buffered_at)}{known.slow.get(launch.launch_id, '')}"
        )
        beat = self._engine.heartbeats.last([launch.launch_id]).get(launch.launch_id)
        if self._is_gone(launch.holder):
            lost = "that process is gone: the next tick declares the job run lost"
        elif beat is not None and (silent := self._clock - beat) > SILENT_SECONDS:
            if silent <= LEASE_SECONDS:
                follows = f"its lease ends after {LEASE_SECONDS:g} s"
            else:
                follows = f"a tick declares it lost once its process has watched for {LEASE_SECONDS:g} s"
            lost = f"it has sent no heartbeat for {silent:.0f} s, since {when(beat)}: {follows}"
        else:
            return [held]
        return [held, lost, *self._orchestrator(launch.location)]

    def _is_gone(self, holder: str) -> bool:
        return not self._from_log_alone and surely_gone(holder)

    def _last_want(self, ref: Ref) -> str:
        wants = self._queries.wants.of_ref(ref)
        return f": the last want for it, {wants[-1].id}, is {wants[-1].state.in_words}" if wants else ""

    def _backoff(self, known: KnownRefs, ref: Ref) -> str:
        wanted, canonical = self._queries.planning.wanted([ref])[ref], known.canonical[ref]
        parts = [f"attempt {wanted.attempts} of {MAX_ATTEMPTS} failed"] if wanted.attempts else []
        if uncounted := wanted.outages + max(wanted.losses - wanted.attempts, 0):
            parts.append(f"{uncounted} more not counted, by its surroundings")
        attempts = f" ({', '.join(parts)})" if parts else ""
        after = f", after: {one_line(canonical.reason)}" if canonical.reason else ""
        return f"its backoff ends at {when(canonical.retry_at or 0.0)}{attempts}{after}"

    def _since(self, known: KnownRefs, ref: Ref, why: str) -> str:
        """Why it is open and since when it is wanted; after a cancellation also the command that prevents a new build."""
        since = f"{why}; wanted since {when(self._queries.planning.wanted([ref])[ref].since)}"
        job_run_id = known.canonical[ref].job_run if known.state(ref) is _S.UP_FOR_RETRY else None
        run = None if job_run_id is None else self._queries.job_runs.get(job_run_id)
        if run is None or run.state is not JobRunState.CANCELED:
            return since
        return f"{since}; its job run was canceled: {' '.join(built_again(self._engine, [ref]))}".rstrip(".")

    def _due(self, known: KnownRefs, ref: Ref, why: str) -> list[str]:
        """The next tick launches it, if an orchestrator ticks."""
        location = self._spec(ref).location
        since = self._since(known, ref, why)
        if not self._from_log_alone and (back := provide(self._engine, [ref], is_plan=True).reused.get(ref)):
            return [f"{since}: the next tick reuses {back}", *self._orchestrator(location)]
        if stalled := self._orchestrator(location):
            return [since, *stalled]
        missing = [other for other, need in self._levels_of(location).items() if need.action is Action.MISS]
        if missing:
            since += f": the next tick launches it, unless inputs that {few_of(missing, NAMED)} misses come first"
            return [since]
        return [f"{since}: the next tick launches it"]

    def _outages(self, ref: Ref) -> list[str]:
        """A sentence for each outage that holds its launch back."""
        spec = self._queries.datasets.get(asset_of(ref))
        of_location = [] if spec is None else outages(self._engine, spec.location)
        return [outage_in_words(what, aside) for what, aside in of_location if spec and what in needs_of(spec)]

    def _limit(self, reason: Reason, spec: DatasetSpec) -> str:
        limits = self._limits(spec.location)
        out = [launch for launch in self._queries.launches.open() if launch.location == spec.location]
        match reason:
            case Reason.JOB_FULL:
                of_job = [launch for launch in out if launch.job == spec.job]
                runs = few_of([launch.dagster_run_id or f"of launch {launch.launch_id}" for launch in of_job], NAMED)
                if len(of_job) >= (spec.concurrency or 0):
                    return f"{spec.job} may have {spec.concurrency} out at a time, and has them: Dagster run {runs}"
                return f"{spec.job} may have {spec.concurrency} out at a time; more urgent launches of it come first"
            case Reason.LOCATION_FULL:
                are = "launch of location {} is out" if len(out) == 1 else "launches of location {} are out"
                full = len(out) >= limits.open_launches
                then = "its orchestrator waits for one to end" if full else "more urgent launches come first"
                return f"{len(out)} {are.format(spec.location)}, its limit is {limits.open_launches}; {then}"
            case Reason.TICK_FULL:
                return f"one tick starts {limits.launches} launches at most; more urgent launches come first"
            case _:
                looked_at = f"one tick looks at {limits.due_refs} due refs at most, divided among the assets"
                return f"{looked_at}; more urgent refs of {spec.asset} come first"

    def _limits(self, location: str) -> TickLimits:
        """The limits of the location's orchestrator, which are not in the log."""
        return TickLimits() if self._from_log_alone else limits_of(self._engine, location)

    def _orchestrator(self, location: str) -> list[str]:
        """A sentence if the location's orchestrator does not run, as far as the store knows."""
        if self._from_log_alone:
            return []
        absence = absence_of(self._engine, location)
        return [] if absence is None else [absence.sentence]
