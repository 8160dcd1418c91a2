"""How much processor time a command takes to start, and how that compares with the imports that it cannot do without.

    python -m bench.cli            medians of 7 runs; --rounds for more
    python -m bench.cli --before WORKTREE    `plan` and `explain` in turns with an earlier commit; records the table `plans`

Each command is a process of its own on a home with two daily assets, one of them built. A figure is the processor time of the
process and of its children. The two lines above the commands are measured in the same run, because the time of an
import varies with the machine: compare the ratios.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.results import commit, record

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")


@databuild_asset(partitions_def=daily)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.0]})


@databuild_asset(partitions_def=daily)
def report(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


defs = build_definitions([orders, report])
"""
REF = "report@2024-01-05"
#: The command to the most seconds that it should take on a machine that imports Dagster in 0.8 s; None for a yardstick.
COMMANDS: dict[tuple[str, ...], float | None] = {
    ("--help",): 0.3,
    ("log", "--help"): 0.3,
    ("show", REF): 0.6,
    ("want", "list"): 0.6,
    ("explain", REF): 0.6,
    ("explain", "report@2024-01-07"): 0.4,
    ("status",): 0.6,
    ("build", REF): 0.4,
    ("want", "create", "report@2024-01-06"): 1.5,
    ("want", "create", "-f", "definitions.py", "report@2024-01-06"): None,
    ("partitions", "report"): None,
    ("plan", "report@2024-01-07"): 0.4,
}
WAITING = "report@2024-01-08"
#: The rows of the table `plans`.
PLANS: dict[str, tuple[str, ...]] = {
    "`explain` of a wanted ref that waits": ("explain", WAITING),
    "`plan`": ("plan", "report@2024-01-07"),
    "`plan -f definitions.py`, after a build of the same options": (
        "plan",
        "-f",
        "definitions.py",
        "report@2024-01-07",
    ),
}
ROOT = Path(__file__).parent.parent


def seconds_of(command: list[str], folder: Path, code: Path = ROOT) -> float:
    """Processor time of one process and its children; `code` is the work tree that it imports the package from."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"DAGSTER_HOME": str(folder / "home"), "PYTHONPATH": str(code)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make_project(folder: Path, code: Path = ROOT) -> None:
    (folder / "home").mkdir()
    (folder / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (folder / "definitions.py").write_text(DEFINITIONS)
    (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    seconds_of(databuild("build", REF), folder, code)


def databuild(*words: str) -> list[str]:
    return [sys.executable, "-m", "databuild_dagster", *words]


def plans(before: Path, rounds: int) -> None:
    """Record the table `plans`: the commands by the work tree `before` and by this one, each with a home of its own."""
    measured: dict[str, Mapping[str, list[float]]] = {name: {"before": [], "now": []} for name in PLANS}
    with tempfile.TemporaryDirectory() as place:
        projects = {"before": (Path(place, "before"), before), "now": (Path(place, "now"), ROOT)}
        for folder, code in projects.values():
            folder.mkdir()
            make_project(folder, code)
            for before_all in (("want", "create", WAITING), ("build", "-f", "definitions.py", REF)):
                seconds_of(databuild(*before_all), folder, code)
        for _ in range(rounds):
            for name, words in PLANS.items():
                for turn, (folder, code) in projects.items():
                    measured[name][turn].append(seconds_of(databuild(*words), folder, code))
    rows = [
        [name, *(f"{statistics.median(seconds):.2f}" for seconds in turns.values())] for name, turns in measured.items()
    ]
    columns = ["two daily pandas assets, CPU s", f"before, {commit(before)}", "now"]
    record("plans", f"python -m bench.cli --before WORKTREE --rounds {rounds}", columns, rows, raw=measured)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", type=Path, default=None, help="a work tree of an earlier commit")
    options = parser.parse_args()
    rounds = options.rounds
    if options.before is not None:
        plans(options.before.resolve(), rounds)
        return 0
    rows: dict[str, tuple[list[str], float | None]] = {
        "python -c pass": ([sys.executable, "-c", "pass"], None),
        "import dagster": ([sys.executable, "-c", "import dagster"], None),
    }
    for words, most in COMMANDS.items():
        rows["databuild " + " ".join(words)] = (databuild(*words), most)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_project(folder)
        # Round by round, so that a busy minute of the machine meets every command alike.
        measured = {name: [] for name in rows}  # type: dict[str, list[float]]
        for _ in range(rounds):
            for name, (command, _) in rows.items():
                measured[name].append(seconds_of(command, folder))
    medians = {name: statistics.median(seconds) for name, seconds in measured.items()}
    python, dagster = medians["python -c pass"], medians["import dagster"]
    print(f"{'command':60}{'s':>7}{'aim':>7}{'/ pass':>9}{'/ import dagster':>18}")
    for name, median in medians.items():
        most = rows[name][1]
        aim = "" if most is None else f"{most:.1f}"
        print(f"{name:60}{median:7.2f}{aim:>7}{median / python:9.0f}{median / dagster:18.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
