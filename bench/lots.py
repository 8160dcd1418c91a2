"""What lots cost, beside what they are made of.

    python -m bench.lots [--rounds N] [--only PART …]

- gaps: a report on a year of 5-minute lots (105,120), of which 10,000 are there, and of which 10,000 are absent: never
  wanted, failed, or in need of what failed. From the definition as the store has it to the
  report, and from there to its JSON.
- parts: a lot of 64 parts, one of which fails: what Spark's own counters say of the first attempt and of its retry, beside
  an asset without parts that has that part's rows only.
- publish: a manifest of 8 and of 200 files, against the file system alone: open, write, fsync and link of the same bytes
  under the same names, in turns; printed is what we take beyond that. And its copy under Clusterless's key, which a tick
  writes.
- keys: the processor time per key to check a key, to select a range of keys and to give its window, from a year of partitions,
  and for Dagster to check it. The floor is `strptime` and `strftime` of the key.
- arrivals, launch: what arrives in a landing folder becomes lots, and what subscribes to them is launched
  (`bench.arrivals`, which can do more).

Prints Markdown, for docs/performance.md.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from dagster import TimeWindowPartitionsDefinition

from bench.arrivals import arrivals, launches
from bench.engine.filling import BULK, LOCATION, AnyPartition, built, lease
from bench.parts import parts
from databuild_dagster.bindings.adapter.dagster_private import key_of_window, windows_from
from databuild_dagster.bindings.registry.catalog import DagsterCatalog, windows_of
from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.bindings.registry.selections import refs_named
from databuild_dagster.bindings.registry.window_keys import lots_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import json_of
from databuild_dagster.features.lots.copies.copies import lot_folder, manifest_copy, put_copies
from databuild_dagster.features.lots.gap_ranges import gaps_of_dataset
from databuild_dagster.features.lots.gaps import GapReport, gap_report
from databuild_dagster.model.commands import FailJobRuns, MissDeps, RegisterDatasets, RunFailure, RunMiss
from databuild_dagster.model.datasets import DatasetSpec, InputSpec
from databuild_dagster.model.lots import UNITS, lot_at
from databuild_dagster.model.refs import Ref, derive_partition_uuid, make_ref, partition_key_of
from databuild_dagster.store.store import open_store
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Column,
    FileEntry,
    Manifest,
    ManifestState,
    TableSchema,
    manifest_text,
    write_manifest,
)

T = TypeVar("T")

PARTS = ("gaps", "keys", "parts", "publish", "arrivals", "launch")
#: Manifests written in a round of "publish", and the files that each lists.
N_MANIFESTS = 200
N_FILES = (8, 200)
YEAR = TimeWindowPartitionsDefinition(
    start="2023-01-01-00:00", end="2024-01-01-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule="*/5 * * * *"
)
MINUTES = "%Y-%m-%d-%H:%M"
#: Keys of a year that are asked for.
N_KEYS = 800
SCHEDULES = (
    ("* * * * *", "UTC"),
    ("* * * * *", "Europe/Berlin"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("*/10 8-18 * * 1-5", "UTC"),
    ("0 6 * * *", "Europe/Berlin"),
)
N_SOME = 10_000
#: Of them how many failed, and how many wait for another that failed.
N_FAILED, N_WAITING = 2_000, 2_000
NOW = datetime(2025, 1, 1, tzinfo=UTC).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured; printed is the median")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}\n")
    if "gaps" in arguments.only:
        gaps(arguments.rounds)
    if "keys" in arguments.only:
        keys()
    if "parts" in arguments.only:
        parts(arguments.rounds)
    if "publish" in arguments.only:
        publish(arguments.rounds)
    if "arrivals" in arguments.only:
        arrivals()
    if "launch" in arguments.only:
        launches()


def keys() -> None:
    print(
        "| schedule | check, ms | range, ms | window, ms | Dagster's check, ms | floor, ms |\n|---|---|---|---|---|---|"
    )
    for schedule, zone in SCHEDULES:
        spent = [_processor_ms(work) / n for n, work in _ways_of_keys(schedule, zone)]
        print(f"| `{schedule}`, {zone} | {' | '.join(f'{ms:.3f}' for ms in spent)} |", flush=True)


def _ways_of_keys(schedule: str, zone: str) -> list[tuple[int, Callable[[], object]]]:
    """For each column the number of keys, and the work."""
    partitions = TimeWindowPartitionsDefinition(
        start="2024-01-01-00:00", fmt=MINUTES, cron_schedule=schedule, timezone=zone
    )
    dataset = DatasetSpec("flights", "flights", LOCATION, partitions=partitions_text(partitions))
    first = datetime(2024, 6, 1, tzinfo=UTC).timestamp()
    some = [key_of_window(partitions, window.start) for window in islice(windows_from(partitions, first), N_KEYS)]
    catalog = DagsterCatalog(cast("Any", None))
    name = make_ref("flights", f"{some[0]}..{some[-1]}")
    return [
        (N_KEYS, lambda: catalog.absent(dataset, some)),
        (N_KEYS, lambda: refs_named(dataset, name, lambda: None)),
        (N_KEYS, lambda: [windows_of(partitions, key) for key in some]),
        (10, lambda: [partitions.has_partition_key(key) for key in some[:10]]),
        (N_KEYS, lambda: [datetime.strptime(key[:16], MINUTES).strftime(MINUTES) for key in some]),
    ]


def _processor_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def gaps(rounds: int) -> None:
    print(
        "| a year of 5-minute lots | lots | absent | report, s | of the processor, s | its JSON, s |\n|---|---|---|---|---|---|"
    )
    for name, fill in (("10,000 present", _few_present), ("10,000 absent, for three causes", _few_absent)):
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(open_store(f"sqlite:///{Path(folder)}/lots.db"), AnyPartition())
            flights = DatasetSpec("flights", "flights", LOCATION, partitions=partitions_text(YEAR))
            carriers = DatasetSpec(
                "carriers", "carriers", LOCATION, partitions=flights.partitions, inputs=(InputSpec("flights"),)
            )
            engine.handle(RegisterDatasets(location=LOCATION, datasets=(flights, carriers)))
            fill(engine, [Ref(f"carriers@{key}") for key in YEAR.get_partition_keys()])
            reports, seconds, busy = _timed(rounds, lambda engine=engine: _report(engine))  # type: ignore[misc]
            _, as_json, _ = _timed(rounds, lambda report=reports[-1]: json.dumps(json_of(gaps_of_dataset(report))))  # type: ignore[misc]
            report = reports[-1]
            print(
                f"| {name} | {report.n_expected:,} | {len(report.absent):,} | {statistics.median(seconds):.3f} "
                f"| {statistics.median(busy):.3f} | {statistics.median(as_json):.3f} |"
            )


def _report(engine: Engine) -> GapReport:
    dataset = engine.queries.datasets.get("carriers")
    assert dataset is not None
    return gap_report(engine, lots_of(dataset).expected(NOW))


def _few_present(engine: Engine, refs: list[Ref]) -> None:
    built(engine, refs[:: len(refs) // N_SOME][:N_SOME])


def _few_absent(engine: Engine, refs: list[Ref]) -> None:
    absent = refs[:: len(refs) // N_SOME][:N_SOME]
    left = set(absent)
    for some in _bulks([ref for ref in refs if ref not in left]):
        built(engine, some)
    failed, waiting = absent[:N_FAILED], absent[N_FAILED : N_FAILED + N_WAITING]
    needed = {ref: Ref(f"flights@{partition_key_of(ref)}") for ref in waiting}
    missed = lease(engine, waiting)
    misses = tuple(RunMiss(job_run, {ref: (needed[ref],)}) for ref, job_run in missed.items())
    engine.handle(MissDeps(misses=misses))
    for refs_failed, want in ((failed, True), (list(needed.values()), False)):
        runs = lease(engine, refs_failed, want=want).values()
        engine.handle(FailJobRuns(failures=tuple(RunFailure(job_run, "the disk is full", "hard") for job_run in runs)))


def publish(rounds: int) -> None:
    print(
        "\n| one manifest | bytes | the file system alone, ms | published, ms | beyond it, ms | its copy, ms |"
        "\n|---|---|---|---|---|---|"
    )
    for n_files in N_FILES:
        alone, ours, beyond, copies, size_bytes = [], [], [], [], 0
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                warehouse = Warehouse(f"{folder}/warehouse")
                raw, written, copied = [], [], []
                for number in range(N_MANIFESTS):
                    manifest = _manifest(number, n_files)
                    contents = manifest_text(manifest).encode()
                    size_bytes = len(contents)
                    # The folder is there before the manifest, for the data is; and a hiccup of the disk meets both.
                    plain = f"{folder}/plain/{number}"
                    os.makedirs(plain)
                    os.makedirs(warehouse.instance_dir(manifest.dataset, manifest.instance_uuid))
                    raw.append(_seconds(partial(_raw_publish, plain, contents)))
                    written.append(_seconds(partial(write_manifest, warehouse, manifest)))
                    copied.append(_seconds(partial(_copy, warehouse, manifest)))
            alone.append(statistics.median(raw))
            ours.append(statistics.median(written))
            copies.append(statistics.median(copied))
            beyond.append(statistics.median(mine - floor for mine, floor in zip(written, raw, strict=True)))
        answer = (f"{statistics.median(item) * 1000:.2f}" for item in (alone, ours, beyond, copies))
        print(f"| {n_files} files | {size_bytes:,} | {' | '.join(answer)} |")


def _raw_publish(folder: str, contents: bytes) -> None:
    """What `create_only` asks of the file system, and nothing else."""
    temporary, path = f"{folder}/.manifest.json.0123456789abcdef", f"{folder}/manifest.json"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, contents)
    os.fsync(descriptor)
    os.close(descriptor)
    os.link(temporary, path)
    os.unlink(temporary)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _copy(warehouse: Warehouse, manifest: Manifest) -> None:
    folder = lot_folder(warehouse, manifest.dataset, "0", manifest.lot_id)
    path, contents = manifest_copy(warehouse, folder, manifest)
    put_copies(warehouse, folder, {path: contents})


def _manifest(number: int, n_files: int) -> Manifest:
    lot = lot_at(NOW + number * 300, UNITS["PT5M"])
    job_run = f"0190b6a0-0000-7000-8000-{number:012}"
    ref = Ref(f"raw/flights@{lot}")
    columns = tuple(Column(f"column_{place}", "string", True) for place in range(19))
    checksum = "sha256:" + "0123456789abcdef" * 4
    return Manifest(
        dataset="raw/flights",
        ref=ref,
        lot_id=str(lot),
        instance_uuid=derive_partition_uuid(job_run, ref),
        job_run=job_run,
        attempt=1,
        state=ManifestState.COMPLETE,
        files=tuple(
            FileEntry(f"part-{place:05}-{job_run}-c000.snappy.parquet", 123_456, 1_000, checksum)
            for place in range(n_files)
        ),
        created_at=datetime(2025, 1, 1, tzinfo=UTC),
        schema=TableSchema(columns, json.dumps([msgspec.structs.asdict(column) for column in columns])),
        inputs={Ref(f"raw/days@{lot}"): job_run},
    )


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _bulks(refs: list[Ref]) -> Iterator[list[Ref]]:
    for first in range(0, len(refs), BULK):
        yield refs[first : first + BULK]


def _timed(rounds: int, call: Callable[[], T]) -> tuple[list[T], list[float], list[float]]:
    """The last answer, and how long each took by the clock and of the processor, which others may be using too."""
    answers: list[T] = []
    seconds, busy = [], []
    for _ in range(rounds):
        began, began_busy = time.perf_counter(), time.process_time()
        answers = [call()]
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - began_busy)
    return answers, seconds, busy


if __name__ == "__main__":
    main()
