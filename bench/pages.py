"""The server's time for each page, over a store of many partitions and events; streams beside ticks; the first paint.

    python -m bench.pages --keep FOLDER [--partitions 1000000] [--events 5000000] [--database postgres]
    python -m bench.pages --streams 50
    python -m bench.pages --paint

Each page is asked for after a new event, so that no answer kept for an unmoved log hides its cost. One asset has the
105,120 lots of a year of five minutes, all built but the last ones, which failed. Prints Markdown: the wall's time, the
processor's time of this process with that of its client, of PostgreSQL's processes beside it, SQLite's steps, and
the bytes of the answer, which neither Dagster's server nor ours compresses.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pandas as pd
from starlette.testclient import TestClient

from bench.engine.filling import built, lease
from bench.flow import fill_flow, flow_paths
from bench.large_store import Kept, Size, kept_store
from bench.page_paint import print_paints
from bench.page_streams import print_streams
from databuild_dagster import databuild_asset
from databuild_dagster.bindings.adapter.dagster_web import leave_out_of_collections
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import CreateWants, FailJobRuns, RegisterDatasets, RunFailure
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.web.application import make_application
from databuild_dagster.web.state import State

LOTS = dg.TimeWindowPartitionsDefinition(
    start="2023-01-01-00:00", end="2024-01-01-00:00", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d-%H:%M"
)
LOCATION = "pages"
#: Refs of one command while the lots are built, lots that failed, open wants, and job runs at work.
BULK = 10_000
FAILED = 40
WANTS = 500
AT_WORK = 200
#: SQLite's steps between two counts.
STEPS = 1_000
#: Seconds in which a page must be served at the 95th percentile, by the beginning of its url; the first one holds.
LIMITS = {
    "/calendar?dataset=lots&": 0.1,
    "/calendar": 0.3,
    "/api/v1/calendar": 0.3,
    "/lineage": 0.2,
    "/api/v1/lineage": 0.2,
    "/api/v1/graph": 0.2,
    "/numbers": 0.3,
    "/": 0.1,
}


class Cost(NamedTuple):
    """What one page took."""

    wall: list[float]
    processor: list[float]
    #: Of each answer, by PostgreSQL's processes; None for SQLite.
    database: float | None
    #: Of SQLite's virtual machine; None for PostgreSQL.
    steps: int | None
    n_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000, help="beside the lots")
    parser.add_argument("--events", type=int, default=500_000, help="at least")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--keep", type=Path, help="the folder of stores that later runs use again")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="a part of the urls of pages")
    parser.add_argument("--streams", type=int, help="measure a tick beside so many event streams")
    parser.add_argument("--paint", action="store_true", help="measure the first paint of the example's pages")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        if given.streams:
            print_streams(Path(folder), given.streams, given.rounds)
        elif given.paint:
            print_paints(Path(folder), given.rounds)
        else:
            size = Size(given.partitions, given.events)
            with kept_store(given.keep or Path(folder), given.database, size, fill_lots) as kept:
                print_pages(kept, given.rounds, given.only)


def print_pages(kept: Kept, rounds: int, only: str) -> None:
    """A line for each page."""
    # As our web server does.
    leave_out_of_collections()
    engine = kept.engine
    n_refs = sum(n for _, _, n in engine.queries.datasets.ref_counts())
    print(f"{n_refs:,} built partitions, {engine.queries.events.head().seq:,} events, {kept.database}\n")
    print("| page | p50, ms | p95, ms | processor p50 | p95 | database, ms | 1,000 steps | kB | limit |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in paths(engine):
        if only in path:
            print(_line(path, measured(kept, path, rounds)), flush=True)


def _line(path: str, cost: Cost) -> str:
    limit = next(seconds for beginning, seconds in LIMITS.items() if path.startswith(beginning))
    late = _p95(cost.processor) + (cost.database or 0.0) > limit
    figures = [statistics.median(cost.wall), _p95(cost.wall), statistics.median(cost.processor), _p95(cost.processor)]
    cells = [f"{1000 * seconds:.0f}" for seconds in figures]
    cells.append("" if cost.database is None else f"{1000 * cost.database:.0f}")
    cells += ["" if cost.steps is None else f"{cost.steps / 1000:,.0f}", f"{cost.n_bytes / 1000:,.0f}"]
    shown = path if len(path) < 60 else f"{path[:57]}..."
    return f"| `{shown}` | {' | '.join(cells)} | {1000 * limit:.0f}{' NO' if late else ''} |"


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20, method="inclusive")[-1]


def fill_lots(engine: Engine) -> None:
    """The lots of a year, live but for a few that failed, with wants for others and job runs at work."""
    asset = dg.AssetsDefinition.from_op(
        _nothing, partitions_def=LOTS, keys_by_output_name={"result": dg.AssetKey("lots")}
    )
    specs = datasets_of(dg.Definitions(assets=[asset, _following, _wide]).get_repository_def().asset_graph, LOCATION)
    engine.handle(RegisterDatasets(location=LOCATION, datasets=specs))
    refs = lots()
    for first in range(0, len(refs) - FAILED, BULK):
        built(engine, refs[first : min(first + BULK, len(refs) - FAILED)])
    job_runs = lease(engine, refs[-FAILED:])
    failures = tuple(RunFailure(job_run, "the till was closed", "hard") for job_run in job_runs.values())
    engine.handle(FailJobRuns(failures=failures))
    engine.handle(CreateWants(wants=tuple((Ref(f"a@wanted-{n}"),) for n in range(WANTS)), ttl_seconds=None))
    lease(engine, [Ref(f"a@at-work-{n}") for n in range(AT_WORK)])
    fill_flow(engine, refs[:-FAILED])


@dg.op
def _nothing() -> None: ...


@databuild_asset(partitions_def=LOTS, subscribe="lots", name="following")
def _following(lots: pd.DataFrame) -> pd.DataFrame:
    return lots


@databuild_asset(deps=["lots"], name="wide")
def _wide() -> pd.DataFrame:
    return pd.DataFrame()


def lots() -> list[Ref]:
    return [Ref(f"lots@{key}") for key in LOTS.get_partition_keys()]


def paths(engine: Engine) -> list[str]:
    queries = engine.queries
    pair, middle, root = Ref("b@00000001"), Ref("mid@00000000"), Ref("root@00000000")
    uuids = [found.uuid for found in queries.canonical.of([pair, middle, root]).values()]
    (want,) = queries.wants.newest(most=1)
    first, *_, last = lots()
    return [
        "/api/v1/head",
        "/",
        "/assets",
        "/calendar?dataset=lots",
        "/calendar?dataset=lots&within=2023-03-04",
        f"/calendar?dataset=lots&within=2023-12-31&ref={last}",
        "/calendar?dataset=lots&find=2023-06-01",
        "/numbers?dataset=lots",
        "/taints",
        "/search?q=lots@2023-12",
        f"/partition?ref={first}",
        f"/partition?ref={last}",
        f"/partition?ref={pair}",
        f"/partition?ref={pair}&as_of=100",
        f"/partition?ref={root}",
        "/partition?ref=a@wanted-0",
        "/wants",
        "/wants?ended=1&derivative=true",
        "/wants?in_state=Failed",
        "/wants?in_state=Expired",
        "/wants?ended=1&dataset=b",
        "/wants?dataset=a",
        "/wants?ended=1&source=schedule",
        f"/wants?ended=1&ref={pair}",
        f"/want?name={want.id}",
        *(f"/lineage?instance={uuid}" for uuid in uuids),
        *(f"/api/v1/lineage?instance={uuid}" for uuid in uuids),
        f"/api/v1/graph?levels=5&instance={uuids[-1]}",
        "/api/v1/calendar?dataset=lots",
        "/api/v1/failures",
        *flow_paths(engine, lots()),
    ]


class _Counting(State):
    """Counts SQLite's steps for the answers of one question."""

    steps = 0

    async def ask(self, question: Callable[[], Any]) -> Any:
        return await super().ask(lambda: self._counted(question))

    def _counted(self, question: Callable[[], Any]) -> Any:
        connection: Any = self.engine.store.database.connection()
        connection.set_progress_handler(self._count, STEPS)
        try:
            return question()
        finally:
            connection.set_progress_handler(None, 0)

    def _count(self) -> int:
        self.steps += STEPS
        return 0


