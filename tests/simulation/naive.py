"""Rules 4 to 6 for a handful of commands, written down without a database and without hurry.

Every want that is asked for has no end and is as urgent as any other. Nothing is kept that could be counted, and everything
is looked at until nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from databuild_dagster.model import errors
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import FAILING, OPEN_WANTS, TAINTABLE, InstanceState, WantState

_I, _W = InstanceState, WantState
#: The refusal of a command; None if it is taken.
Answer = type[Refused] | None

#: Rule 6.8, and the pause after a dep miss whose refs came meanwhile (rule 6.5).
BACKOFF_SECONDS, MAX_ATTEMPTS = 5.0, 3
#: Rule 6.14.
KEPT_SECONDS = 7 * 24 * 3600.0
NEVER = float("inf")
#: Rule 6.7.
MAX_MISSES = 20


@dataclass(eq=False)
class NaiveRun:
    """A job run, and the refs that it builds together."""

    outputs: tuple[str, ...]
    launch_id: str = ""
    #: It has not begun.
    is_queued: bool = True
    #: The instances that readers have seen since it was buffered.
    seen: list[NaiveRef] = field(default_factory=list)


@dataclass(eq=False)
class NaiveRef:
    """An instance of a ref, or none yet."""

    state: InstanceState | None = None
    #: The job run that built it.
    run: NaiveRun = field(default_factory=lambda: NaiveRun((), is_queued=False))
    retry_at: float = 0.0
    attempts: int = 0
    n_misses: int = 0
    #: The cycle that it failed for.
    cycle: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    was_live: bool = False
    #: The instances that it was made of.
    inputs: list[NaiveRef] = field(default_factory=list)
    taints: set[str] = field(default_factory=set)


@dataclass(eq=False)
class NaiveWant:
    """A want; `is_derivative` where a dep miss made it."""

    refs: tuple[str, ...]
    is_derivative: bool = False
    fail_fast: bool = False
    expires_at: float = NEVER
    was_met: bool = False
    state: WantState = _W.NEW
    #: The wants that it is kept for.
    kept_for: frozenset[NaiveWant] = frozenset()
    is_withdrawn: bool = False
    #: Its end was looked at by rule 6.14.
    is_settled: bool = False

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_WANTS


class Naive:
    """Each command returns its refusal, or None; what is refused changes nothing."""

    def __init__(self, refs: tuple[str, ...]) -> None:
        self.now = 0.0
        #: The canonical instances.
        self.refs = {ref: NaiveRef() for ref in refs}
        #: All instances of each ref, oldest first.
        self.history: dict[str, list[NaiveRef]] = {ref: [] for ref in refs}
        self.wants: list[NaiveWant] = []
        #: Ref to the missing refs of its last dep miss, also when that instance is gone (rule 6.3).
        self.learned: dict[str, set[str]] = {ref: set() for ref in refs}
        #: Ref to the end of its pause (rule 6.13).
        self.pauses: dict[str, float] = {}
        #: The taints that extend downstream (rule 7.3).
        self.extending: set[str] = set()

    # Commands

    def want(self, refs: tuple[str, ...], *, fail_fast: bool = False) -> NaiveWant:
        want = NaiveWant(refs, fail_fast=fail_fast)
        self.wants.append(want)
        self._settle()
        return want

    def cancel(self, want: NaiveWant, *, terminate: bool) -> Answer:
        """Rules 6.10, 6.14: what failed is withdrawn, if wants are kept for it."""
        kept = [other for other in self.wants if other.is_open and want in other.kept_for]
        ending = []
        if want.is_open:
            ending.append(want)
        elif kept and not want.is_withdrawn:
            want.is_withdrawn = True
        else:
            return errors.WantEnded
        for other in kept:
            if all(served.is_withdrawn for served in other.kept_for):
                ending.append(other)
        for other in ending:
            other.state = _W.CANCELED
        self._settle()
        # A ref that a waiting one misses has its derivative want by now.
        needless = [ref for other in ending for ref in other.refs if not self._is_needed(ref)]
        self._stop(needless if terminate else [])
        return None

    def buffer(self, outputs: tuple[str, ...], launch_id: str) -> tuple[str, ...]:
        """The due ones of these outputs, each with a new instance, whose job run waits to begin (rule 6.2)."""
        built = tuple(ref for ref in outputs if ref in self.due())
        run = NaiveRun(built, launch_id)
        for ref in built:
            before = self.refs[ref]
            self.refs[ref] = NaiveRef(_I.BUILDING, run, attempts=before.attempts, n_misses=before.n_misses)
            self.history[ref].append(self.refs[ref])
        self._settle()
        return built

    def begin(self, launch_id: str) -> None:
        for row in self._open_of(launch_id):
            row.run.is_queued = False

    def lose(self, launch_id: str) -> Answer:
        """Rules 6.8, 6.9: queued job runs are lost too, and a loss that is the first attempt is retried at once."""
        for row in self._open_of(launch_id):
            row.attempts += 1
            row.state = _I.UP_FOR_RETRY if row.attempts < MAX_ATTEMPTS else _I.FAILED
            row.retry_at = self.now + BACKOFF_SECONDS * 2 ** (row.attempts - 1) if row.attempts > 1 else 0.0
        self._settle()
        return None

    def succeed(self, ref: str, inputs: list[NaiveRef]) -> Answer:
        """An output of an input under a downstream taint is tainted at once (rule 7.3)."""
        if not self._runs(ref):
            return errors.StaleJobRun
        for row in self._outputs(ref):
            row.was_live, row.inputs = True, inputs
            row.attempts = row.n_misses = 0
            row.taints = {taint for item in inputs for taint in item.taints & self.extending}
            row.state = _I.TAINTED if row.taints else _I.LIVE
        self._settle()
        return None

    def fail(self, ref: str, *, transient: bool) -> Answer:
        """Rule 6.8"""
        if not self._runs(ref):
            return errors.StaleJobRun
        for row in self._outputs(ref):
            row.attempts += 1
            row.state = _I.UP_FOR_RETRY if transient and row.attempts < MAX_ATTEMPTS else _I.FAILED
            row.retry_at = self.now + BACKOFF_SECONDS * 2 ** (row.attempts - 1)
        self._settle()
        return None

    def miss(self, ref: str, impacted: dict[str, tuple[str, ...]]) -> Answer:
        """Rules 6.3, 6.5, 6.7"""
        if not self._runs(ref):
            return errors.StaleJobRun
        for row in self._outputs(ref):
            row.state, row.retry_at = _I.UP_FOR_RETRY, 0.0
        failing = []
        for output, missing in impacted.items():
            row = self.refs[output]
            row.missing, self.learned[output] = missing, set(missing)
            row.n_misses += 1
            states = {self.refs[item].state for item in missing}
            if row.n_misses > MAX_MISSES:
                row.state = _I.FAILED
            elif states == {_I.LIVE}:
                row.retry_at = self.now + BACKOFF_SECONDS
            else:
                row.state = _I.UPSTREAM_BUILDING
                failing += [row] if states & FAILING else []
        cycles = {item: cycle for item in self.refs if (cycle := self._shortest_cycle(item))}
        for item, cycle in cycles.items():
            self.refs[item].state, self.refs[item].cycle = _I.FAILED, cycle
        for row in failing:
            if row.state is _I.UPSTREAM_BUILDING:
                row.state = _I.UPSTREAM_FAILED
        self._settle()
        return None

    def cancel_job_run(self, ref: str, *, keep_wants: bool, fail_missed: bool) -> Answer:
        """Rule 6.10, output by output."""
        if self.refs[ref].state is not _I.BUILDING:
            return errors.JobRunEnded
        failed = {output for output in self.refs[ref].run.outputs if fail_missed and self._is_missed(output)}
        for output in self.refs[ref].run.outputs:
            for want in self.wants:
                if want.is_open and output in want.refs and output not in failed and not keep_wants:
                    want.state = _W.CANCELED
        for output in self.refs[ref].run.outputs:
            self.refs[output].state = _I.FAILED if output in failed else _I.UP_FOR_RETRY
            self.refs[output].retry_at = 0.0
        self._settle()
        return None

    def taint(self, refs: tuple[str, ...], taint: str, *, downstream: bool) -> Answer:
        """Rules 7.1, 7.3"""
        for state in (self.refs[ref].state for ref in refs):
            if state in (_I.BUILDING, _I.UPSTREAM_BUILDING):
                return errors.BeingBuilt
            if state not in TAINTABLE:
                return errors.NothingToTaint
        covered = [self.refs[ref] for ref in refs]
        for row in covered:
            row.taints.add(taint)
            if downstream:
                self.extending.add(taint)
                covered += [other for other in self._instances() if row in other.inputs and other not in covered]
        for ref, row in self.refs.items():
            if ref in refs or (row in covered and row.state is _I.LIVE):
                if row.state is _I.LIVE:
                    self._reopen(ref)
                row.state = _I.TAINTED
                row.attempts = row.n_misses = 0
        self._settle()
        return None

    def untaint(self, taint: str) -> Answer:
        """Rule 7.1: as long as the taint acts."""
        carrying = [row for row in self._instances() if taint in row.taints]
        acts = any(row.was_live and row in self.refs.values() for row in carrying)
        if taint in self.extending:
            acts = acts or any(row.was_live and row in run.seen for run in self._open_runs() for row in carrying)
        if not acts:
            return errors.NothingToUntaint
        for row in carrying:
            row.taints.remove(taint)
            if row in self.refs.values() and row.was_live and not row.taints and row.state is _I.TAINTED:
                row.state = _I.LIVE
        self._settle()
        return None

    def revert(self, ref: str, at: int, *, force: bool) -> Answer:
        """Rule 7.4, to one of the instances of the ref."""
        instance = self.history[ref][at]
        if instance is self.refs[ref]:
            return errors.AlreadyCanonical
        if self.is_leased(ref):
            return errors.BeingBuilt
        if not instance.was_live:
            return errors.CannotRevert
        if not force and any(item.taints & self.extending for item in instance.inputs):
            return errors.CannotRevert
        self.refs[ref] = instance
        instance.state = _I.LIVE
        instance.attempts = instance.n_misses = 0
        instance.taints.clear()
        self._settle()
        return None

    def pause(self, refs: tuple[str, ...], seconds: float | None, *, terminate: bool) -> Answer:
        """Rule 6.13"""
        if seconds is not None and seconds <= 0:
            return errors.InvalidRequest
        if any(self.is_paused(ref) for ref in refs):
            return errors.AlreadyPaused
        self.pauses.update(dict.fromkeys(refs, float("inf") if seconds is None else self.now + seconds))
        self._stop([ref for ref in refs if terminate or self.refs[ref].run.is_queued])
        return None

    def resume(self, refs: tuple[str, ...]) -> Answer:
        if not all(self.is_paused(ref) for ref in refs):
            return errors.NotPaused
        for ref in refs:
            del self.pauses[ref]
        return None

    def is_paused(self, ref: str) -> bool:
        return self.now < self.pauses.get(ref, 0.0)

    def is_leased(self, ref: str) -> bool:
        return self.refs[ref].state in (_I.BUILDING, _I.UPSTREAM_BUILDING)

    def is_coming(self, ref: str) -> bool:
        """Whether a ref is being built or, perhaps later, about to be."""
        is_open = self.refs[ref].state in (None, _I.TAINTED, _I.UP_FOR_RETRY)
        return self.is_leased(ref) or (is_open and self._is_wanted(ref))

    def due(self) -> set[str]:
        """Rules 4.5, 5.4, 6.13"""
        return {
            ref
            for ref, row in self.refs.items()
            if (row.state in (None, _I.TAINTED) or (row.state is _I.UP_FOR_RETRY and row.retry_at <= self.now))
            and self._is_wanted(ref)
            and not self.is_paused(ref)
        }

    # What follows

    def _instances(self) -> list[NaiveRef]:
        return [row for rows in self.history.values() for row in rows]

    def _open_runs(self) -> list[NaiveRun]:
        """The job runs that have not ended."""
        return [row.run for row in self.refs.values() if row.state is _I.BUILDING]

    def _runs(self, ref: str) -> bool:
        return self.refs[ref].state is _I.BUILDING and not self.refs[ref].run.is_queued

    def _open_of(self, launch_id: str) -> list[NaiveRef]:
        """The instances that the open job runs of a launch build."""
        return [row for row in self.refs.values() if row.state is _I.BUILDING and row.run.launch_id == launch_id]

    def _outputs(self, ref: str) -> list[NaiveRef]:
        """The instances that the job run of a ref builds."""
        return [self.refs[output] for output in self.refs[ref].run.outputs]

    def _is_needed(self, ref: str) -> bool:
        """Whether an output of the job run of a ref is wanted (rule 6.10)."""
        return any(self._is_wanted(output) for output in self.refs[ref].run.outputs)

    def _stop(self, refs: list[str]) -> None:
        """The job runs of these refs are canceled, if they have not ended."""
        for ref in refs:
            if self.refs[ref].state is _I.BUILDING:
                for row in self._outputs(ref):
                    row.state, row.retry_at = _I.UP_FOR_RETRY, 0.0
        self._settle()

    def _is_missed(self, ref: str) -> bool:
        """Whether a waiting ref with an open want misses it."""
        return any(
            row.state is _I.UPSTREAM_BUILDING and ref in row.missing and self._is_wanted(other)
            for other, row in self.refs.items()
        )

    def _shortest_cycle(self, ref: str) -> tuple[str, ...]:
        """Rule 6.7: the smallest of the shortest cycles of waiting refs on which a ref lies."""
        found: list[tuple[str, ...]] = []
        paths = [(ref,)]
        for path in paths:
            row = self.refs[path[-1]]
            for item in row.missing if row.state is _I.UPSTREAM_BUILDING else ():
                if item == ref:
                    at = path.index(min(path))
                    found.append((*path[at:], *path[:at]))
                elif item not in path:
                    paths.append((*path, item))
        return min(found, key=lambda cycle: (len(cycle), cycle), default=())

    def _is_wanted(self, ref: str) -> bool:
        return any(want.is_open and ref in want.refs for want in self.wants)

    def _reopen(self, ref: str) -> None:
        for want in self.wants:
            if want.state is _W.SUCCESSFUL and ref in want.refs and not want.kept_for:
                want.state, want.was_met = _W.IDLE, True

    def _settle(self) -> None:
        while any([self._move_instances(), self._move_wants(), self._release(), self._keep(), self._derive()]):
            pass
        for run in self._open_runs():
            run.seen += [row for row in self.refs.values() if row not in run.seen]

    def _move_instances(self) -> bool:
        """Rule 6.6, until nothing moves."""
        moved = False
        for row in self.refs.values():
            states = {self.refs[item].state for item in row.missing}
            before = row.state
            if before is _I.UPSTREAM_BUILDING and states & FAILING:
                row.state = _I.UPSTREAM_FAILED
            elif (before is _I.UPSTREAM_BUILDING and states == {_I.LIVE}) or (
                before is _I.UPSTREAM_FAILED and not states & FAILING
            ):
                row.state, row.retry_at = _I.UP_FOR_RETRY, 0.0
            moved = moved or row.state is not before
        if moved:
            self._move_instances()
        return moved

    def _move_wants(self) -> bool:
        """Rule 5.2"""
        before = [want.state for want in self.wants]
        for want in self.wants:
            if want.is_open:
                want.state = self._state_of([self.refs[ref].state for ref in want.refs])
        return before != [want.state for want in self.wants]

    def _state_of(self, states: list[InstanceState | None]) -> WantState:
        if all(state is _I.LIVE for state in states):
            return _W.SUCCESSFUL
        for state, forced in (
            (_I.FAILED, _W.FAILED),
            (_I.UPSTREAM_FAILED, _W.UPSTREAM_FAILED),
            (_I.BUILDING, _W.BUILDING),
            (_I.UPSTREAM_BUILDING, _W.UPSTREAM_BUILDING),
        ):
            if state in states:
                return forced
        return _W.IDLE

    def _release(self) -> bool:
        """Rules 6.4, 6.10: a lease without an open want ends, unless its job run runs or builds another wanted ref."""
        waiting = [
            ref for ref, row in self.refs.items() if row.state is _I.UPSTREAM_BUILDING and not self._is_wanted(ref)
        ]
        queued = [
            ref
            for ref, row in self.refs.items()
            if row.state is _I.BUILDING and row.run.is_queued and not self._is_needed(ref)
        ]
        for ref in waiting + queued:
            self.refs[ref].state, self.refs[ref].retry_at = _I.UP_FOR_RETRY, 0.0
        return bool(waiting or queued)

    def _keep(self) -> bool:
        """Rule 6.14: for wants that have just ended UpstreamFailed."""
        ended = [want for want in self.wants if want.state is _W.UPSTREAM_FAILED and not want.is_settled]
        lasting = [want for want in ended if not want.fail_fast]
        needs: dict[str, list[tuple[float, set[NaiveWant]]]] = {}
        for ref, row in self.refs.items():
            by_it = [want for want in lasting if ref in want.refs]
            if row.state is _I.UPSTREAM_FAILED and by_it:
                until = min(max(want.expires_at for want in by_it), self.now + KEPT_SECONDS)
                for item in row.missing:
                    if self.refs[item].state is not _I.LIVE and self.refs[item].state not in FAILING:
                        needs.setdefault(item, []).append((until, self._requested_by(ref, lasting)))
        for item, needed in needs.items():
            until, made_for = max(until for until, _ in needed), frozenset(set().union(*(who for _, who in needed)))
            fitting = [
                want
                for want in self.wants
                if want.is_open and want.is_derivative and want.refs == (item,) and not want.was_met
                if not want.kept_for and not want.fail_fast and want.expires_at == until
            ]
            if fitting:
                fitting[0].kept_for = made_for
            else:
                self.wants.append(NaiveWant((item,), is_derivative=True, expires_at=until, kept_for=made_for))
        for want in ended:
            want.is_settled = True
        return bool(ended)

    def _requested_by(self, ref: str, lasting: list[NaiveWant]) -> set[NaiveWant]:
        """The wants that a request asked for, among those that end now, for a ref and for all that fails with it."""
        found, downstream = set(), [ref]
        for item in downstream:
            downstream += [
                other
                for other, row in self.refs.items()
                if row.state is _I.UPSTREAM_FAILED and item in row.missing and other not in downstream
                if any(other in want.refs for want in lasting)
            ]
            for want in lasting:
                if item in want.refs:
                    found |= want.kept_for or (set() if want.is_derivative else {want})
        return found or {want for want in lasting if ref in want.refs}

    def _derive(self) -> bool:
        """Rule 6.4: the standing rule."""
        needed: dict[str, list[NaiveWant]] = {}
        for ref, row in self.refs.items():
            if row.state is _I.UPSTREAM_BUILDING:
                for item in row.missing:
                    if self.refs[item].state is not _I.LIVE:
                        needed.setdefault(item, []).extend(w for w in self.wants if w.is_open and ref in w.refs)
        needless = [
            want
            for want in self.wants
            if want.is_open and want.is_derivative and not want.was_met and not want.kept_for
            if not needed.get(want.refs[0])
        ]
        for want in needless:
            want.state = _W.CANCELED
        new = []
        for item, by in sorted(needed.items()):
            until, fail_fast = max((w.expires_at for w in by), default=0.0), all(w.fail_fast for w in by)
            if by and not any(
                want.is_open and want.refs == (item,) and want.expires_at >= until and want.fail_fast <= fail_fast
                for want in self.wants
            ):
                new.append(NaiveWant((item,), is_derivative=True, fail_fast=fail_fast, expires_at=until))
        self.wants += new
        return bool(needless or new)
