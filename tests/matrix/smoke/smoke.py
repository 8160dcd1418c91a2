"""A day in the life of a user, by the installed command: build, miss, taint, batch, parts, operation, read.

`SMOKE_SPARK` has the arguments of `DatabuildSpark`, as JSON. It runs beside any version of anything, so it
imports nothing but the standard library. Exit 1 names the step that went wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DAY, DAYS = "2024-01-02", "2024-01-01..2024-01-03"
#: What each asset of `definitions.py` says about a day.
TURNOVER = [{"shop": "north", "turnover": 18.0}, {"shop": "south", "turnover": 40.5}]
BY_SHOP = [{"amount": 9.0, "n": 3, "shop": "north"}, {"amount": 13.5, "n": 3, "shop": "south"}]
COMMAND_SECONDS = 300


class Failed(Exception):
    """A step whose answer is not the expected one."""


class Home:
    """A project and its Dagster home in a folder of their own."""

    def __init__(self, folder: str) -> None:
        self.project = Path(__file__).parent
        self.environment = {**os.environ, "DAGSTER_HOME": folder, "DAGSTER_DISABLE_TELEMETRY": "1"}

    def run(self, *arguments: str, exits: int = 0) -> str:
        """What a command prints. Raises `Failed` with all that it said if it ends in another way."""
        command = [sys.executable, "-m", "databuild_dagster", *arguments]
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != exits:
            raise Failed(f"databuild {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def stop_spark(self) -> None:
        """Stop the shared server, in whichever state a step has left it."""
        command = [sys.executable, "-m", "databuild_dagster", "spark", "--stop"]
        subprocess.run(command, env=self.environment, capture_output=True, timeout=COMMAND_SECONDS, check=False)

    def rows(self, ref: str) -> list[dict[str, Any]]:
        """The rows of a ref, in the order of their texts."""
        answer = json.loads(self.run("read", ref, "--json"))
        return sorted(answer, key=str)


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Failed(f"{what}: {found!r} in place of {expected!r}")


@contextmanager
def step(name: str) -> Iterator[None]:
    try:
        yield
    except Failed as failure:
        raise Failed(f"{name}: {failure}") from None
    print(f"    {name}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-functions", action="store_true", help="this Spark runs no Python functions")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
        home = Home(folder)
        try:
            live_a_day(home, with_functions=not given.without_functions)
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 1
        finally:
            home.stop_spark()
    return 0


def live_a_day(home: Home, *, with_functions: bool) -> None:
    definitions = ("-f", "definitions.py")
    functions = [f"longest@{DAY}", f"counted@{DAY}"] if with_functions else []
    with step("build, with a dependency miss, a batch, parts and a pandas frame"):
        refs = [f"doubled@{DAYS}", f"by_shop@{DAY}", f"newest@{DAY}", *functions]
        home.run("build", *refs, *definitions)
    with step("read"):
        expect("turnover", home.rows(f"turnover@{DAY}"), TURNOVER)
        doubled = [{**row, "turnover": 2 * row["turnover"]} for row in TURNOVER]
        expect("doubled", home.rows(f"doubled@{DAY}"), doubled)
        expect("by_shop", home.rows(f"by_shop@{DAY}"), BY_SHOP)
        expect("newest", home.rows(f"newest@{DAY}"), [{"id": 4, "twice": 8}, {"id": 5, "twice": 10}])
        if with_functions:
            expect("longest", home.rows(f"longest@{DAY}"), [{"letters": 5}])
            expect("counted", home.rows(f"counted@{DAY}"), [{"letters": 5, "again": 5}])
        (order, *_) = home.rows(f"orders@{DAY}")
        expect("day", order["day"], DAY)
        expect("sold_at", order["sold_at"], f"{DAY}T12:30:00+00:00")
        expect("labels", order["labels"], ["a", "b"])
    with step("taint, and build again"):
        home.run("taint", f"orders@{DAY}", "--reason", "a shop was missing", "--downstream")
        home.run("build", f"doubled@{DAY}", *definitions)
        expect("turnover", home.rows(f"turnover@{DAY}"), TURNOVER)
    with step("operation"):
        home.run("operation", "run", "validate", "orders", "--not-null", "amount", "--local", *definitions)
    with step("log check"):
        home.run("log", "check", "--deep")


if __name__ == "__main__":
    sys.exit(main())
