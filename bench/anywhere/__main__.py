"""The example by a Spark that writes and reads a bucket itself, against a plain script on the same Spark and bucket.

    python -m bench.anywhere [--spark sail jvm] [--store moto] [--range january year] [--rounds N] [--latency 0 20] [--at-once 1 4]

- The store is moto's S3 server, in a process of its own, which answers one request after the other and so limits both sides
  (`bench.anywhere.store`), or SeaweedFS, which answers them together (`bench.anywhere.way`). Requests and bytes of the builder and of
  Spark are counted apart. With `--latency` each request waits so many milliseconds more, as on the way to a store in a data center;
  the requests wait at the same time.
- `sail`: Sail in its own mount namespace, where the folders of the bench are empty. It writes to the bucket by itself.
- `jvm`: a Spark Connect server of PySpark, which reaches the bucket through a WebHDFS gateway in the process of the bench.
- ours: `bench.timed_build`, a process of its own, on an empty home, with `--at-once` launches at a time. floor:
  `bench.plain_spark`. They take turns on one server, after one round of the floor that warms it up.

- A build into a folder that Sail does not see: `bench.anywhere.unseen`.

Seconds are those of a machine with other work, too; processor seconds are of the processes that work for a build.

Prints Markdown, for docs/performance.md.
"""

import argparse
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import plain_spark
from bench.anywhere.stores import STORES, Store
from bench.anywhere.unseen import Refusal, refused_build
from bench.pipeline import FLIGHTS_OF_THE_YEAR, REF, ROOT, empty, refs_of_the_year, run, seconds_by_job
from databuild_dagster.spark.server import stop_server, use_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings
from tests.support.hadoop_bucket import hadoop_bucket
from tests.support.object_store import ENVIRONMENT, S3Server
from tests.support.spark_elsewhere import start_sail

BUCKET = "bench"
RANGES = {
    "january": (plain_spark.JANUARY, plain_spark.MONTH_TABLES),
    "year": (plain_spark.YEAR, plain_spark.ALL_TABLES),
}


class Processor(NamedTuple):
    """Processor seconds of Spark, of the store, and of the process that gives the work."""

    spark: float
    store: float
    client: float


class Clock:
    """The processor time of all that works for a build: it does not count the other work of the machine."""

    def __init__(self, spark_pid: int, store_pids: Sequence[int]) -> None:
        self._pids = ((spark_pid,), store_pids)
        self._last = self._now()

    def taken(self) -> Processor:
        """Since the last call."""
        before, self._last = self._last, self._now()
        return Processor(*(now - then for now, then in zip(self._last, before, strict=True)))

    def _now(self) -> Processor:
        spark, store = (sum(map(_processor_seconds, pids)) for pids in self._pids)
        return Processor(spark, store, sum(os.times()[:4]))


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Round(NamedTuple):
    """Seconds of both, the figures of the builder, and the data of its warehouse."""

    floor: float
    building: float
    #: Until the copies for other tools are written, too.
    with_copies: float
    floor_processor: Processor
    processor: Processor
    dagster_writes: float
    jobs: dict[str, float]
    builder: dict[str, Any]
    spark: dict[str, Any]
    floor_spark: dict[str, Any]
    n_job_runs: int
    n_files: int
    data_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description="The example by a Spark where the data is.")
    parser.add_argument("--spark", nargs="+", choices=["sail", "jvm"], default=["sail"])
    parser.add_argument("--store", choices=STORES, default="moto")
    parser.add_argument("--range", nargs="+", choices=RANGES, default=list(RANGES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0], help="milliseconds that each request waits")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1], help="launches of ours at a time")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    for kind, latency in itertools.product(options.spark, options.latency):
        with (
            tempfile.TemporaryDirectory(prefix="databuild-bench-") as name,
            STORES[options.store](latency, Path(name)) as store,
        ):
            store.client().create_bucket(Bucket=BUCKET)
            with running_spark(kind, store, Path(name)) as (url, pid):
                print(f"\n## {kind}, a store ({options.store}) that answers after {latency:g} ms", flush=True)
                if kind == "sail":
                    report_refusal(refused_build(url, new_home(Path(name), "unseen")))
                for period, at_once in itertools.product(options.range, options.at_once):
                    print(f"\n### {period}, {at_once} launches at a time", flush=True)
                    place = Place(period, at_once, url, store, Clock(pid, store.pids), Path(name))
                    report(kind, period, in_turns(place, options.rounds))


