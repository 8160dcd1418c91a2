"""Takes out each guard, one at a time, and prints which test or which seed of the simulation notices.

Exit 1 if no test misses a guard, 2 if a row of the table is out of date or a test fails with every guard in place. The last
line says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

from tests.simulation.mutations import MUTATIONS

from .guards import GUARDS
from .verdict import Verdict, conclude, try_green, try_guard, try_simulated

PROCESSES = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutations", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="guards whose name contains TEXT")
    only = parser.parse_args().only
    guards = [guard for guard in GUARDS if only in guard.name]
    simulated = [mutation for mutation in MUTATIONS if only in mutation.name]
    if not guards and not simulated:
        parser.error(f"no guard has {only!r} in its name")
    began = time.monotonic()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        # Neighbors in the table share tests, so each process gets a run of neighbors.
        ends = [len(guards) * place // PROCESSES for place in range(PROCESSES + 1)]
        greens = [pool.submit(try_green, guards[begin:end]) for begin, end in pairwise(ends)]
        by_simulation = [
            (mutation.name, mutation.section, pool.submit(try_simulated, mutation.name)) for mutation in simulated
        ]
        green = [future.result() for future in greens]
        if wrong := [found for verdict in green if (found := verdict.problem or verdict.found_by)]:
            pool.shutdown(cancel_futures=True)
            print("The tests are not green before anything is taken out.", *wrong, sep="\n", file=sys.stderr)
            return 2
        print(f"With every guard in its place the tests pass ({max(verdict.seconds for verdict in green):.1f} s).\n")
        by_test = [(guard.name, guard.section, pool.submit(try_guard, guard)) for guard in guards]
        verdicts = _print_rows([*by_simulation, *by_test])
    return conclude(verdicts, time.monotonic() - began)


def _print_rows(rows: list[tuple[str, str, Future[Verdict]]]) -> dict[str, Verdict]:
    """The verdict on each row, by its name."""
    width = max(len(name) for name, _, _ in rows)
    print(f"{'guard taken out':{width}} | section       | seconds | found by")
    verdicts: dict[str, Verdict] = {}
    for name, section, future in rows:
        verdict = verdicts[name] = future.result()
        outcome = "ROW IS OUT OF DATE" if verdict.problem else verdict.found_by or "SURVIVED"
        print(f"{name:{width}} | {section:13} | {verdict.seconds:7.1f} | {outcome}", flush=True)
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
