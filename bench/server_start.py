"""The start of a local Spark server and its first jobs: processor time and memory with and without the archive of its classes.

    python -m bench.server_start [--rounds N]

Each server has a home of its own, and the kinds take turns. The jobs are three of each of a write, a join and a small frame.
"""

import argparse
import os
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

from bench.processor import processor_of_servers
from bench.results import record
from databuild_dagster.spark.class_archive import archive_for, write_archive
from databuild_dagster.spark.installed import JVM_OPTIONS, find_java
from databuild_dagster.spark.server import _pyspark_version, _spark_home, server_statuses, stop_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings

#: As Java has them: what the package gives comes before, and the last one counts.
DEFAULT_COMPILER = (
    "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 "
    "-XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000"
)
KINDS = {
    "Java's defaults": (DEFAULT_COMPILER, False),
    "the second compiler waits": ("", False),
    "the same, with the archive": ("", True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The start of a Spark server, with and without the archive.")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as name:
        for number in range(options.rounds):
            for kind, (compiler, is_archived) in KINDS.items():
                os.environ["XDG_CACHE_HOME"] = str(Path(name, "with" if is_archived else "without"))
                os.environ[JVM_OPTIONS] = compiler
                archive = archive_for(find_java(), _spark_home(), _pyspark_version())
                if is_archived and archive is not None and not archive.exists():
                    write_archive(archive)
                found[kind].append(one_server(Path(name, f"{number} {kind}")))
    rows = []
    for kind, rounds in found.items():
        start, jobs, megabytes = (median(values) for values in zip(*rounds, strict=True))
        rows.append([kind, f"{start:.1f}", f"{jobs:.1f}", f"{megabytes:.0f}"])
        print(rows[-1], flush=True)
    command = f"python -m bench.server_start --rounds {options.rounds}"
    columns = ["a new server", "start, CPU s", "first jobs, CPU s", "memory, MB"]
    print(record("server-start", command, columns, rows, raw=found))


def one_server(home: Path) -> tuple[float, float, float]:
    """Processor seconds of the start and of the jobs, and the megabytes of the JVM after them."""
    home.mkdir()
    spark = open_session(SparkSettings(home=home))
    started = processor_of_servers(home)
    for number in range(3):
        rows = spark.range(1000).selectExpr("id", "id % 3 AS kind")
        rows.groupBy("kind").count().write.mode("overwrite").partitionBy("kind").parquet(f"{home}/rows")
        spark.read.parquet(f"{home}/rows").join(rows, "kind").orderBy("id").collect()
        spark.createDataFrame([(number, "a")], "id long, word string").filter("word = 'a'").collect()
    done = processor_of_servers(home)
    (server,) = server_statuses(home)
    resident = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
    spark.stop()
    stop_server(home)
    return started, done - started, int(resident) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
