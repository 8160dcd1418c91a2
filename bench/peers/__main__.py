"""The same work by this package and by its peers, in turns: processor seconds of all processes.

    python -m bench.peers [--rounds N] [--only shared sail …] [--venvs FOLDER]

| step | what is done |
|---|---|
| january | a month per carrier with all that it needs, from nothing, with no server running |
| again | the same command, with nothing to do |
| day | one more day of the joined table |
| plan | what it would do to build a wrong day again, with what was made of it |
| wrong | mark that day wrong, and build it again |
| march | the month of March, where a server of the peer is still warm |
| imports | a process that imports what the peer stands on, and does nothing: no command that builds can cost less |

A peer of its own packages gets a virtual environment below `--venvs`, which is kept for the next time. The script computes months
anew, and plain Dagster is measured by a day, because each of its Dagster runs takes the seconds of a Spark.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

import pyarrow.parquet as pq

from bench.processor import adopt_daemons, processor_seconds
from bench.results import record
from examples.flights import nycflights

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MAX_SECONDS = 1800
STEPS = {
    "january": "January from nothing, cold",
    "again": "again, nothing to do",
    "day": "one more day",
    "plan": "what would it do to build a wrong day again",
    "wrong": "mark that day wrong and build it, with its month",
    "march": "March, warm",
    "imports": "the imports of a command that builds, alone",
}


class Command(NamedTuple):
    arguments: list[str]
    environment: Mapping[str, str] = MappingProxyType({})


#: The commands of each step; a step that a peer cannot do is absent.
Steps = Mapping[str, list[Command]]


@dataclass(frozen=True)
class Peer:
    """A way to do the work, in a new folder with the raw files beside it."""

    title: str
    steps: Callable[[Path, Path, str], Steps]
    #: Packages of a virtual environment of its own; none for the environment of this process.
    packages: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def ours(folder: Path, raw: Path, python: str) -> Steps:
    shutil.copy(ROOT / "dagster.yaml", folder)
    cli = [python, "-m", "databuild_dagster"]
    month = "carrier_monthly@2013-01-01"
    taint = [*cli, "taint", "weather@2013-01-05", "--downstream", "--reason", "a wrong day"]
    return {
        "january": [Command([*cli, "build", month])],
        "again": [Command([*cli, "build", month])],
        "day": [Command([*cli, "build", "flight_delays@2013-02-01"])],
        "plan": [Command([*cli, "plan", "--if-tainted", *taint[4:6]])],
        "wrong": [Command(taint), Command([*cli, "build", month])],
        "march": [Command([*cli, "build", "carrier_monthly@2013-03-01"])],
        "imports": [Command([python, "-c", "import dagster, sqlalchemy, pyspark.sql.connect.session"])],
        "end": [Command([*cli, "spark", "--stop"])],
    }


#: SQLMesh names a catalog before each table, and Spark finds a file by its path in none: so the files are tables of Spark's own catalog.
NAME_RAW = """
import sys
from pyspark.sql import SparkSession
folder, raw = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", f"{folder}/tables")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}").enableHiveSupport().getOrCreate()
)
spark.sql("CREATE DATABASE raw")
for name in ("flights", "weather", "airlines"):
    spark.sql(f"CREATE TABLE raw.{name} USING parquet LOCATION '{raw}/{name}.parquet'")
