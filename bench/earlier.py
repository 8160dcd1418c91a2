"""The example at another commit and here, in turns on one machine: January and the year, on the local disk, by Spark on a JVM.

    git worktree add --detach ../earlier COMMIT      # with a .venv of its own
    python -m bench.earlier ../earlier [--range january year] [--rounds N]

Each tree has a home and a warm Spark server of its own. January is `databuild build`, the whole command; the year is
`bench.timed_build`, from the first want to the last live ref. Processor seconds are those of the command and of the server with
its children: the machine may have other work.

Prints Markdown, for docs/performance.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.pipeline import MAX_SECONDS, REF, ROOT, WARM_UP, empty, refs_of_the_year
from bench.processor import processor_of_children, processor_of_servers

COMMANDS = {
    "january": ["databuild_dagster", "build", REF, "--json"],
    "year": ["bench.timed_build", *refs_of_the_year()],
}


class Round(NamedTuple):
    """Seconds of the building and of the whole command, and the processor's."""

    building: float
    command: float
    of_command: float
    of_server: float


#: The other commit may be one before 0.1.
STOP = {"earlier": "stop", "here": "--stop"}


def main() -> None:
    parser = argparse.ArgumentParser(description="The example at another commit and here.")
    parser.add_argument("tree", type=Path, help="a work tree of the other commit, with a .venv of its own")
    parser.add_argument("--range", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trees = {"earlier": options.tree.absolute(), "here": ROOT}
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        homes = {which: Path(name, which) for which in trees}
        try:
            for which, tree in trees.items():
                homes[which].mkdir()
                shutil.copy(tree / "dagster.yaml", homes[which])
                run(tree, homes[which], ["databuild_dagster", "build", WARM_UP, "--json"])
            for period in options.range:
                report(period, in_turns(trees, homes, COMMANDS[period], options.rounds))
        finally:
            for which, tree in trees.items():
                run(tree, homes[which], ["databuild_dagster", "spark", STOP[which], "--json"])


def in_turns(trees: dict[str, Path], homes: dict[str, Path], command: list[str], rounds: int) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {which: [] for which in trees}
    for number in range(rounds):
        # The one that is first in a round is the second in the next.
        for which in sorted(trees, reverse=bool(number % 2)):
            empty(homes[which])
            found[which].append(run(trees[which], homes[which], command))
    return found


def run(tree: Path, home: Path, command: list[str]) -> Round:
    """A command of a tree, by the Python of its environment."""
    server, children = processor_of_servers(home), processor_of_children()
    began = time.perf_counter()
    done = subprocess.run(
        [str(tree / ".venv" / "bin" / "python"), "-m", *command],
        cwd=tree,
        env=os.environ | {"DAGSTER_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{tree}: {' '.join(command[:3])} failed:\n{done.stdout}\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    building = float(answer.get("seconds", seconds))
    return Round(building, seconds, processor_of_children() - children, processor_of_servers(home) - server)


def report(period: str, found: dict[str, list[Round]]) -> None:
    rounds = len(found["here"])
    print(f"\n| {period}, {rounds} rounds, load {os.getloadavg()[0]:.1f} | earlier | here | ratio |\n|---|---|---|---|")
    names = (
        "seconds from the first want to the last live ref",
        "seconds of the command",
        "processor seconds of the command",
        "processor seconds of Spark",
    )
    for place, name in enumerate(names):
        report_row(name, [one[place] for one in found["earlier"]], [one[place] for one in found["here"]])
    both = [[one.of_command + one.of_server for one in found[which]] for which in ("earlier", "here")]
    report_row("processor seconds of both", *both)


def report_row(name: str, earlier: list[float], here: list[float]) -> None:
    shown = [f"{median(side):.1f} ({min(side):.1f} to {max(side):.1f})" for side in (earlier, here)]
    print(f"| {name} | {shown[0]} | {shown[1]} | {median(here) / median(earlier):.2f} |", flush=True)


if __name__ == "__main__":
    main()
