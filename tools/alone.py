"""Runs tests alone: each in a process that has run no other test.

python tools/alone.py                                a sample of 150 tests of `make test`, by a seed that is printed
python tools/alone.py --sample 30 --seed 7 -m long   what follows goes to pytest
python tools/alone.py --sample 0 tests/e2e           every one of these

The tests are collected once. Each runs in a fork, which ends without running another one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

import pytest
from _pytest.runner import runtestprotocol

#: What `make test` runs.
SELECTED = ("-p", "no:randomly", "-p", "no:cacheprovider", "-q", "--ignore", "tests/simulation", "-m", "not browser")


class Alone:
    """A plugin of pytest that runs each test of a sample in a fork."""

    def __init__(self, sample: int, seed: int) -> None:
        self.sample = sample
        self.chance = random.Random(seed)
        self.failed: list[str] = []
        self.n_run = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        chosen = self.chance.sample(items, min(self.sample, len(items))) if self.sample else items
        for item in chosen:
            began = time.monotonic()
            self.n_run += 1
            if not passes_in_a_fork(item):
                self.failed.append(item.nodeid)
                print(f"\nFAILED {item.nodeid}", flush=True)
            elif time.monotonic() - began > 10:
                print(f"{time.monotonic() - began:6.0f} s  {item.nodeid}", flush=True)
        return True


def passes_in_a_fork(item: pytest.Item) -> bool:
    """The fixtures of a session or module are made and ended in the fork."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            reports = runtestprotocol(item, log=False, nextitem=None)
            failed = [report for report in reports if report.failed]
            for report in failed:
                print(f"\n{report.when}: {report.longreprtext[-3000:]}", file=sys.__stdout__, flush=True)
            code = int(bool(failed))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150, help="how many tests; 0 for all")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of the sample")
    options, pytest_arguments = parser.parse_known_args()
    print(f"seed {options.seed}")
    alone = Alone(options.sample, options.seed)
    code = pytest.main([*SELECTED, *pytest_arguments], plugins=[alone])
    print(f"{alone.n_run} tests ran alone, {len(alone.failed)} failed")
    return 1 if alone.failed or code not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main())
