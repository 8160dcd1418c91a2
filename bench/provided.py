"""A year of flights, a partition for each day, looked at by the operations that come with databuild; for `bench.operations`.

validate: all 365 partitions by an operation, in this process, against one Spark job written by hand that asks the same of all
their files at once; in turns, in one session of one server, after one of each that is not counted.

index: `build_index`, and then a read of the last days of December, which is to give what all files give.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.pipeline import ROOT, databuild
from databuild_dagster import table
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.features.operations.coordinator import Coordinator
from databuild_dagster.features.operations.operations import (
    executor_of,
    jobs_at_once,
    manager_of,
    operation_resources,
    run_jobs,
)
from databuild_dagster.spark.server import stop_server
from databuild_dagster.warehouse.file_index import narrowed
from databuild_dagster.warehouse.filters import parsed_filter
from databuild_dagster.warehouse.manifest import file_paths, read_manifests

DAYS = [str(date(2013, 1, 1) + timedelta(days=n)) for n in range(365)]
FLIGHT = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")
RULES: list[dict[str, Any]] = [
    {"rule": "not_null", "column": "carrier"},
    {"rule": "range", "column": "dep_delay", "low": -120, "high": 1500},
    {"rule": "unique", "columns": list(FLIGHT)},
    {"rule": "expression", "sql": "arr_delay is null or air_time > 0"},
    {"rule": "narrow_type", "column": "flight", "type": "smallint"},
]
#: What a selective reader asks for.
WHERE = "month = 12 and day > 20"


class Year(NamedTuple):
    """A home with the flights of a year, and who operates on them."""

    home: Path
    resources: Any
    manager: Any
    n_files: int
    paths: list[str]

    def operate(self, type_name: str, arg: Any) -> tuple[float, Any]:
        """Seconds from its start to its end, and its report."""
        began = time.perf_counter()
        id = self.manager.start(type_name, "flights", arg)
        executor = executor_of(self.manager, self.resources)
        run_jobs(executor, id, jobs_at_once(self.manager, id), pause=threading.Event().wait)
        Coordinator(self.manager).coordinate()
        seconds = time.perf_counter() - began
        view = self.manager.operation(id)
        assert view.done == len(DAYS), view
        return seconds, view.report


@contextmanager
def year_of_flights() -> Iterator[Year]:
    """Built by the example's own asset."""
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        home = Path(name)
        shutil.copy(ROOT / "dagster.yaml", home)
        try:
            databuild(home, "build", *(f"flights@{day}" for day in DAYS))
            with open_instance(home) as instance:
                deployment = Deployment()
                resources = operation_resources(instance, deployment)
                manager = manager_of(resources, deployment, actor="bench")
                live = resources.engine.queries.instances.live("flights")
                manifests = read_manifests(resources.warehouse, "flights", [instance.uuid for instance in live])
                paths = [path for manifest in manifests for path in file_paths(resources.warehouse, manifest)]
                yield Year(home, resources, manager, len(paths), paths)
        finally:
            close_sessions()
            stop_server(home)


def validate(year: Year, rounds: int) -> None:
    spark = year.resources.spark
    ours, by_hand = [], []
    for turn in range(rounds + 1):
        seconds, found = _by_hand(spark, year.paths)
        taken, report = year.operate("validate", {"constraints": RULES})
        answer = [rule["offending"] for rule in report["rules"]]
        assert answer == found, (answer, found)
        if turn:
            ours.append(taken)
            by_hand.append(seconds)
    operation, job = statistics.median(ours), statistics.median(by_hand)
    print(f"| {len(DAYS)} partitions, {year.n_files} files, {len(RULES)} rules | s | × by hand |")
    print("|---|---:|---:|")
    print(f"| one Spark job by hand | {job:.2f} ({_range(by_hand)}) | 1 |")
    print(f"| `validate`, from its start to its report | {operation:.2f} ({_range(ours)}) | {operation / job:.2f} |\n")


def _by_hand(spark: Any, paths: list[str]) -> tuple[float, list[int]]:
    """Rows that offend each rule, of each day; its seconds, and the sums."""
    import pyspark.sql.functions as F
    from pyspark.sql import Window

    began = time.perf_counter()
    flights = spark.read.parquet(*paths)
    same = F.count(F.lit(1)).over(Window.partitionBy(*FLIGHT))
    is_named = F.expr(" and ".join(f"{column} is not null" for column in FLIGHT))
    flags = [
        F.col("carrier").isNull(),
        ~F.col("dep_delay").between(-120, 1500),
        is_named & (same > 1),
        ~F.expr("arr_delay is null or air_time > 0"),
        F.expr(
            "flight <> try_cast(flight as smallint) or (flight is not null and try_cast(flight as smallint) is null)"
        ),
    ]
    flagged = flights.select("month", "day", *(flag.alias(f"flag{n}") for n, flag in enumerate(flags)))
    counts = [F.count_if(f"flag{n}").alias(f"flag{n}") for n in range(len(flags))]
    rows = flagged.groupBy("month", "day").agg(F.count(F.lit(1)).alias("rows"), *counts).collect()
    assert len(rows) == len(DAYS)
    return time.perf_counter() - began, [sum(row[f"flag{n}"] for row in rows) for n in range(len(flags))]


def index(year: Year) -> None:
    spark = year.resources.spark
    seconds, report = year.operate("build_index", {})
    queries, warehouse = year.resources.engine.queries, year.resources.warehouse
    live = [live_instance.uuid for live_instance in queries.instances.live("flights")]
    _, read = narrowed(warehouse, read_manifests(warehouse, "flights", live), parsed_filter(WHERE))
    times = {}
    answers = {}
    for name, where in (("all", None), ("selected", WHERE)):
        began = time.perf_counter()
        frame = table("flights", where=where, spark=spark, home=year.home)
        frame = frame.where(WHERE) if where is None else frame
        answers[name] = sorted(json.dumps(row.asDict(), default=str) for row in frame.collect())
        times[name] = time.perf_counter() - began
    assert answers["all"] == answers["selected"], "an index changes no answer"
    print("| `build_index`, all columns, s | files read | of | % | rows, both ways | that read, s | reading all, s |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {seconds:.1f} | {read.files} | {read.of} | {100 * read.files / read.of:.1f} | {len(answers['all']):,} "
        f"| {times['selected']:.2f} | {times['all']:.2f} |\n"
    )
    assert report["files"] == year.n_files, report


def _range(seconds: list[float]) -> str:
    return f"{min(seconds):.2f} to {max(seconds):.2f}"
