"""What the pages of arcs, gaps, operations and delegations have to show, for `bench.pages`: an arc, reuses, and operations that run.

One partition is built twice from fifty thousand others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.engine.filling import built
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.model.commands import CreateWants, TaintPartitions
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import InstanceState

#: Refs that others reuse, and those of one command.
REUSED, BULK = 100_000, 10_000
#: Jobs of each operation that are done.
DONE = 500
#: Inputs of the partition that is built from many.
WIDE = 50_000
WIDE_REF = Ref("wide")
#: The datasets that have an operation.
OPERATED = ("lots", "a")
#: Partitions of each: more than 300,000 do not fit into an operation.
MOST_OPERATED = 275_000


class Trivial(DistributedOperation[Any]):
    """Does nothing."""

    type_name = "trivial"

    def start_or_resume_job(self, arg: Any, partition: Any, context: Any) -> None: ...


def fill_flow(engine: Engine, lots: Sequence[Ref]) -> None:
    """Requests for live refs, and an operation on the lots and on the largest asset."""
    live = (list(lots) * (REUSED // len(lots) + 1))[:REUSED]
    for first in range(0, len(live), BULK):
        wants = tuple((ref,) for ref in live[first : first + BULK])
        engine.handle(CreateWants(wants=wants, ttl_seconds=None))
    manager = DistributedOperationManager(engine, [Trivial()])
    for dataset in OPERATED:
        found = engine.queries.canonical.of_dataset(dataset)
        keys = [partition_key_of(one.ref) or "" for one in found if one.state is InstanceState.LIVE]
        id = manager.start("trivial", dataset, None, partitions=keys[:MOST_OPERATED])
        Executor(manager, holder="bench/boot/1/4711/9").step(id, DONE)
    _fill_wide(engine, lots[: WIDE + 1])


def _fill_wide(engine: Engine, lots: Sequence[Ref]) -> None:
    """Two instances, of which the second one has one lot in place of another."""
    uuids = {ref: found.uuid for ref, found in engine.queries.canonical.of(lots).items() if found.uuid is not None}
    for left_out in (lots[-1], lots[0]):
        built(engine, [WIDE_REF], lambda _, left_out=left_out: {ref: uuids[ref] for ref in lots if ref != left_out})  # type: ignore[misc]
        if left_out == lots[-1]:
            engine.handle(TaintPartitions(refs=(WIDE_REF,), reason="built twice"))


def flow_paths(engine: Engine, lots: Sequence[Ref]) -> list[str]:
    """The pages over them."""
    first, second = [instance.uuid for instance in engine.queries.instances.history(WIDE_REF)]
    return [
        "/arcs",
        "/arc?name=following",
        "/gaps?dataset=lots",
        "/gaps?dataset=following",
        "/operations",
        *(f"/operation?id={dataset}.trivial.1" for dataset in OPERATED),
        "/delegations",
        f"/delegations?builds=true&derived=true&ref={lots[0]}",
        f"/partition?ref={WIDE_REF}",
        f"/partition?ref={WIDE_REF}&as_of={engine.queries.events.head().seq - 1}",
        f"/lineage?instance={second}",
        f"/api/v1/lineage?instance={second}",
        f"/diff?a={first}&b={second}",
        f"/receipt?instance={second}",
    ]
