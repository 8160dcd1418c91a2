"""Repeats tests under load and reports which of them do not always pass.

python tools/flaky.py                               the long tests of CI, twenty rounds, two busy processes beside them
python tools/flaky.py --rounds 5 --minutes 30 tests/e2e
python tools/flaky.py -k test_wait tests/cli        what follows goes to pytest

A round is one whole pytest run with a seed of its own for the order. No round starts after `--minutes`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BUSY = "while True: pass"
WORKERS = 3


class Failure(NamedTuple):
    """One test that failed in one round."""

    test: str
    seed: int
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how often each test runs")
    parser.add_argument("--busy", type=int, default=2, help="processes that only use the processor")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="start no round after so many minutes")
    parser.add_argument("--seed", type=int, default=1, help="of the first round's order")
    options, pytest_arguments = parser.parse_known_args()
    if options.rounds < 1 or options.busy < 0:
        parser.error("--rounds is at least 1, --busy at least 0")
    began, runs, failures = time.monotonic(), Counter[str](), list[Failure]()
    with _busy(options.busy):
        for number in range(options.rounds):
            if time.monotonic() - began > options.minutes * 60:
                break
            ran, failed = _round(options.seed + number, pytest_arguments)
            if not ran:
                print("No test was collected; correct the arguments.", file=sys.stderr)
                return 2
            runs.update(ran)
            failures += failed
            minutes = (time.monotonic() - began) / 60
            print(f"round {number + 1}: {len(ran)} tests, {len(failed)} failed, {minutes:.1f} min in all", flush=True)
    return _report(runs, failures)


@contextmanager
def _busy(n: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _round(seed: int, arguments: list[str]) -> tuple[list[str], list[Failure]]:
    """The tests that ran, and those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "long", "-n", str(WORKERS), "--dist", "loadgroup"]
        command += ["--no-loadscope-reorder", f"--randomly-seed={seed}", f"--junitxml={report}", *arguments]
        log = Path(tempfile.gettempdir(), f"databuild-flaky-{os.getpid()}-{seed}.log")
        with log.open("w") as out:
            subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    ran = [_name(case) for case in cases if case.find("skipped") is None]
    found = [(case, part) for case in cases for part in (case.find("failure"), case.find("error")) if part is not None]
    failed = [Failure(_name(case), seed, (part.get("message") or "").split("\n")[0][:200]) for case, part in found]
    if failed:
        print(f"  the output of seed {seed} is in {log}")
    else:
        log.unlink()
    return ran, failed


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _report(runs: Counter[str], failures: list[Failure]) -> int:
    print(f"\n{sum(runs.values())} runs of {len(runs)} tests, {min(runs.values())} of each at least")
    of_test: dict[str, list[Failure]] = {}
    for failure in failures:
        of_test.setdefault(failure.test, []).append(failure)
    for test, failed in sorted(of_test.items(), key=lambda item: -len(item[1])):
        print(f"{len(failed):4} of {runs[test]}  {test}")
        for failure in failed:
            print(f"           seed {failure.seed}: {failure.why}")
    print("Every test passed every time." if not failures else f"{len(of_test)} tests do not always pass.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
