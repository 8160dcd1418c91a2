"""Single commands of two commits, in turns of a second, so that other programs on the machine slow both alike.

    python -m bench.engine.turns WORK_TREE [WORK_TREE] [--restarts N] [--turns N]

Each work tree has a process with its own copy of a store of 10,000 partitions. Prints Markdown: medians of processor time,
and the median of the ratios of neighboring turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PARTITIONS, ROUNDS = 10_000, 50
#: Runs in a process of each work tree, so it may use only names that both commits have.
_WORKER = f"""
import json, statistics, sys
from bench.engine import clock
from bench.engine.commands import Commands
from bench.engine.filling import fill, opened
clock.choose("cpu")
engine = opened(sys.argv[1])
fill(engine, {PARTITIONS})
commands = Commands(engine, {PARTITIONS})
for line in sys.stdin:
    commands.round()
    commands.seconds.clear()
    for _ in range({ROUNDS}):
        commands.round()
    print(json.dumps({{name: statistics.median(taken) for name, taken in commands.seconds.items()}}), flush=True)
"""


def measured(trees: list[Path], turns: int) -> list[dict[str, list[float]]]:
    """For each work tree and command, the median seconds of each turn."""
    found: list[dict[str, list[float]]] = [defaultdict(list) for _ in trees]
    with tempfile.TemporaryDirectory(prefix="databuild-turns-") as folder, ExitStack() as stack:
        workers = []
        for place, tree in enumerate(trees):
            command = [sys.executable, "-c", _WORKER, f"sqlite:///{folder}/{place}.db"]
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            workers.append(stack.enter_context(subprocess.Popen(command, cwd=tree, env=environment, **pipes)))
        for turn in range(turns):
            for place in sorted(range(len(trees)), reverse=turn % 2 == 1):
                worker = workers[place]
                assert worker.stdin is not None
                assert worker.stdout is not None
                print("turn", file=worker.stdin, flush=True)
                for name, seconds in json.loads(worker.stdout.readline()).items():
                    found[place][name].append(seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a work tree of the commit to compare with")
    parser.add_argument("after", type=Path, nargs="?", default=ROOT, help="by default this one")
    parser.add_argument("--restarts", type=int, default=4, help="two processes of one commit differ by a few percent")
    parser.add_argument("--turns", type=int, default=10, help="turns of each process")
    options = parser.parse_args()
    before: dict[str, list[float]] = defaultdict(list)
    after: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.restarts):
        for sums, found in zip((before, after), measured([options.before, options.after], options.turns), strict=True):
            for name, seconds in found.items():
                sums[name] += seconds
    print("| | before, µs | after, µs | ratio |\n|---|---|---|---|")
    for name, seconds in before.items():
        ratio = statistics.median(new / old for old, new in zip(seconds, after[name], strict=True))
        print(
            f"| {name} | {statistics.median(seconds) * 1e6:.0f} | {statistics.median(after[name]) * 1e6:.0f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    main()
