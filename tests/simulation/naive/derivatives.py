"""Derivative wants: of missing refs (rule 6.4), and those that are kept when another input failed (rule 6.14)."""

from __future__ import annotations

from databuild_dagster.model.states import InstanceState, WantState

from .state import FAILING, Naive, NaiveWant

_I, _W = InstanceState, WantState
#: Rule 6.14.
KEPT_SECONDS = 7 * 24 * 3600.0


def keep(naive: Naive) -> bool:
    """Rule 6.14: for wants that have just ended UpstreamFailed."""
    ended = [want for want in naive.wants if want.state is _W.UPSTREAM_FAILED and not want.is_settled]
    lasting = [want for want in ended if not want.fail_fast]
    needs: dict[str, list[tuple[float, set[NaiveWant]]]] = {}
    for ref, row in naive.refs.items():
        by_it = [want for want in lasting if ref in want.refs]
        if row.state is _I.UPSTREAM_FAILED and by_it:
            until = min(max(want.expires_at for want in by_it), naive.now + KEPT_SECONDS)
            for item in row.missing:
                if naive.refs[item].state is not _I.LIVE and naive.refs[item].state not in FAILING:
                    needs.setdefault(item, []).append((until, _requested_by(naive, ref, lasting)))
    for item, needed in needs.items():
        until, made_for = max(until for until, _ in needed), frozenset(set().union(*(who for _, who in needed)))
        fitting = [
            want
            for want in naive.wants
            if want.is_open and want.is_derivative and want.refs == (item,) and not want.was_met
            if not want.kept_for and not want.fail_fast and want.expires_at == until
        ]
        if fitting:
            fitting[0].kept_for = made_for
        else:
            naive.wants.append(NaiveWant((item,), is_derivative=True, expires_at=until, kept_for=made_for))
    for want in ended:
        want.is_settled = True
    return bool(ended)


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
    needed: dict[str, list[NaiveWant]] = {}
    for ref, row in naive.refs.items():
        if row.state is _I.UPSTREAM_BUILDING:
            for item in row.missing:
                if naive.refs[item].state is not _I.LIVE:
                    needed.setdefault(item, []).extend(w for w in naive.wants if w.is_open and ref in w.refs)
    needless = [
        want
        for want in naive.wants
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
            for want in naive.wants
        ):
            new.append(NaiveWant((item,), is_derivative=True, fail_fast=fail_fast, expires_at=until))
    naive.wants += new
    return bool(needless or new)
