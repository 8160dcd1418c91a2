"""Rules 4 to 6 for a handful of commands, written down without a database and without hurry.

Refs are names that may only miss names before their own, so nothing waits for itself; every want that is asked for has no
end and is as urgent as any other. Nothing is kept that could be counted, and everything is looked at until nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from databuild_dagster.model.states import FAILING, OPEN_WANTS, TAINTABLE, InstanceState, WantState

_I, _W = InstanceState, WantState

#: Rule 6.8, and the pause after a dep miss whose refs came meanwhile (rule 6.5).
BACKOFF_SECONDS, MAX_ATTEMPTS = 5.0, 3
#: Rule 6.14.
KEPT_SECONDS = 7 * 24 * 3600.0
NEVER = float("inf")


@dataclass
class NaiveRef:
    """The canonical instance of a ref, or none."""

    state: InstanceState | None = None
    retry_at: float = 0.0
    attempts: int = 0
    missing: tuple[str, ...] = ()
    was_live: bool = False
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
    """Each command returns whether it is taken; what is refused changes nothing."""

    def __init__(self, refs: tuple[str, ...]) -> None:
        self.now = 0.0
        self.refs = {ref: NaiveRef() for ref in refs}
        self.wants: list[NaiveWant] = []
        #: Ref to the end of its pause (rule 6.13).
        self.pauses: dict[str, float] = {}

    # Commands

    def want(self, refs: tuple[str, ...], *, fail_fast: bool = False) -> NaiveWant:
        want = NaiveWant(refs, fail_fast=fail_fast)
        self.wants.append(want)
        self._settle()
        return want

    def cancel(self, want: NaiveWant) -> bool:
        """Rule 6.14: what failed is withdrawn, if wants are kept for it."""
        kept = [other for other in self.wants if other.is_open and want in other.kept_for]
        if want.is_open:
            want.state = _W.CANCELED
        elif kept and not want.is_withdrawn:
            want.is_withdrawn = True
        else:
            return False
        for other in kept:
            if all(served.is_withdrawn for served in other.kept_for):
                other.state = _W.CANCELED
        self._settle()
        return True

    def start(self, ref: str) -> bool:
        """A new instance, running at once."""
        if ref not in self.due():
            return False
        before = self.refs[ref]
        self.refs[ref] = NaiveRef(_I.BUILDING, attempts=before.attempts)
        self._settle()
        return True

    def succeed(self, ref: str) -> bool:
        return self._end(ref, _I.LIVE)

    def fail(self, ref: str, *, transient: bool) -> bool:
        row = self.refs[ref]
        if row.state is not _I.BUILDING:
            return False
        row.attempts += 1
        if transient and row.attempts < MAX_ATTEMPTS:
            row.retry_at = self.now + BACKOFF_SECONDS * 2 ** (row.attempts - 1)
            return self._end(ref, _I.UP_FOR_RETRY)
        return self._end(ref, _I.FAILED)

    def miss(self, ref: str, missing: tuple[str, ...]) -> bool:
        row = self.refs[ref]
        if row.state is not _I.BUILDING:
            return False
        states = {self.refs[item].state for item in missing}
        row.missing = missing
        if states & FAILING:
            return self._end(ref, _I.UPSTREAM_FAILED)
        if states == {_I.LIVE}:
            row.retry_at = self.now + BACKOFF_SECONDS
            return self._end(ref, _I.UP_FOR_RETRY)
        return self._end(ref, _I.UPSTREAM_BUILDING)

    def taint(self, refs: tuple[str, ...], taint: str) -> bool:
        if any(self.refs[ref].state not in TAINTABLE for ref in refs):
            return False
        for ref in refs:
            row = self.refs[ref]
            if row.state is _I.LIVE:
                self._reopen(ref)
            row.state = _I.TAINTED
            row.attempts = 0
            row.taints.add(taint)
        self._settle()
        return True

    def untaint(self, taint: str) -> bool:
        carrying = [row for row in self.refs.values() if taint in row.taints]
        if not any(row.was_live for row in carrying):
            return False
        for row in carrying:
            row.taints.remove(taint)
            if row.was_live and not row.taints and row.state is _I.TAINTED:
                row.state = _I.LIVE
        self._settle()
        return True

    def pause(self, refs: tuple[str, ...], seconds: float | None, *, terminate: bool) -> bool:
        """Rule 6.13; each job run here runs, so none ends without `terminate`."""
        if (seconds is not None and seconds <= 0) or any(self.is_paused(ref) for ref in refs):
            return False
        self.pauses.update(dict.fromkeys(refs, float("inf") if seconds is None else self.now + seconds))
        for row in (self.refs[ref] for ref in refs if terminate):
            if row.state is _I.BUILDING:
                row.state, row.retry_at = _I.UP_FOR_RETRY, 0.0
        self._settle()
        return True

    def resume(self, refs: tuple[str, ...]) -> bool:
        if not all(self.is_paused(ref) for ref in refs):
            return False
        for ref in refs:
            del self.pauses[ref]
        return True

    def is_paused(self, ref: str) -> bool:
        return self.now < self.pauses.get(ref, 0.0)

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

    def _end(self, ref: str, state: InstanceState) -> bool:
        row = self.refs[ref]
        if row.state is not _I.BUILDING:
            return False
        row.state = state
        if state is _I.LIVE:
            row.was_live, row.attempts = True, 0
        self._settle()
        return True

    def _is_wanted(self, ref: str) -> bool:
        return any(want.is_open and ref in want.refs for want in self.wants)

    def _reopen(self, ref: str) -> None:
        for want in self.wants:
            if want.state is _W.SUCCESSFUL and ref in want.refs and not want.kept_for:
                want.state, want.was_met = _W.IDLE, True

    def _settle(self) -> None:
        while any([self._move_instances(), self._move_wants(), self._release(), self._keep(), self._derive()]):
            pass

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
        """Rule 6.4: a lease without an open want ends."""
        unwanted = [
            row for ref, row in self.refs.items() if row.state is _I.UPSTREAM_BUILDING and not self._is_wanted(ref)
        ]
        for row in unwanted:
            row.state, row.retry_at = _I.UP_FOR_RETRY, 0.0
        return bool(unwanted)

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
        """The wants that somebody asked for, among those that end now, for a ref and for all that fails with it."""
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