def measured(kept: Kept, path: str, rounds: int) -> Cost:
    """The seconds of each round after the first, and after the answers that come later than the page."""
    engine = kept.engine
    state = State(lambda: engine, None)
    client = TestClient(make_application(state))
    wall: list[float] = []
    processor: list[float] = []
    n_bytes, of_database = 0, 0.0
    for number in range(rounds + 1):
        _move(engine, number)
        began = time.perf_counter(), time.process_time(), kept.processor_seconds()
        answer: Any = client.get(path)
        ended = time.perf_counter(), time.process_time(), kept.processor_seconds()
        assert answer.status_code == 200, f"{path}: {answer.text}"
        wall.append(ended[0] - began[0])
        processor.append(ended[1] - began[1])
        of_database += ended[2] - began[2] if number else 0.0
        n_bytes = len(answer.content)
        wait(list(state._looking.values()))
    state.close()
    is_sqlite = kept.database == "sqlite"
    steps = _steps(engine, path) if is_sqlite else None
    return Cost(wall[1:], processor[1:], None if is_sqlite else of_database / rounds, steps, n_bytes)


def _steps(engine: Engine, path: str) -> int:
    state = _Counting(lambda: engine, None)
    client = TestClient(make_application(state))
    client.get(path)
    state.steps = 0
    _move(engine, 0)
    client.get(path)
    state.close()
    return state.steps


def _move(engine: Engine, number: int) -> None:
    """A new event, which leaves every page as it is: a want of a live ref is successful at once."""
    ref = Ref(f"b@{number:08}")
    assert engine.queries.canonical.states([ref])[ref] is InstanceState.LIVE
    engine.handle(CreateWants(wants=((ref,),), ttl_seconds=None))


if __name__ == "__main__":
    main()
