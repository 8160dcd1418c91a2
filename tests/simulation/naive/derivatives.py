"""Derivative wants: of missing refs (rule 6.4), and those that are kept when another input failed (rule 6.14)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from databuild_dagster.model.states import InstanceState, WantState

from .state import FAILING, Naive, NaiveWant, urgency_of

_I, _W = InstanceState, WantState
#: Rule 6.14.
KEPT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True)
class _Asked:
    """The urgency and the end that a derivative want takes over (rule 5.8)."""

    priority: int
    deadline: float
    expires_at: float

    @classmethod
    def by(cls, wants: list[NaiveWant]) -> _Asked:
        priority, deadline = urgency_of(wants)
        return cls(-priority, deadline, max(want.expires_at for want in wants))

    def is_met_by(self, want: NaiveWant) -> bool:
        return want.priority >= self.priority and want.deadline <= self.deadline and want.expires_at >= self.expires_at


def keep(naive: Naive) -> bool:
    """Rule 6.14: for wants that have just ended UpstreamFailed."""
    ended = [want for want in naive.wants if want.state is _W.UPSTREAM_FAILED and not want.is_settled]
    lasting = [want for want in ended if not want.fail_fast and naive.now < want.expires_at]
    #: Missing ref to the wants that end so, and to those that a request asked for.
    ending: dict[str, list[NaiveWant]] = {}
    made_for: dict[str, set[NaiveWant]] = {}
    for ref, row in naive.refs.items():
        by_it = [want for want in lasting if ref in want.refs]
        if row.state is _I.UPSTREAM_FAILED and by_it:
            for item in row.missing:
                if naive.refs[item].state is not _I.LIVE and naive.refs[item].state not in FAILING:
                    ending.setdefault(item, []).extend(by_it)
                    made_for.setdefault(item, set()).update(_requested_by(naive, ref, lasting))
    for item, by in ending.items():
        asked = _Asked.by(by)
        asked = replace(asked, expires_at=min(asked.expires_at, naive.now + KEPT_SECONDS))
        fitting = [
            want
            for want in naive.wants
            if want.is_open and want.is_derivative and want.refs == (item,) and not want.was_met
            if not want.kept_for and not want.fail_fast and _Asked.by([want]) == asked
        ]
        kept = fitting[0] if fitting else _recorded(naive, item, asked)
        kept.kept_for = frozenset(made_for[item])
    for want in ended:
        want.is_settled = True
    return bool(ended)


def _recorded(naive: Naive, ref: str, asked: _Asked, *, fail_fast: bool = False) -> NaiveWant:
    want = NaiveWant(
        (ref,),
        is_derivative=True,
        fail_fast=fail_fast,
        priority=asked.priority,
        created_at=naive.now,
        expires_at=asked.expires_at,
        deadline=asked.deadline,
    )
    naive.wants.append(want)
    return want


def _requested_by(naive: Naive, ref: str, lasting: list[NaiveWant]) -> set[NaiveWant]:
    """The wants that a request asked for, among those that end now, for a ref and for all that fails with it."""
    found, downstream = set(), [ref]
    for item in downstream:
        downstream += [
            other
            for other, row in naive.refs.items()
            if row.state is _I.UPSTREAM_FAILED and item in row.missing and other not in downstream
            if any(other in want.refs for want in lasting)
        ]
        for want in lasting:
            if item in want.refs:
                found |= want.kept_for or (set() if want.is_derivative else {want})
    return found or {want for want in lasting if ref in want.refs}


def derive(naive: Naive) -> bool:
    """Rule 6.4: the standing rule."""
    needless = [
        want
        for want in naive.wants
        if want.is_open and want.is_derivative and not want.was_met and not want.kept_for
        if naive.refs[want.refs[0]].state is _I.LIVE or not naive.is_missed(want.refs[0])
    ]
    for want in needless:
        want.state = _W.CANCELED
    #: Missing ref to the open wants of the refs that wait for it and are wanted within a TTL.
    needed: dict[str, list[NaiveWant]] = {}
    for ref, row in naive.refs.items():
        if row.state is _I.UPSTREAM_BUILDING and naive.is_wanted_now(ref):
            for item in row.missing:
                if naive.refs[item].state is not _I.LIVE:
                    needed.setdefault(item, []).extend(naive.open_wants(ref))
    new = []
    for item, wants in sorted(needed.items()):
        asked, fail_fast = _Asked.by(wants), all(want.fail_fast for want in wants)
        own = [want for want in naive.open_wants(item) if want.refs == (item,)]
        if not any(asked.is_met_by(want) and want.fail_fast <= fail_fast for want in own):
            new.append(_recorded(naive, item, asked, fail_fast=fail_fast))
    return bool(needless or new)
