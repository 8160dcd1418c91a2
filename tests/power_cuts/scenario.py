"""The commands that are recorded: `python -m tests.power_cuts.scenario DAYS`, in the folder of the project.

Each command that succeeded is acknowledged by a line with the end of the log.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset
from databuild_dagster.cli.main import run
from databuild_dagster.cli.state import the_queries

ACKNOWLEDGED = "acknowledged.jsonl"
#: Rows that fill more than one page of the disk.
ROWS = 2000
MOST_DAYS = 5

_days = dg.StaticPartitionsDefinition([f"day{day}" for day in range(MOST_DAYS + 1)])


@databuild_asset(partitions_def=_days)
def raw(context: BuildContext) -> pd.DataFrame:
    """Numbers that no compression makes small."""
    rng = random.Random(context.partition_key)
    return pd.DataFrame({"n": [rng.random() for _ in range(ROWS)]})


@databuild_asset(partitions_def=_days)
def clean(raw: pd.DataFrame) -> pd.DataFrame:
    """The same."""
    return raw


defs = build_definitions([raw, clean])


LAST = f"clean@day{MOST_DAYS}"


def commands(n_days: int) -> Iterator[list[str]]:
    """Every kind of change, with a publish every few of them."""
    for day in range(n_days):
        yield ["want", "create", f"clean@day{day}"]
        yield ["build", f"clean@day{day}"]
        yield ["taint", f"raw@day{day}", "--reason", "wrong", "--downstream"]
        yield ["pause", f"clean@day{day}", "--reason", "later"]
        yield ["build", f"raw@day{day}"]
        yield ["resume", f"clean@day{day}"]
        yield ["build", f"clean@day{day}"]
        yield ["want", "create", LAST]
        yield ["revert", f"raw@day{day}", "--to", _first(f"raw@day{day}")]
        yield ["want", "cancel", _open_want()]


def _first(ref: str) -> str:
    return str(ask("history", ref)[0]["uuid"])


def _open_want() -> str:
    return str(ask("want", "list", "--ref", LAST)[0]["id"])


def ask(*arguments: str) -> Any:
    out = io.StringIO()
    with redirect_stdout(out):
        code = run([*arguments, "--json"])
    assert code == 0, (arguments, out.getvalue())
    return json.loads(out.getvalue())


def main() -> None:
    for n, command in enumerate(commands(int(sys.argv[1]))):
        ask(*command)
        with open(ACKNOWLEDGED, "a") as acknowledged:
            acknowledged.write(json.dumps({"n": n, "command": command, "seq": the_queries().events.head().seq}) + "\n")


if __name__ == "__main__":
    main()
