"""A store of so many partitions, made through the engine's own commands, ten thousand refs at a time.

Nine of ten partitions are pairs, `b@key` made of `a@key`; the others are the cascade, `leaf`s made of a thousandth as many
`mid`s, made of one `root`. Each was wanted, launched, built and is live, one of twenty `a`s for the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.commands import (
    BufferLaunch,
    CreateWants,
    RegisterDatasets,
    StartLaunch,
    SucceedJobRuns,
    TaintPartitions,
)
from databuild_dagster.model.datasets import DatasetSpec, InputSpec
from databuild_dagster.model.events import BufferedRun, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.store.store import open_store

#: Refs of one command while a store is filled.
BULK = 10_000
#: Raised when what a filled store holds changes, so that a kept one of before is not taken for it.
SHAPE = 1
MANIFEST = ManifestFact("complete", "/warehouse/a/data/instance=x/manifest.json", 1, 1000, 10_000)
LOCATION = "bench"
DATASETS = (
    DatasetSpec("a", "a", LOCATION),
    DatasetSpec("b", "b", LOCATION, inputs=(InputSpec("a", "same", "a"),)),
    DatasetSpec("root", "root", LOCATION),
    DatasetSpec("mid", "mid", LOCATION, inputs=(InputSpec("root", "same", "root"),)),
    DatasetSpec("leaf", "leaf", LOCATION, inputs=(InputSpec("mid", "same", "mid"),)),
)


class AnyPartition:
    """A catalog in which every key exists, and every input has the key of what it is read for."""

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        return None

    def absent(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> dict[str | None, str]:
        return {}

    def left_out(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> frozenset[str | None]:
        return frozenset()

    def is_moved(self, dataset: DatasetSpec, partition_key: str | None, before: str | None) -> bool:
        return False

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
        return tuple([Ref(f"{spec.asset}@{partition_key}") for spec in dataset.inputs]) if dataset.inputs else ()

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        return (partition_key,)

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        return tuple(partition_keys[first : first + most] for first in range(0, len(partition_keys), most))

    def follows_key(self, dataset: DatasetSpec, spec: InputSpec) -> bool:
        return True


class Sizes(NamedTuple):
    """How many partitions of each kind a store has."""

    pairs: int
    mids: int
    leaves: int

    @property
    def cascade(self) -> int:
        """What stands behind a taint of the root, and the root."""
        return 1 + self.mids + self.leaves


def sizes(partitions: int) -> Sizes:
    cascade = partitions // 10
    mids = max(cascade // 100, 1)
    return Sizes((partitions - cascade) // 2, mids, cascade - mids - 1)


def opened(url: str) -> Engine:
    """An engine over a store that may still be empty."""
    engine = Engine(open_store(url), AnyPartition())
    engine.handle(RegisterDatasets(location=LOCATION, datasets=DATASETS))
    return engine


def name_of(key: int) -> str:
    return f"{key:08}"


#: An input's ref with its instance, for a ref.
Inputs = Callable[[Ref], dict[Ref, str]]


def nothing(_: Ref) -> dict[Ref, str]:
    return {}


def lease(engine: Engine, refs: list[Ref], *, want: bool = True) -> dict[Ref, str]:
    """Refs of one job, wanted, buffered and started in three commands; the job run of each."""
    if want:
        engine.handle(CreateWants(wants=tuple((ref,) for ref in refs), ttl_seconds=None))
    runs = tuple(BufferedRun(new_id(), (ref,), partition_key_of(ref)) for ref in refs)
    launch = new_id()
    job = asset_of(refs[0])
    engine.handle(BufferLaunch(launch_id=launch, job=job, location=LOCATION, owner="bench", runs=runs))
    engine.handle(StartLaunch(launch_id=launch, dagster_run_id="bench", holder="bench"))
    return {run.refs[0]: run.job_run_id for run in runs}


def success(job_runs: dict[Ref, str], inputs: Inputs = nothing) -> SucceedJobRuns:
    """All of them, with what they were made of."""
    return SucceedJobRuns(
        runs=tuple(
            RunSuccess(job_run, (OutputFact(ref=ref, inputs=inputs(ref), manifest=MANIFEST),))
            for ref, job_run in job_runs.items()
        )
    )


def built(engine: Engine, refs: list[Ref], inputs: Inputs = nothing, *, want: bool = True) -> dict[Ref, str]:
    """The uuid of the live instance of each ref, after it was built."""
    job_runs = lease(engine, refs, want=want)
    engine.handle(success(job_runs, inputs))
    return {ref: derive_partition_uuid(job_run, ref) for ref, job_run in job_runs.items()}


def fill(engine: Engine, partitions: int) -> None:
    """Bring that many partitions to life."""
    fill_pairs(engine, range(sizes(partitions).pairs))
    fill_cascade(engine, partitions)


def fill_pairs(engine: Engine, of: range) -> None:
    """The pairs of some keys."""
    for keys in _chunks(of):
        made = built(engine, [Ref(f"a@{name_of(key)}") for key in keys])
        again = [ref for ref in made if int(ref[2:]) % 20 == 0]
        engine.handle(TaintPartitions(refs=tuple(again), reason="built twice"))
        made |= built(engine, again, want=False)
        built(
            engine,
            [Ref(f"b@{name_of(key)}") for key in keys],
            lambda ref, made=made: {Ref(f"a{ref[1:]}"): made[Ref(f"a{ref[1:]}")]},  # type: ignore[misc]
        )


def fill_cascade(engine: Engine, partitions: int) -> None:
    """What stands behind the root in a store of so many partitions."""
    _, mids, leaves = sizes(partitions)
    ((root, root_uuid),) = built(engine, [Ref(f"root@{name_of(0)}")]).items()
    middle = built(engine, [Ref(f"mid@{name_of(key)}") for key in range(mids)], lambda _: {root: root_uuid})

    def of_leaf(ref: Ref) -> dict[Ref, str]:
        mid = Ref(f"mid@{name_of(int(ref[5:]) % mids)}")
        return {mid: middle[mid]}

    for keys in _chunks(range(leaves)):
        built(engine, [Ref(f"leaf@{name_of(key)}") for key in keys], of_leaf)


def fill_singly(engine: Engine, refs: int) -> None:
    """The same for a log of many small events: four for each ref, one ref each."""
    for key in range(refs):
        built(engine, [Ref(f"a@{name_of(key)}")])


def _chunks(keys: range) -> Iterator[range]:
    for first in range(0, len(keys), BULK):
        yield keys[first : first + BULK]
