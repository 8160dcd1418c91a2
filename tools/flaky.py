"""Repeats tests under load and reports which of them do not always pass.

python tools/flaky.py                               the long tests of CI, twenty rounds, two busy processes beside them
python tools/flaky.py --minutes 30 tests/e2e        what follows goes to pytest; no run starts after 30 minutes
python tools/flaky.py --keep .flaky.jsonl           goes on with the rounds in the file, and keeps its own there

The rounds are pytest runs of at most `--at-once` tests, those with the fewest rounds, each with a seed of its own for the
order. A run that is stopped keeps the tests that had ended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BUSY = "while True: pass"
#: The exit code of pytest when every test has passed.
PASSED = 0


class Run(NamedTuple):
    """One run of one test."""

    test: str
    seed: int
    commit: str
    failure: str | None


def main() -> int:
    options, pytest_arguments = _options()
    began = time.monotonic()
    runs = _kept(options.keep)
    tests = _collected(pytest_arguments)
    if not tests:
        print("No test was collected; correct the arguments.", file=sys.stderr)
        return 2
    print(f"{len(tests)} tests", flush=True)
    # The seeds of earlier rounds are not used again.
    seed = max([options.seed, *(run.seed + 1 for run in runs)])
    with _busy(options.busy):
        while time.monotonic() - began < options.minutes * 60:
            chosen = _fewest(tests, runs, options.rounds, options.at_once, random.Random(seed))
            if not chosen:
                break
            more = _run(chosen, seed, options.workers)
            runs += more
            _keep(options.keep, more)
            n_failed = sum(run.failure is not None for run in more)
            minutes = (time.monotonic() - began) / 60
            print(f"seed {seed}: {len(more)} tests, {n_failed} failed, {minutes:.1f} min in all", flush=True)
            if not more:
                print("No test of this run ended.", file=sys.stderr)
                return 2
            seed += 1
    return _report(tests, runs)


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how often each test runs")
    parser.add_argument("--busy", type=int, default=2, help="processes that only use the processor")
    parser.add_argument("--workers", type=int, default=3, help="processes that run tests")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="start no run after so many minutes")
    parser.add_argument("--at-once", type=int, default=1000, help="tests of one run, those with the fewest rounds")
    parser.add_argument("--seed", type=int, default=1, help="of the first run's order")
    parser.add_argument("--keep", type=Path, help="file with the rounds of all invocations")
    options, pytest_arguments = parser.parse_known_args()
    if min(options.rounds, options.workers, options.at_once) < 1 or options.busy < 0:
        parser.error("--rounds, --workers and --at-once are at least 1, --busy at least 0")
    return options, pytest_arguments


@contextmanager
def _busy(n: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _collected(arguments: list[str]) -> list[str]:
    """The ids of the long tests that the arguments mean."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "long", "-p", "no:randomly", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # The ids come first, and an empty line ends them: the tests that are left out are listed below. pytest escapes the line
    # breaks of parameters.
    return list(takewhile(lambda line: "::" in line, done.stdout.splitlines()))


def _fewest(tests: list[str], runs: list[Run], rounds: int, at_once: int, chance: random.Random) -> list[str]:
    """The tests that have the fewest rounds, and not enough of them; some of these by chance."""
    n_rounds = Counter(run.test for run in runs)
    left = [test for test in tests if n_rounds[test] < rounds]
    chance.shuffle(left)
    return sorted(left, key=n_rounds.__getitem__)[:at_once]


def _run(tests: list[str], seed: int, workers: int) -> list[Run]:
    """The tests that ended in one run of pytest; a test that was skipped ends as well."""
    commit = _commit()
    with tempfile.TemporaryDirectory() as folder:
        chosen, record = Path(folder, "tests.txt"), Path(folder, "record.jsonl")
        chosen.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "loadgroup"]
        command += ["--no-loadscope-reorder", f"--randomly-seed={seed}", f"--record={record}", f"@{chosen}"]
        log = Path(tempfile.gettempdir(), f"databuild-flaky-{os.getpid()}-{seed}.log")
        with log.open("w") as out:
            code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
        lines = record.read_text().splitlines() if record.exists() else []
    found = [json.loads(line) for line in lines]
    if code == PASSED:
        log.unlink()
    else:
        print(f"  the output of seed {seed} is in {log}")
    return [Run(line["test"], seed, commit, line["failure"]) for line in found]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _kept(file: Path | None) -> list[Run]:
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    return [Run(**json.loads(line)) for line in lines]


def _keep(file: Path | None, runs: list[Run]) -> None:
    if file is not None:
        with file.open("a") as out:
            out.writelines(f"{json.dumps(run._asdict())}\n" for run in runs)


def _report(tests: list[str], runs: list[Run]) -> int:
    """Print how many rounds the tests have, at which commits, and the failures of tests that are still there."""
    of_these = [run for run in runs if run.test in set(tests)]
    n_rounds = Counter(run.test for run in of_these)
    of_test: dict[str, list[Run]] = {}
    for run in of_these:
        if run.failure is not None:
            of_test.setdefault(run.test, []).append(run)
    print(f"\n{len(of_these)} runs of {len(tests)} tests, by commit: {dict(Counter(run.commit for run in of_these))}")
    for n, n_tests in sorted(Counter(n_rounds[test] for test in tests).items()):
        print(f"{n_tests:6} tests have {n} rounds")
    for test, failed in sorted(of_test.items(), key=lambda item: -len(item[1])):
        print(f"{len(failed):4} of {n_rounds[test]}  {test}")
        for run in failed:
            print(f"           seed {run.seed}, commit {run.commit}: {run.failure}")
    print("Every test passed every time." if not of_test else f"{len(of_test)} tests do not always pass.")
    return 1 if of_test else 0


if __name__ == "__main__":
    sys.exit(main())
