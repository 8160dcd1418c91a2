"""The verdict on one row of the table, tried in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.simulation.mutations import named, search

from .guards import Guard
from .mutant import BadGuard, found_by, not_green


@dataclass(frozen=True)
class Verdict:
    """The verdict on one row."""

    #: None if nothing noticed.
    found_by: str | None
    seconds: float
    #: Why the row proves nothing.
    problem: str = ""


def conclude(verdicts: Mapping[str, Verdict], seconds: float) -> int:
    """Print what is wrong, and the result as the last line; the exit code is 0 if a test misses each guard."""
    problems = {name: verdict.problem for name, verdict in verdicts.items() if verdict.problem}
    survived = [name for name, verdict in verdicts.items() if verdict.found_by is None and not verdict.problem]
    for name, problem in problems.items():
        print(f"\n{name}: {problem}")
    for name in survived:
        print(f"survived: {name}")
    result = "FAILED" if problems or survived else "passed"
    out_of_date = f", {len(problems)} out of date" if problems else ""
    print(f"\n{result}: {len(verdicts)} guards in {seconds:.0f} s; {len(survived)} survived{out_of_date}.")
    return 2 if problems else 1 if survived else 0


def try_guard(guard: Guard) -> Verdict:
    return _judged(lambda: found_by(guard))


def try_simulated(name: str) -> Verdict:
    """By its name, since patches cannot be sent to another process."""

    def seed() -> str | None:
        found = search(named(name))
        if found is None:
            return None
        if found.with_guard is not None or found.failure.kind not in named(name).found_as:
            raise BadGuard(f"Seed {found.seed} fails for another reason: {found.failure.detail}")
        slowly = f" ({found.n_tried} seeds tried: set seed={found.seed})" if found.n_tried > 1 else ""
        return f"simulation, seed {found.seed}: {found.failure.kind}{slowly}"

    return _judged(seed)


def try_green(guards: list[Guard]) -> Verdict:
    return _judged(lambda: "\n".join(not_green(guards)) or None)


def _judged(find: Callable[[], str | None]) -> Verdict:
    began = time.monotonic()
    try:
        found, problem = find(), ""
    except Exception as error:
        # A process's edge: the row is reported, and the other rows go on.
        found, problem = None, f"{type(error).__name__}: {error}"
    return Verdict(found, time.monotonic() - began, problem)
