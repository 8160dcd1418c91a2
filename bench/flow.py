"""What the pages of arcs, gaps, operations and delegations have to show, for `bench.pages`: an arc, reuses, and operations that run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.operations.executor import Executor
from databuild_dagster.engine.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.refs import Ref

#: Refs that others reuse, and those of one command.
REUSED, BULK = 100_000, 10_000
#: Jobs of each operation that are done.
DONE = 500
#: The datasets that have an operation.
OPERATED = ("lots", "a")


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
        Executor(manager, holder="bench/boot/1/4711/9").step(manager.start("trivial", dataset, None), DONE)


def flow_paths(lots: Sequence[Ref]) -> list[str]:
    """The pages over them."""
    return [
        "/arcs",
        "/arc?name=following",
        "/gaps?dataset=lots",
        "/gaps?dataset=following",
        "/operations",
        *(f"/operation?id={dataset}.trivial.1" for dataset in OPERATED),
        "/delegations",
        f"/delegations?builds=true&derived=true&ref={lots[0]}",
    ]
