"""What published tables cost, without a Spark job and without a copy (rule 10.10).

    python -m bench.publish [--partitions N] [--moves N] [--formats iceberg delta]
    python -m bench.publish --share

- first: a table over N partitions of one file each: contents from the manifests, footers, and the first snapshot.
- move: a rebuilt partition becomes the next snapshot, from the tick that finds it to the commit; the median of M moves, and the
  manifests that are new after all of them.
  Seconds are those of this process's processors, and in brackets those of the clock.
- overwrite: the same move by pyiceberg's own `overwrite()`, once, on a table that our publisher has made.
- share: the example's year with each of its tables published as Iceberg, on a warm Spark server: the processor seconds of all
  publications, beside those of the build, which are this package's process and Spark's.

The files are hard links to one file, because only their number counts. Prints Markdown, for docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table as PyIcebergTable

from bench import pipeline
from databuild_dagster.features.tables.iceberg import IcebergTable
from databuild_dagster.features.tables.opening import open_table
from databuild_dagster.features.tables.port import Contents, Mark, Partition, Place, TableFile
from databuild_dagster.model.datasets import PartitionColumn, PartitionType, TableFormat, TableSpec
from databuild_dagster.spark.server import stop_server
from databuild_dagster.warehouse.layout import Warehouse

COLUMN = PartitionColumn("day", PartitionType.DATE, "%Y-%m-%d")
FIRST_DAY = date(1800, 1, 1)
STORE = "bench"
#: Links to one file that a file system allows, with some room.
MAX_LINKS = 30_000


class Watch:
    """Seconds of this process's processors, and of the clock."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        self.found = (0.0, 0.0)

    def stop(self) -> tuple[float, float]:
        self.found = (time.process_time() - self._cpu, time.perf_counter() - self._wall)
        return self.found

    def __str__(self) -> str:
        return f"{self.found[0]:.1f} s ({self.found[1]:.1f})"


def place_in(folder: Path, format: TableFormat) -> Place:
    spec = TableSpec(format=format, name="bench.table" if format is TableFormat.ICEBERG else "", columns=(COLUMN,))
    return Place("table", spec, Warehouse(str(folder / format.value)))


def linked(place: Place, names: Sequence[str]) -> list[TableFile]:
    """Files of the table, which are links to one file of 100 rows."""
    root = Path(place.root, "data")
    root.mkdir(parents=True, exist_ok=True)
    files = []
    for number, name in enumerate(names):
        source, path = root / f"source-{number // MAX_LINKS}.parquet", root / f"instance={name}" / "part-0.parquet"
        if not source.exists():
            pq.write_table(pa.table({"x": range(100), "name": [f"row {row}" for row in range(100)]}), source)
        path.parent.mkdir()
        os.link(source, path)
        files.append(TableFile(str(path), source.stat().st_size, 100))
    return files


def measure(place: Place, n_partitions: int, n_moves: int) -> None:
    days: list[Partition] = [(FIRST_DAY + timedelta(days=day),) for day in range(n_partitions)]
    files: Mapping[Partition, Sequence[TableFile]] = {
        day: [file]
        for day, file in zip(days, linked(place, [f"first-{day}" for day in range(n_partitions)]), strict=True)
    }
    first = Watch()
    open_table(place).replace(Contents(files, True), Mark(STORE, 1), None)
    first.stop()
    before = manifests_of(place)
    moves = []
    for move in range(n_moves):
        (file,) = linked(place, [f"move-{move}"])
        day = days[(move * 7_919) % n_partitions]
        watch = Watch()
        table = open_table(place)
        mark = table.mark()
        table.replace(Contents({day: [file]}, False), Mark(STORE, move + 2), mark)
        moves.append(watch.stop())
    after = manifests_of(place)
    manifests = f"{before} → {after}" if before else "—"
    cpu, wall = (statistics.median(found) for found in zip(*moves, strict=True))
    print(
        f"| {place.spec.format.value} | {n_partitions:,} | {first} | {cpu:.2f} s ({wall:.2f}) | {manifests} |",
        flush=True,
    )


def manifests_of(place: Place) -> int:
    table = pyiceberg_table(place)
    snapshot = None if table is None else table.current_snapshot()
    return 0 if table is None or snapshot is None else len(snapshot.manifests(table.io))


def pyiceberg_table(place: Place) -> PyIcebergTable | None:
    if place.spec.format is not TableFormat.ICEBERG:
        return None
    return IcebergTable(place).loaded()


def overwrite(place: Place) -> Watch:
    """One move by pyiceberg's own snapshot."""
    table = pyiceberg_table(place)
    assert table is not None
    (task, *_) = table.scan(row_filter=f"day = '{FIRST_DAY + timedelta(days=1)}'").plan_files()
    watch = Watch()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        update.delete_data_file(task.file)
    watch.stop()
    return watch


def share() -> None:
    """Build the year once, after a build that warms Spark."""
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        home = Path(name)
        shutil.copy(pipeline.ROOT / "dagster.yaml", home)
        try:
            pipeline.databuild(home, "build", pipeline.WARM_UP)
            pipeline.empty(home)
            before = spark_cpu_seconds(home)
            _, answer = pipeline.run(home, "bench.published_year", *pipeline.refs_of_the_year())
            of_spark = spark_cpu_seconds(home) - before
        finally:
            stop_server(home)
    total = answer["cpu_seconds"] + of_spark
    publishing = answer["publishing_cpu_seconds"]
    print("| tables | partitions | build, s | its processor time, s | of Spark, s | publishing, s | share |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {answer['tables']} | {answer['job_runs']:,} | {answer['seconds']:.0f} | {total:.0f} | {of_spark:.0f} "
        f"| {publishing:.1f} ({answer['looks']} looks) | {publishing / total:.1%} |"
    )


def spark_cpu_seconds(home: Path) -> float:
    """The processor seconds of the processes with this DAGSTER_HOME, but for this one."""
    total = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("DAGSTER_HOME") == str(home):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--formats", nargs="*", default=["iceberg", "delta"], choices=["iceberg", "delta"])
    parser.add_argument("--share", action="store_true", help="measure the example's year instead")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    if given.share:
        share()
        return
    print("| format | partitions | first snapshot | one move, median | manifests |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for format in map(TableFormat, given.formats):
            place = place_in(Path(folder), format)
            measure(place, given.partitions, given.moves)
            if format is TableFormat.ICEBERG:
                print(f"| pyiceberg's `overwrite()` | {given.partitions:,} | — | {overwrite(place)} | — |", flush=True)


if __name__ == "__main__":
    main()
