"""The example's year by Sail, Spark without Java, against the year by Spark's own server; the rows of both are compared.

    python -m bench.without_java [--rounds N]

Each has its own home and a server that is warm: it has built one day of February, and the year is built into an empty home.
They take turns. Rows are compared table by table, with their partition keys, sorted; numbers with a fraction may differ by
one in 10^12, for the two add them up in different orders.

Prints Markdown, for docs/performance.md.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from bench.pipeline import FLIGHTS_OF_THE_YEAR, ROOT, WARM_UP, empty, refs_of_the_year, run
from databuild_dagster import table
from databuild_dagster.spark.server import stop_server

#: What the example calls the modes (`make demo SPARK=sail`).
MODES = ("shared", "sail")
TABLES = (
    "flights",
    "weather",
    "airlines",
    "planes",
    "flight_delays",
    "airport_daily",
    "carrier_monthly",
    "by_destination",
    "by_hour",
    "year_report",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="The example's year without Java.")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        homes = {mode: Path(name, mode) for mode in MODES}
        try:
            found = in_turns(homes, rounds)
            n_rows = compared(*homes.values())
        finally:
            for home in homes.values():
                stop_server(home)
    report(found, n_rows)


def in_turns(homes: dict[str, Path], rounds: int) -> dict[str, list[dict[str, float]]]:
    """What `bench.timed_build` says of each round."""
    for mode, home in homes.items():
        home.mkdir()
        shutil.copy(ROOT / "dagster.yaml", home)
        built_by(mode, home, "databuild_dagster", "build", WARM_UP, "--json")
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode, home in homes.items():
            empty(home)
            found[mode].append(built_by(mode, home, "bench.timed_build", *refs_of_the_year()))
    return found


def built_by(mode: str, home: Path, module: str, *arguments: str) -> Any:
    return run(home, module, *arguments, EXAMPLE_SPARK=mode)[1]


def compared(one: Path, other: Path) -> int:
    """The number of rows, which are the same in both homes."""
    n_rows = 0
    for name in TABLES:
        first, second = (sorted_rows(name, home) for home in (one, other))
        pd.testing.assert_frame_equal(first, second, check_exact=False, rtol=1e-12, atol=0, obj=name)
        n_rows += len(first)
        if name == "flights":
            assert len(first) == FLIGHTS_OF_THE_YEAR, len(first)
    return n_rows


def sorted_rows(name: str, home: Path) -> pd.DataFrame:
    frame = table(name, format="pandas", home=home)
    # Fractions last: two that differ in their last digit must not decide the order.
    columns = sorted(frame.columns, key=lambda column: (frame[column].dtype.kind == "f", column))
    return frame[columns].sort_values(columns, ignore_index=True)


def report(found: dict[str, list[dict[str, float]]], n_rows: int) -> None:
    medians = {
        mode: {figure: statistics.median(one[figure] for one in rounds) for figure in rounds[0]}
        for mode, rounds in found.items()
    }
    own = medians["shared"]
    print(f"Medians of {len(found['shared'])} rounds; {n_rows:,} rows of {len(TABLES)} tables, the same in both.\n")
    print(f"| the year, {own['job_runs']:,.0f} partitions | seconds | × Spark's own server | Dagster's own writes |")
    print("|---|---|---|---|")
    for mode, figures in medians.items():
        share = figures["seconds"] / own["seconds"]
        print(f"| mode `{mode}` | {figures['seconds']:.1f} | {share:.2f} | {figures['dagster_writes']:.1f} |")
    alone = [figures["seconds"] - figures["dagster_writes"] for figures in medians.values()]
    print(f"\nWithout Dagster's own writes: {alone[0]:.1f} s and {alone[1]:.1f} s, {alone[1] / alone[0]:.2f} times.")
    print(f"Rounds: {[[round(one['seconds'], 1) for one in rounds] for rounds in found.values()]}")


if __name__ == "__main__":
    assert os.environ.get("DAGSTER_HOME") is None, "each home of the bench is its own"
    main()
