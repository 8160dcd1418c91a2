"""A failing scenario becomes a smaller one that fails in the same way, within a bounded effort.

Deeds, orchestrators, kinds of trouble and single incidents are left out, many at once first; what still fails is kept.
Processes have random numbers of their own, so that what is left goes much as it went before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from .processes import Trouble
from .scenario import OPERATORS, Mishaps, Scenario
from .simulate import Failure, simulate
from .stepped import Deck

T = TypeVar("T")

#: Simulations that one shrinking may cost: some seconds.
MOST_RUNS = 150


def shrunk(failure: Failure[Scenario], deck: Deck, most_runs: int = MOST_RUNS) -> Failure[Scenario]:
    """The smallest failure of the same kind that was found."""
    return smallest(failure, _smaller, lambda scenario: simulate(scenario, deck).failure, most_runs)


def smallest(
    failure: Failure[T],
    smaller_than: Callable[[Failure[T]], Iterable[T]],
    failure_of: Callable[[T], Failure[T] | None],
    most_runs: int,
) -> Failure[T]:
    """The smallest failure of the same kind that `most_runs` simulations find; `smaller_than` has the most promising first."""
    left, goes_on = most_runs, True
    while goes_on:
        goes_on = False
        for smaller in smaller_than(failure):
            if (left := left - 1) < 0:
                return failure
            found = failure_of(smaller)
            if found is not None and found.kind == failure.kind:
                failure, goes_on = found, True
                break
    return failure


def _smaller(failure: Failure[Scenario]) -> Iterator[Scenario]:
    """Scenarios with something left out, the most promising first."""
    scenario = failure.scenario
    quiet = Trouble(), Mishaps()
    if (scenario.trouble, scenario.mishaps) != quiet:
        yield replace(scenario, trouble=quiet[0], mishaps=quiet[1])
    builds = tuple(deed for deed in scenario.deeds if deed.what not in OPERATORS)
    if len(builds) < len(scenario.deeds):
        yield replace(scenario, deeds=builds)
    for deeds in without_some(scenario.deeds):
        yield replace(scenario, deeds=deeds)
    for deliveries in without_some(scenario.deliveries):
        yield replace(scenario, deliveries=deliveries)
    for outages in without_some(scenario.outages):
        yield replace(scenario, outages=outages)
    if scenario.n_watchers > 1:
        yield replace(scenario, n_watchers=scenario.n_watchers - 1)
    if scenario.n_orchestrators > 1:
        yield replace(scenario, n_orchestrators=scenario.n_orchestrators - 1)
    for what in fields(Trouble):
        if getattr(scenario.trouble, what.name):
            yield replace(scenario, trouble=replace(scenario.trouble, **{what.name: 0.0}))
    for what in fields(Mishaps):
        if getattr(scenario.mishaps, what.name):
            yield replace(scenario, mishaps=replace(scenario.mishaps, **{what.name: 0.0}))
    for at, deed in enumerate(scenario.deeds):
        if deed.most > 1:
            yield replace(scenario, deeds=(*scenario.deeds[:at], replace(deed, most=1), *scenario.deeds[at + 1 :]))
    for kept in without_some(failure.incidents):
        yield replace(scenario, muted=scenario.muted | (set(failure.incidents) - set(kept)))
    for name in sorted(scenario.hidden):
        if scenario.hidden[name]:
            yield replace(scenario, hidden={**scenario.hidden, name: ()})


def without_some(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """All but a half, all but a quarter, and so on down to all but one."""
    size = (len(items) + 1) // 2
    while size:
        for start in range(0, len(items), size):
            yield (*items[:start], *items[start + size :])
        size //= 2


def described(failure: Failure[Scenario], before: Failure[Scenario] | None = None) -> str:
    """The story of a failure, to be read by a person."""
    scenario = failure.scenario
    lines = [f"Seed {scenario.seed} fails: {failure.detail}", ""]
    story = "\n".join(failure.story)
    for spec in scenario.datasets:
        if spec.asset not in story:
            continue
        needs = [need.asset for need in spec.inputs]
        hidden = [asset for asset in scenario.hidden.get(spec.asset, ()) if asset not in needs]
        parts = [
            f"{spec.asset} ({spec.kind.value}" + (f", built by job {spec.job}" if spec.job != spec.asset else "") + ")"
        ]
        parts += [f"needs {', '.join(needs)}"] if needs else []
        parts += [f"finds out that it needs {', '.join(hidden)}"] if hidden else []
        lines.append("  " + "; ".join(parts))
    lines += ["", *(f"  {line}" for line in failure.story), ""]
    if before is not None:
        lines.append(f"  {len(before.story)} lines of story became {len(failure.story)}.")
    lines.append(f"  Once more: make simulate FIRST={scenario.seed} SEEDS=1")
    return "\n".join(lines)
