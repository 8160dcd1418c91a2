"""What a link costs of a chain of days, each built from the day before: processor seconds of each launch beyond the start of the command.

    python -m bench.chain [--days N] [--rounds N]

Each day of an asset of pandas is a launch of its own, because its input is live only then. The chain is built by `databuild build`, and by
the orchestrator's ticks of `databuild admin tick --until-idle` after a want. A link is the time of the chain minus the time of its
first day alone, divided by the other days; the function itself takes less than a millisecond. Records the table `chain`.
"""

import argparse
import statistics
import tempfile
from datetime import date, timedelta
from pathlib import Path

from bench.cli import databuild, seconds_of
from bench.results import record

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset

day_before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


@databuild_asset(
    partitions_def=dg.DailyPartitionsDefinition("2023-01-01", end_date="2024-01-01"),
    ins={"balance": dg.AssetIn(partition_mapping=day_before)},
)
def balance(balance: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.0 + balance["amount"].sum() if len(balance.columns) else 1.0]})


defs = build_definitions([balance])
"""
FIRST = date(2023, 1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="A chain of days.")
    parser.add_argument("--days", type=int, default=365, help="links of the chain")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    links: dict[str, list[float]] = {"`databuild build`": [], "`databuild admin tick --until-idle`": []}
    for _ in range(options.rounds):
        for way, seconds in links.items():
            whole, first = (of_days(n, by_ticks="tick" in way) for n in (options.days, 1))
            seconds.append((whole - first) / (options.days - 1))
    columns = [f"a chain of {options.days} days", "a link, CPU s", "aim"]
    rows = [[way, f"{statistics.median(seconds):.2f}", "0.2"] for way, seconds in links.items()]
    record("chain", f"python -m bench.chain --days {options.days} --rounds {options.rounds}", columns, rows, raw=links)
    print(links)


def of_days(n: int, *, by_ticks: bool) -> float:
    """Processor seconds of a command that builds a chain of so many days from nothing."""
    ref = f"balance@{FIRST + timedelta(days=n - 1)}"
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        (folder / "definitions.py").write_text(DEFINITIONS)
        (folder / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
        if not by_ticks:
            return seconds_of(databuild("build", ref), folder)
        seconds_of(databuild("want", "create", "-f", "definitions.py", ref), folder)
        return seconds_of(databuild("admin", "tick", "--until-idle", "-f", "definitions.py"), folder)


if __name__ == "__main__":
    main()
