"""The server's time for each page, over a store of many partitions. `python -m bench.pages --partitions 1000000`.

Each page is asked for after a new event, so that no answer kept for an unmoved log hides its cost. One asset has the
105,120 lots of a year of five minutes, all built.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
from starlette.testclient import TestClient

from bench.engine.filling import built, fill, lease, opened
from bench.flow import fill_flow, flow_paths
from databuild_dagster import databuild_asset
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.ids import new_id
from databuild_dagster.model.commands import CreateWants, FailJobRuns, RegisterDatasets, RunFailure
from databuild_dagster.model.refs import Ref
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State

LOTS = dg.TimeWindowPartitionsDefinition(
    start="2023-01-01-00:00", end="2024-01-01-00:00", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d-%H:%M"
)
LOCATION = "pages"
#: Refs of one command while the lots are built, lots that failed, and open wants.
BULK = 10_000
FAILED = 40
WANTS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000, help="beside the lots")
    parser.add_argument("--url", help="of an empty database, by default SQLite in a temporary folder")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        engine = opened(given.url or f"sqlite:///{Path(folder) / 'databuild.db'}")
        fill(engine, given.partitions)
        lots = fill_lots(engine)
        operations = fill_flow(engine, lots)
        head = engine.queries.head().seq
        print(f"{given.partitions + len(lots):,} partitions, {head:,} events")
        print(f"{'page':38} {'p50':>8} {'p95':>8} {'kB':>7}")
        for path in [*paths(engine, lots), *flow_paths(operations, lots)]:
            seconds, n_bytes = measured(engine, path, given.rounds)
            p95 = statistics.quantiles(seconds, n=20)[-1]
            print(
                f"{path[:38]:38} {1000 * statistics.median(seconds):5.0f} ms {1000 * p95:5.0f} ms {n_bytes / 1000:7.0f}"
            )
        engine.store.close()


def fill_lots(engine: Engine) -> list[Ref]:
    """The lots of a year, live but for a few that failed, with wants for others."""
    asset = dg.AssetsDefinition.from_op(
        _nothing, partitions_def=LOTS, keys_by_output_name={"result": dg.AssetKey("lots")}
    )
    specs = datasets_of(dg.Definitions(assets=[asset, _following]).get_repository_def().asset_graph, LOCATION)
    engine.handle(RegisterDatasets(location=LOCATION, datasets=specs))
    refs = [Ref(f"lots@{key}") for key in LOTS.get_partition_keys()]
    for first in range(0, len(refs) - FAILED, BULK):
        built(engine, refs[first : min(first + BULK, len(refs) - FAILED)])
    job_runs = lease(engine, refs[-FAILED:])
    failures = tuple(RunFailure(job_run, "the till was closed", "hard") for job_run in job_runs.values())
    engine.handle(FailJobRuns(failures=failures))
    engine.handle(CreateWants(wants=tuple((Ref(f"a@wanted-{n}"),) for n in range(WANTS)), ttl_seconds=None))
    return refs


@dg.op
def _nothing() -> None: ...


@databuild_asset(partitions_def=LOTS, subscribe="lots", name="following")
def _following(lots: pd.DataFrame) -> pd.DataFrame:
    return lots


def paths(engine: Engine, lots: Sequence[Ref]) -> list[str]:
    queries = engine.queries
    pair, root = Ref("b@00000001"), Ref("root@00000000")
    uuids = [found.uuid for found in queries.canonical([pair, root]).values() if found.uuid is not None]
    (want,) = queries.wants(most=1)
    return [
        "/",
        "/assets",
        "/calendar?dataset=lots",
        "/calendar?dataset=lots&within=2023-03-04",
        f"/calendar?dataset=lots&within=2023-12-31&ref={lots[-1]}",
        f"/partition?ref={lots[0]}",
        f"/partition?ref={lots[-1]}",
        f"/partition?ref={lots[0]}&as_of=100",
        "/wants",
        "/wants?ended=1&derivative=true",
        f"/want?name={want.id}",
        *(f"/api/v1/lineage?instance={uuid}" for uuid in uuids),
        "/api/v1/calendar?dataset=lots",
    ]


def measured(engine: Engine, path: str, rounds: int) -> tuple[list[float], int]:
    """The seconds of each round after the first, and the bytes of the answer."""
    client = TestClient(make_application(State(lambda: engine, None)))
    seconds: list[float] = []
    n_bytes = 0
    for number in range(rounds + 1):
        engine.handle(CreateWants(wants=((Ref(f"a@{new_id()}"),),), ttl_seconds=None))
        began = time.perf_counter()
        answer: Any = client.get(path)
        seconds.append(time.perf_counter() - began)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        n_bytes = len(answer.content) if number else 0
    return seconds[1:], n_bytes


if __name__ == "__main__":
    main()
