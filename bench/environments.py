"""The processor seconds of environments: create over a large base, plan of the year, promotion of ten thousand refs, a base's tick.

    python -m bench.environments [--only PART …] [--partitions N] [--keep FOLDER] [--refs N] [--rounds N] [--record]

- create: `env create` in this process over a base of so many partitions, which is kept in a folder.
- plan: the whole year of the example in an environment whose base has all of it. The command builds all, because the code of the example
  reads files; its start is a plan of one ref. What is borrowed is measured as if one asset of ten had changed.
- promote: refs with a file each; the part of the files is the look at them before and after the gift.
- tick: an idle tick of a base without environments, with the feature and without its folder, in turns.

Medians. With --record they are written to bench/results/environments.json; steps that were not measured keep their figures.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import msgspec

from bench.engine.filling import AnyPartition, built, fill, opened
from bench.pipeline import ROOT, refs_of_the_year
from bench.results import FOLDER, record
from databuild_dagster import features
from databuild_dagster.bindings.building.deployment import deployment_of_repository
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.duties import duties
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.bindings.registry.instance import close_engine, engine_for, open_instance, store_url
from databuild_dagster.cli.main import run
from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.home import DATABASE_NAME, sqlite_url
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.engine.ports import Provided
from databuild_dagster.feature import built_in
from databuild_dagster.feature import features as all_features
from databuild_dagster.features.environments import promoting
from databuild_dagster.features.environments.borrowing import provide
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CODE_RULES, CodeSpec, DatasetSpec, InputSpec
from databuild_dagster.model.events import BufferedRun, MadeWith, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.store.store import open_store
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.parquet_rows import written_fact

LOCATION = "bench"
NAME = "bench"
RESULTS = FOLDER / "environments.json"
#: The asset that the environment of the year changes: the reports of days and months read it.
CHANGED = "flight_delays"
#: Ticks of a turn.
_TICKS = 10


class Figure(NamedTuple):
    what: str
    seconds: float
    aim: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="a folder for the large base, to be used again")
    parser.add_argument("--refs", type=int, default=10_000, help="of the promotion")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    for part in options.only:
        with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
            for figure in PARTS[part](Path(folder), options):
                figures.append(figure)
                print(f"{figure.what:60} {figure.seconds:.4f} s, aim {figure.aim}", flush=True)
    if options.record:
        before = msgspec.json.decode(RESULTS.read_bytes())["rows"] if RESULTS.exists() else []
        rows = {row[0]: row for row in before}
        rows |= {figure.what: [figure.what, f"{figure.seconds:.3g}", figure.aim] for figure in figures}
        record(RESULTS.stem, "python -m bench.environments", ("step", "CPU s", "aim"), list(rows.values()))


def create(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    home = _large_base(options.keep or folder, options.partitions)
    environments = Environments(home, _engine)
    seconds = []
    for _ in range(options.rounds):
        seconds.append(_spent(lambda: environments.create(NAME)))
        environments.drop(NAME)
    yield Figure(f"`env create`, a base of {options.partitions:,} partitions", median(seconds), "1")


def _large_base(folder: Path, partitions: int) -> Path:
    home = folder / f"base-{partitions}"
    made = home / "made"
    if not made.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        engine = opened(sqlite_url(home))
        engine.store.database.connection().execute("PRAGMA synchronous = OFF")
        fill(engine, partitions)
        engine.store.close()
        made.touch()
    return home


def plan(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    os.environ["DAGSTER_HOME"] = str(home)
    os.chdir(ROOT)
    year = refs_of_the_year()
    jobs = _asked("plan", *year)["jobs"]
    with open_instance(home) as instance:
        engine = engine_for(instance)
        specs = _build_all(engine, [Ref(job["ref"]) for job in jobs])
        close_engine(store_url(instance))
    planned, start, borrowing = [], [], []
    refs = [Ref(job["ref"]) for job in jobs]
    for _ in range(options.rounds):
        own_home = Path(_asked("env", "create", NAME)["home"])
        planned.append(_spent(lambda: _asked("--env", NAME, "plan", *year)))
        start.append(_spent(lambda: _asked("--env", NAME, "plan", "planes")))
        with open_instance(own_home) as instance:
            own = engine_for(instance)
            own.handle(c.RegisterDatasets(location=specs[0].location, datasets=specs))
            found: list[Provided] = []
            borrowing.append(_spent(lambda own=own, found=found: found.append(provide(own, refs))))  # type: ignore[misc]
            assert found[0].live, "the year borrows what does not read the changed asset"
            close_engine(store_url(instance))
        _asked("env", "drop", NAME)
    beyond = median(planned) - median(start)
    yield Figure(f"plan of {len(jobs):,} refs that are built, beyond the start of the command", beyond, "0.5")
    yield Figure("choice and record of the borrowed refs among them", median(borrowing), "0.5")


def _build_all(engine: Engine, refs: list[Ref]) -> tuple[DatasetSpec, ...]:
    """Bring refs to life, in their order, as if all code of the example had a digest; the datasets with other code of one."""
    # Two assets of the example read a file, so that their code has none.
    specs = {
        spec.asset: msgspec.structs.replace(spec, code=CodeSpec(f"{CODE_RULES}:{spec.asset}"))
        for spec in engine.queries.datasets.all().values()
    }
    location = next(iter(specs.values())).location
    engine.handle(c.RegisterDatasets(location=location, datasets=tuple(specs.values())))
    uuids: dict[Ref, str] = {}
    for asset in dict.fromkeys(map(asset_of, refs)):
        spec = specs[asset]
        assert isinstance(spec.code, CodeSpec)
        made = MadeWith(code=spec.code.digest)
        outputs = {ref: _inputs(engine, spec, ref, uuids) for ref in refs if asset_of(ref) == asset}
        runs = _started(engine, spec.job, list(outputs), made)
        fact = ManifestFact("complete", f"/warehouse/{asset}/data/instance=x/manifest.json", 1, 1_000, 10_000)
        success = [RunSuccess(run, (OutputFact(ref, outputs[ref], manifest=fact),)) for ref, run in runs.items()]
        engine.handle(c.SucceedJobRuns(runs=tuple(success)))
        uuids |= {ref: derive_partition_uuid(run, ref) for ref, run in runs.items()}
    changed = msgspec.structs.replace(specs[CHANGED], code=CodeSpec(f"{CODE_RULES}:changed"))
    return tuple({**specs, CHANGED: changed}.values())


def _inputs(engine: Engine, spec: DatasetSpec, ref: Ref, uuids: dict[Ref, str]) -> dict[Ref, str]:
    return {used: uuids[used] for used in engine.catalog.inputs(spec, partition_key_of(ref)) if used in uuids}


def _started(engine: Engine, job: str, refs: list[Ref], made_with: MadeWith) -> dict[Ref, str]:
    """Started job runs for refs of a job."""
    engine.handle(c.CreateWants(wants=tuple((ref,) for ref in refs), ttl_seconds=None))
    runs = tuple(BufferedRun(new_id(), (ref,), partition_key_of(ref)) for ref in refs)
    launch = new_id()
    engine.handle(c.BufferLaunch(launch_id=launch, job=job, location=LOCATION, owner="bench", runs=runs))
    engine.handle(c.StartLaunch(launch_id=launch, dagster_run_id="bench", holder="bench", made_with=made_with))
    return {run.refs[0]: run.job_run_id for run in runs}


def promote(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    home = folder / "base"
    home.mkdir()
    half = options.refs // 2
    keys = [f"{number:06}" for number in range(half)]
    old, new = _specs("1"), _specs("2")
    base = _engine(home)
    base.handle(c.RegisterDatasets(location=LOCATION, datasets=old))
    built(base, [Ref(f"raw@{key}") for key in keys])
    base.store.close()
    environments = Environments(home, _engine)
    own_home = Path(environments.create(NAME).home)
    environment = environment_of(own_home)
    assert environment is not None
    own = _engine(own_home)
    own.handle(c.RegisterDatasets(location=LOCATION, datasets=new))
    provide(own, [Ref(f"raw@{key}") for key in keys])
    for spec in new[1:]:
        refs = [Ref(f"{spec.asset}@{key}") for key in keys]
        assert isinstance(spec.code, CodeSpec)
        outputs = own.queries.canonical.of([Ref(f"{spec.inputs[0].asset}@{key}") for key in keys])
        runs = _started(own, spec.job, refs, MadeWith(code=spec.code.digest))
        success = []
        for (ref, run_id), (used, one) in zip(runs.items(), outputs.items(), strict=True):
            fact = written_fact(Warehouse(environment.root), ref, run_id, {"n": [1, 2, 3]})
            success.append(RunSuccess(run_id, (OutputFact(ref, {used: str(one.uuid)}, manifest=fact),)))
        own.handle(c.SucceedJobRuns(runs=tuple(success)))
    own.store.close()
    base = _engine(home)
    base.handle(c.RegisterDatasets(location=LOCATION, datasets=new))
    base.store.close()
    whole, of_files = [], []
    look = promoting._why_unreadable
    for number in range(options.rounds):
        copies = [(place, folder / f"{number}-{place.name}.db") for place in (home, own_home)]
        for place, copy in copies:
            with contextlib.closing(open_store(sqlite_url(place))) as store:
                store.database.backup(str(copy))
        files: list[float] = []

        def timed(*arguments: Any, files: list[float] = files) -> str | None:
            began = time.process_time()
            why = look(*arguments)
            files.append(time.process_time() - began)
            return why

        vars(promoting)["_why_unreadable"] = timed
        whole.append(_spent(lambda: promoting.promote(environments, NAME, actor="bench")))
        of_files.append(sum(files))
        print(f"round {number + 1}: {whole[-1]:.2f} s, of which files {of_files[-1]:.2f} s", flush=True)
        for place, copy in copies:
            # The file stays, because a store with a new file is a copy.
            with (
                contextlib.closing(sqlite3.connect(copy)) as source,
                contextlib.closing(sqlite3.connect(place / DATABASE_NAME)) as target,
            ):
                source.backup(target)
    vars(promoting)["_why_unreadable"] = look
    files_seconds = median(of_files)
    yield Figure(f"promotion of {2 * half:,} refs, in the stores", median(whole) - files_seconds, "1")
    yield Figure("the same, the looks at their files", files_seconds, "-")


def _specs(code: str) -> tuple[DatasetSpec, ...]:
    """raw, clean made of it, and report made of clean; `code` is that of clean."""

    def coded(asset: str, *needs: str, code: str = "1") -> DatasetSpec:
        inputs = tuple(InputSpec(need, "same", need) for need in needs)
        digest = f"{CODE_RULES}:{asset}-{code}"
        return DatasetSpec(asset, asset, LOCATION, inputs=inputs, code=CodeSpec(digest, (), ((asset, code),)))

    return coded("raw"), coded("clean", "raw", code=code), coded("report", "clean")


TICKED = """
import dagster as dg
import pandas as pd
from databuild_dagster import BuildContext, build_definitions, databuild_asset