"""


def sqlmesh(engine: str) -> Callable[[Path, Path, str], Steps]:
    def steps(folder: Path, raw: Path, python: str) -> Steps:
        (folder / "models").mkdir()
        for model in (HERE / "sqlmesh").glob("*.sql"):
            text = model.read_text()
            for name in ("flights", "weather", "airlines"):
                file = f"raw.{name}" if engine == "spark" else f"read_parquet('{raw}/{name}.parquet')"
                text = text.replace(f"RAW({name})", file)
            (folder / "models" / model.name).write_text(text)
        settings = "spark.master: 'local[*]', spark.ui.enabled: 'false', spark.sql.shuffle.partitions: '8', "
        settings += f"spark.sql.session.timeZone: UTC, spark.sql.warehouse.dir: {folder}/tables, "
        settings += f"spark.driver.extraJavaOptions: '-Dderby.system.home={folder}'"
        connection = {
            "duckdb": f"{{type: duckdb, database: {folder}/data.db}}",
            "spark": f"{{type: spark, config: {{{settings}}}}}",
        }[engine]
        (folder / "config.yaml").write_text(
            f"gateways: {{it: {{connection: {connection}, state_connection: {{type: duckdb, database: {folder}/state.db}}}}}}\n"
            f"default_gateway: it\nmodel_defaults: {{dialect: {engine}}}\ndisable_anonymized_analytics: true\n"
        )
        cli = [str(Path(python).with_name("sqlmesh"))]
        restate = [
            "--restate-model",
            "nyc.weather",
            "--start",
            "2013-01-05",
            "--end",
            "2013-01-05",
            "--execution-time",
            "2013-02-02",
        ]
        plan = [*cli, "plan", "--no-prompts"]
        return {
            "before": [Command([python, "-c", NAME_RAW, str(folder), str(raw)])] if engine == "spark" else [],
            "january": [Command([*plan, "--auto-apply", "--execution-time", "2013-02-01"])],
            "again": [Command([*cli, "run", "--ignore-cron", "--end", "2013-01-31"])],
            "day": [Command([*cli, "run", "--ignore-cron", "--end", "2013-02-01"])],
            "plan": [Command([*plan, "--explain", *restate])],
            "wrong": [Command([*plan, "--auto-apply", *restate])],
            "march": [Command([*cli, "run", "--ignore-cron", "--end", "2013-03-31"])],
            "imports": [
                Command([python, "-c", f"import sqlmesh, {'duckdb' if engine == 'duckdb' else 'pyspark.sql'}"])
            ],
        }

    return steps


def script(folder: Path, raw: Path, python: str) -> Steps:
    command = [python, "-m", "bench.peers.script", f"{folder}/out"]
    return {"january": [Command([*command, "1"])], "march": [Command([*command, "3"])]}


def plain_dagster(folder: Path, raw: Path, python: str) -> Steps:
    def of(assets: str, *partition: str) -> Command:
        command = [python, "-m", "dagster", "asset", "materialize", "-m", "bench.plain_dagster", "--select", assets]
        return Command([*command, *partition], {"PLAIN_DAGSTER_OUT": f"{folder}/tables"})

    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    days = "flights,weather,flight_delays"
    # What a day needs beside its own tables is no step of the table.
    return {"before": [of("airlines")], "day": [of(days, "--partition", "2013-02-01")]}


PEERS = {
    "shared": Peer("ours, `shared`", ours),
    "sail": Peer("ours, by Sail", ours, environment={"EXAMPLE_SPARK": "sail"}),
    "sqlmesh-duckdb": Peer("SQLMesh, DuckDB", sqlmesh("duckdb"), ("sqlmesh==0.236.4", "duckdb==1.5.6")),
    "sqlmesh-spark": Peer("SQLMesh, Spark", sqlmesh("spark"), ("sqlmesh==0.236.4", "pyspark==3.5.7", "pandas<3")),
    "script": Peer("one script", script),
    "dagster": Peer("plain Dagster", plain_dagster),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The same work by this package and by its peers, in turns.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir(), "databuild-peers"))
    options = parser.parse_args()
    pythons = {name: python_of(PEERS[name], name, options.venvs) for name in options.only}
    adopt_daemons()
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in options.only}
    with tempfile.TemporaryDirectory(prefix="databuild-peers-") as scratch:
        raw = Path(scratch, "raw")
        write_raw(raw)
        for number in range(options.rounds):
            for name in options.only:
                folder = Path(scratch, f"{name}-{number}")
                folder.mkdir()
                for step, seconds in one_round(PEERS[name], folder, raw, pythons[name]):
                    found[name][step].append(seconds)
                    print(f"{number} {name} {step}: {seconds:.1f} CPU s", flush=True)
                shutil.rmtree(folder)
                note(PEERS[name], name, found[name], number + 1)


def note(peer: Peer, name: str, steps: Mapping[str, list[float]], rounds: int) -> None:
    """Record the medians after each round, so that a failure of a peer loses no other's."""
    cells = [[title, f"{median(steps[step]):.1f}" if steps.get(step) else "-"] for step, title in STEPS.items()]
    command = f"python -m bench.peers --rounds {rounds} --only {name}"
    print(record(f"peers-{name}", command, ["work", peer.title], cells, versions=versions_of(peer), raw=steps))


def one_round(peer: Peer, folder: Path, raw: Path, python: str) -> Iterator[tuple[str, float]]:
    """The steps that the peer can do, with the processor seconds of each; what comes before and after is no step."""
    for step, commands in peer.steps(folder, raw, python).items():
        before = processor_seconds()
        for command in commands:
            run(command, folder, peer.environment)
        if step in STEPS:
            yield step, processor_seconds() - before


def run(command: Command, folder: Path, environment: Mapping[str, str]) -> None:
    # The peers' own projects are found in their folder, ours in this one.
    is_ours = command.arguments[1] == "-m"
    done = subprocess.run(
        command.arguments,
        cwd=ROOT if is_ours else folder,
        env={**os.environ, "DAGSTER_HOME": str(folder), **environment, **command.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command.arguments)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def python_of(peer: Peer, name: str, venvs: Path) -> str:
    """The interpreter of the peer, with its packages."""
    if not peer.packages:
        return sys.executable
    python = venvs / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venvs / name)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *peer.packages], check=True
        )
    return str(python)


def versions_of(peer: Peer) -> dict[str, str]:
    return dict(pinned.split("==") for pinned in peer.packages if "==" in pinned)


def write_raw(folder: Path) -> None:
    """The year's files for the peers that read Parquet."""
    folder.mkdir()
    for name, rows in (
        ("flights", nycflights.all_flights()),
        ("weather", nycflights.all_weather()),
        ("airlines", nycflights.all_airlines()),
    ):
        pq.write_table(rows, folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
