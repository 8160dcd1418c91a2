"""Rules 4 to 6 for a handful of commands, written down without a database and without hurry.

Refs are names that may only miss names before their own, so nothing waits for itself; every want lives for ever and is
as urgent as any other. Nothing is kept that could be counted, and everything is looked at until nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from databuild_dagster.model.states import FAILING, OPEN_WANTS, TAINTABLE, InstanceState, WantState

_I, _W = InstanceState, WantState

#: Rule 6.8, and the pause after a dep miss whose refs came meanwhile (rule 6.5).
BACKOFF_SECONDS, MAX_ATTEMPTS = 5.0, 3


@dataclass
class NaiveRef:
    """The canonical instance of a ref, or none."""

    state: InstanceState | None = None
    retry_at: float = 0.0
    attempts: int = 0
    missing: tuple[str, ...] = ()
    was_live: bool = False
    taints: set[str] = field(default_factory=set)


@dataclass
class NaiveWant:
    """A want; `is_derivative` where a dep miss made it."""

    refs: tuple[str, ...]
    is_derivative: bool = False
    was_met: bool = False
    state: WantState = _W.NEW

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

    def want(self, refs: tuple[str, ...]) -> NaiveWant:
        want = NaiveWant(refs)
        self.wants.append(want)
        self._settle()
        return want

    def cancel(self, want: NaiveWant) -> bool:
        if not want.is_open:
            return False
        want.state = _W.CANCELED
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
            if want.state is _W.SUCCESSFUL and ref in want.refs:
                want.state, want.was_met = _W.IDLE, True

    def _settle(self) -> None:
        while any([self._move_instances(), self._move_wants(), self._release(), self._derive()]):
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

    def _derive(self) -> bool:
        """Rule 6.4: the standing rule."""
        needed = {
            item
            for ref, row in self.refs.items()
            if row.state is _I.UPSTREAM_BUILDING and self._is_wanted(ref)
            for item in row.missing
            if self.refs[item].state is not _I.LIVE
        }
        alone = {want.refs[0] for want in self.wants if want.is_open and len(want.refs) == 1}
        needless = [
            want
            for want in self.wants
            if want.is_open and want.is_derivative and not want.was_met and want.refs[0] not in needed
        ]
        for want in needless:
            want.state = _W.CANCELED
        self.wants += [NaiveWant((ref,), is_derivative=True) for ref in sorted(needed - alone)]
        return bool(needless or needed - alone)