days = dg.StaticPartitionsDefinition([str(number) for number in range(100)])

def asset(name):
    @databuild_asset(name=name, partitions_def=days)
    def one(context: BuildContext) -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})
    return one

defs = build_definitions([asset(f"asset_{number}") for number in range(10)], location="bench")
"""


def tick(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    home = folder / "home"
    home.mkdir()
    namespace: dict[str, Any] = {}
    exec(TICKED, namespace)
    repository = namespace["defs"].get_repository_def()
    deployment = deployment_of_repository(repository)
    assert deployment is not None
    known = features.BUILT_IN
    spent: dict[bool, list[float]] = {True: [], False: []}
    with open_instance(home) as instance:
        orders = OrderCollector(instance)

        def once() -> None:
            assert deployment is not None
            run_tick(instance, repository, deployment, orders, interval_seconds=30)

        once()
        for turn in range(2 * options.rounds):
            has_feature = turn % 2 == 0
            names = known if has_feature else tuple(name for name in known if name != "environments")
            vars(features)["BUILT_IN"] = names
            for kept in (built_in, all_features, duties):
                kept.cache_clear()
            once()
            spent[has_feature] += [_spent(once) for _ in range(_TICKS)]
        close_engine(store_url(instance))
    vars(features)["BUILT_IN"] = known
    with_it, without = median(spent[True]), median(spent[False])
    yield Figure("an idle tick of a base without environments", with_it, f"{1.02 * without:.4f}")
    yield Figure("the same without the feature", without, "-")


PARTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Figure]]] = {
    "create": create,
    "plan": plan,
    "promote": promote,
    "tick": tick,
}


def _engine(home: Path) -> Engine:
    return Engine(open_store(sqlite_url(home)), cast(Any, AnyPartition()))


def _asked(*arguments: str) -> Any:
    """The answer of a command, in this process."""
    printed, before = io.StringIO(), dict(os.environ)
    with contextlib.redirect_stdout(printed):
        code = run([*arguments, "--json"])
    # `--env` sets variables for the rest of the process.
    os.environ.clear()
    os.environ.update(before)
    assert code == 0, (arguments[:3], printed.getvalue())
    return msgspec.json.decode(printed.getvalue())


def _spent(act: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    act()
    return time.process_time() - began


if __name__ == "__main__":
    main()
