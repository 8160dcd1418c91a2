"""`make simulate`: as many seeds as one has time for, on all processors; a failing one is made small and printed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from . import two_stores
from .scenario import Scenario
from .shrinking import described, shrunk
from .simulate import Failure, Result, simulate_seeds
from .stepped import Deck

#: Seeds that one process takes at a time.
SEEDS_PER_TURN = 20
#: Failures that are printed in full; the others are only named.
MOST_SHOWN = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (SEEDS=…)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (FIRST=…)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (JOBS=…)")
    parser.add_argument("--two-stores", action="store_true", help="over a base and its environments")
    arguments = parser.parse_args()
    seeds_of: Callable[[Iterable[int]], list[Result[Any]]] = simulate_seeds
    if arguments.two_stores:
        seeds_of = two_stores.simulate_seeds
    if arguments.seeds < 1 or arguments.jobs < 1:
        parser.error("SEEDS and JOBS are 1 or more")
    began = time.monotonic()
    results: list[Result[Any]] = []
    last = arguments.first + arguments.seeds
    turns = [range(start, min(start + SEEDS_PER_TURN, last)) for start in range(arguments.first, last, SEEDS_PER_TURN)]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for done in pool.map(seeds_of, turns):
            results += done
            for failure in (result.failure for result in done):
                if failure is not None:
                    print(f"Seed {failure.scenario.seed} fails ({failure.kind}).", file=sys.stderr)
            _progress(results, arguments.seeds, began)
    _report(results, time.monotonic() - began)
    failures = [result.failure for result in results if result.failure is not None]
    if arguments.two_stores:
        for failure in failures[:MOST_SHOWN]:
            print(f"\n{two_stores.described(two_stores.shrunk(failure))}")
    else:
        _tell(failures)
    return 1 if failures else 0


def _progress(results: list[Result[Any]], n_seeds: int, began: float) -> None:
    if sys.stderr.isatty():
        rate = len(results) / (time.monotonic() - began)
        print(f"\r{len(results):,} of {n_seeds:,} seeds, {rate:.0f} a second ", end="", file=sys.stderr, flush=True)


def _report(results: list[Result[Any]], seconds: float) -> None:
    n_failed = sum(result.failure is not None for result in results)
    print(
        f"{len(results):,} seeds in {seconds:.1f} s, {len(results) / seconds:.1f} a second: "
        f"{sum(result.n_events for result in results):,} events, {sum(result.n_steps for result in results):,} steps, "
        f"{sum(result.n_incidents for result in results):,} incidents; {n_failed} failed"
    )


def _tell(failures: list[Failure[Scenario]]) -> None:
    deck = Deck()
    for failure in failures[:MOST_SHOWN]:
        print(f"\n{described(shrunk(failure, deck), failure)}")
    if others := [str(failure.scenario.seed) for failure in failures[MOST_SHOWN:]]:
        print(f"\nSeeds that failed too: {', '.join(others)}")
    deck.close()


if __name__ == "__main__":
    sys.exit(main())
