"""What `make test` leaves out, part by part: `make test-rest`, the second half of `make test-all` and of CI.

Parts that need Spark run one after the other, and beside them the parts that need none. Each line of output begins with the
name of its part. At the end stand the minutes and processor minutes of each part; docs/testing.md has their budget. What the
failed parts said last stands below them, and each test that was run once more: who reads a long log reads its end. Exit 1 if a
part failed; the other parts have run all the same.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[1]
#: Of prctl(2): a process whose parent has ended becomes a child of ours, so its processor time is counted.
PR_SET_CHILD_SUBREAPER: Final = 36
#: What is repeated of a failed part: lines of pytest's summary, or else its last lines, each cut to so many characters.
MAX_REPEATED: Final = 8
MAX_CHARACTERS: Final = 200
#: Within that time the last lines of a part are printed.
LAST_LINES_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Part:
    """A make target of CI."""

    target: str
    #: Whether it starts Spark. Two Sparks at a time would share two cores and the memory of the machine.
    needs_spark: bool
    #: Minutes of one core at most, as docs/testing.md has them.
    processor_minutes: float


#: `make test`, which CI runs before the other parts.
MISSION: Final = Part("test", True, 2.5)
#: In the order in which they run; of each kind, the part whose faults are most frequent is first.
PARTS: Final = (
    Part("check", False, 0.4),
    Part("test-suite", True, 28.5),
    Part("mutations", False, 23.5),
    Part("test-simulation", False, 1.8),
    Part("site", False, 0.3),
    Part("test-engines", False, 0.4),
    Part("cluster-test", True, 4.5),
    Part("matrix-ci", True, 2.8),
    Part("package", True, 3.3),
    Part("test-browser", True, 3.7),
)


@dataclass(frozen=True)
class Outcome:
    """A part that has ended."""

    part: Part
    exit_code: int
    seconds: float
    processor_seconds: float
    #: What tells why a failed part failed.
    reasons: Sequence[str] = ()
    #: Tests that were run once more, because they failed.
    repeated: Sequence[str] = ()


def run_part(part: Part) -> Outcome:
    """Run a part in a process of its own that counts the processor time of all of its descendants."""
    began = time.monotonic()
    reading, writing = os.pipe()
    counted = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, "--count", str(writing), part.target],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        pass_fds=[writing],
    )
    os.close(writing)
    assert counted.stdout is not None
    said = _Said()
    printing = threading.Thread(target=_print_lines, args=(part, counted.stdout, said), daemon=True)
    printing.start()
    exit_code = counted.wait()
    # A server that a failed test left has the output open without end.
    printing.join(LAST_LINES_SECONDS)
    with os.fdopen(reading) as pipe:
        processor_seconds = float(pipe.read() or "nan")
    reasons = (said.failures[-MAX_REPEATED:] or list(said.last)) if exit_code else []
    outcome = Outcome(part, exit_code, time.monotonic() - began, processor_seconds, reasons, said.repeated)
    print(f"{part.target:15} | {_row(outcome)}", flush=True)
    return outcome


@dataclass(frozen=True)
class _Said:
    """The lines of a part's output that its end repeats."""

    failures: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_REPEATED))


def _print_lines(part: Part, lines: IO[str], said: _Said) -> None:
    for line in lines:
        print(f"{part.target:15} | {line}", end="", flush=True)
        if line.startswith(("FAILED ", "ERROR ")):
            said.failures.append(line.rstrip()[:MAX_CHARACTERS])
        elif line.startswith("RERUN "):
            said.repeated.append(line.rstrip()[:MAX_CHARACTERS])
        elif line.strip():
            said.last.append(line.rstrip()[:MAX_CHARACTERS])


def count(target: str, writing: int) -> int:
    """Run `make TARGET`, write its processor seconds to a file descriptor, and return its exit code."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    make = subprocess.Popen(["make", "--no-print-directory", target], cwd=ROOT, pass_fds=())
    exit_code, processor_seconds = None, 0.0
    while exit_code is None:
        # Every ended process at once, since a test that waits for an end would see a zombie as a process.
        pid, status, usage = os.wait4(-1, 0)
        processor_seconds += usage.ru_utime + usage.ru_stime
        if pid == make.pid:
            exit_code = os.waitstatus_to_exitcode(status)
    os.write(writing, f"{processor_seconds:.1f}".encode())
    return abs(exit_code)


def _run_lane(parts: Sequence[Part], outcomes: list[Outcome]) -> None:
    for part in parts:
        outcomes.append(run_part(part))


def _row(outcome: Outcome) -> str:
    sign = "passed" if outcome.exit_code == 0 else f"FAILED ({outcome.exit_code})"
    return f"{outcome.seconds / 60:5.1f} min, {outcome.processor_seconds / 60:5.1f} processor minutes, {sign}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[part.target for part in PARTS], help="these parts")
    parser.add_argument("--count", nargs=2, metavar=("FD", "TARGET"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.count:
        return count(given.count[1], int(given.count[0]))
    chosen = [part for part in PARTS if given.only is None or part.target in given.only]
    outcomes: list[Outcome] = []
    lanes = [[part for part in chosen if part.needs_spark is needs_spark] for needs_spark in (True, False)]
    threads = [threading.Thread(target=_run_lane, args=(lane, outcomes)) for lane in lanes if lane]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print()
    for outcome in sorted(outcomes, key=lambda outcome: PARTS.index(outcome.part)):
        print(f"{outcome.part.target:15} {_row(outcome)}")
    total = sum(outcome.processor_seconds for outcome in outcomes) / 60
    failed = [outcome.part.target for outcome in outcomes if outcome.exit_code]
    print(f"{total:.1f} processor minutes; " + (f"FAILED: {', '.join(failed)}" if failed else "all parts passed"))
    for outcome in outcomes:
        for reason in (*outcome.repeated, *outcome.reasons):
            print(f"{outcome.part.target}: {reason}", flush=True)
    return 1 if failed or len(outcomes) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