class Place(NamedTuple):
    """What is built, by which Spark, and where."""

    period: str
    at_once: int
    url: str
    store: Store
    clock: Clock
    folder: Path

    @property
    def prefix(self) -> str:
        """Below it, every round has a folder of its own."""
        return f"{self.period}/at-once-{self.at_once}"


def in_turns(place: Place, rounds: int) -> list[Round]:
    spark = open_session(SparkSettings(mode="remote", url=place.url))
    months, tables = RANGES[place.period]
    store, clock = place.store, place.clock

    def floor(number: int) -> float:
        warehouse = f"{scheme(place.url)}://{BUCKET}/{place.prefix}/floor-{number}"
        return plain_spark.run(spark, warehouse, months, tables)["total"]

    floor(0)
    found = []
    for number in range(1, rounds + 1):
        store.figures()
        clock.taken()
        seconds, of_floor = floor(number), clock.taken()
        ours = round_of(number, place)
        found.append(ours._replace(floor=seconds, floor_processor=of_floor))
    spark.stop()
    return found


def round_of(number: int, place: Place) -> Round:
    """A round of ours, without the floor's figures."""
    period, at_once, url, store, clock, folder = place
    floor_spark = store.figures()["spark"]
    home = new_home(folder, period)
    prefix = f"{place.prefix}/ours-{number}"
    environment = {
        "AWS_ENDPOINT_URL": store.urls["builder"],
        "BENCH_SPARK": url,
        "BENCH_WAREHOUSE": f"s3://{BUCKET}/{prefix}",
        "DATABUILD_CACHE_DIR": str(home / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    refs = [REF] if period == "january" else refs_of_the_year()
    clock.taken()
    _, answer = run(home, "bench.timed_build", f"--at-once={at_once}", *refs, folder=home, **environment)
    processor, figures = clock.taken(), store.figures()
    if period == "year":
        _, rows = run(home, "databuild_dagster", "read", "year_report", "--json", folder=home, **environment)
        assert sum(row["flights"] for row in rows) == FLIGHTS_OF_THE_YEAR, rows
    data = data_below(store, prefix)
    return Round(
        floor=0.0,
        building=answer["seconds"],
        with_copies=answer["with_copies"],
        floor_processor=processor,
        processor=processor,
        dagster_writes=answer["dagster_writes"],
        jobs=seconds_by_job(home),
        builder=figures["builder"],
        spark=figures["spark"],
        floor_spark=floor_spark,
        n_job_runs=answer["job_runs"],
        n_files=len(data),
        data_bytes=sum(data),
    )


def new_home(folder: Path, name: str) -> Path:
    """An empty Dagster home, which is also the folder of the project."""
    home = folder / f"home-{name}"
    home.mkdir(exist_ok=True)
    empty(home)
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    (home / "workspace.yaml").write_text("load_from:\n  - python_module: bench.anywhere.deployed\n")
    return home


def data_below(store: Store, prefix: str) -> list[int]:
    """The bytes of each data file of a warehouse."""
    pages = store.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
    entries = [entry for page in pages for entry in page.get("Contents", ())]
    return [entry["Size"] for entry in entries if entry["Key"].endswith(".parquet")]


@contextmanager
def running_spark(kind: str, store: Store, folder: Path) -> Iterator[tuple[str, int]]:
    """Url and process id of a Spark Connect server that reaches the bucket."""
    server = S3Server(store.urls["spark"])
    if kind == "sail":
        sail = start_sail(server, [folder], folder / "sail.log")
        try:
            yield sail.url, sail.process.pid
        finally:
            sail.process.kill()
            sail.process.wait()
        return
    home = folder / "jvm"
    home.mkdir()
    with hadoop_bucket(server, BUCKET, folder) as config:
        try:
            server_record = use_server(SparkSettings(home=home, config=config))
            yield server_record.url, server_record.pid
        finally:
            stop_server(home)


def scheme(url: str) -> str:
    """By which the floor names the bucket: a JVM has `s3a` alone."""
    return "s3a" if "token=" in url else "s3"


def report_refusal(refusal: Refusal) -> None:
    print("\n| a Spark that does not see the warehouse | |\n|---|---|")
    print(f"| the whole command | {refusal.seconds:.1f} s, at load {os.getloadavg()[0]:.0f} |")
    print(f"| exit code, job runs, wants | {refusal.exit_code}, {refusal.job_runs}, {refusal.wants} |")
    print(f"\n    {refusal.sentence}", flush=True)


def report(kind: str, period: str, rounds: list[Round]) -> None:
    first = rounds[0]
    print(f"\n{kind}, {period}: medians of {len(rounds)} rounds; load {os.getloadavg()[0]:.1f}\n")
    print(f"| {first.n_job_runs:,} partitions | seconds | × floor |\n|---|---|---|")
    print(f"| plain script | {median(one.floor for one in rounds):.1f} | 1.0 |")
    without = [(one.building - one.dagster_writes, one.floor) for one in rounds]
    for name, seconds in (
        ("ours without Dagster's own writes", without),
        ("ours with them", [(one.building, one.floor) for one in rounds]),
        ("ours until the copies for other tools are written", [(one.with_copies, one.floor) for one in rounds]),
    ):
        print(f"| {name} | {median(taken for taken, _ in seconds):.1f} | {median(a / b for a, b in seconds):.2f} |")
    print("\n| processor seconds | plain script | ours | ratio |\n|---|---|---|---|")
    for place, name in enumerate(("Spark", "the store", "the script; the process that builds, with its start")):
        report_processor(name, [(one.floor_processor[place], one.processor[place]) for one in rounds])
    report_processor("all", [(sum(one.floor_processor), sum(one.processor)) for one in rounds])
    print("\n| where ours goes | seconds |\n|---|---|")
    for job in first.jobs:
        print(f"| building {job} | {median(one.jobs[job] for one in rounds):.1f} |")
    print(f"| between launches | {median(one.building - sum(one.jobs.values()) for one in rounds):.1f} |")
    print("\n| between builder and store | |\n|---|---|")
    print(f"| data in the bucket: files, bytes | {first.n_files:,}, {first.data_bytes:,} |")
    print(f"| bytes from the store to the builder | {median(one.builder['sent'] for one in rounds):,.0f} |")
    print(f"| bytes from the builder to the store | {median(one.builder['received'] for one in rounds):,.0f} |")
    for name, count in sorted(first.builder["requests"].items()):
        contents = first.builder["contents"].get(name)
        size = "" if contents is None else f", {contents:,} bytes"
        print(f"| {name} | {count:,} ({count / first.n_job_runs:.2f} per partition){size} |")
    for side, figures in (("ours", first.spark), ("plain script", first.floor_spark)):
        requests = figures["requests"]
        print(f"| requests of Spark: {side} | {sum(requests.values()):,}: {by_operation(requests)} |", flush=True)


def by_operation(requests: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(requests.items()))


def report_processor(name: str, seconds: list[tuple[float, float]]) -> None:
    plain, ours = (median(side) for side in zip(*seconds, strict=True))
    print(f"| {name} | {plain:.1f} | {ours:.1f} | {ours / plain if plain else 0:.2f} |")


if __name__ == "__main__":
    main()
