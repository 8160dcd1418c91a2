"""`log check` finds keys of no operation in the meta storage (rules 12, I9)."""

from __future__ import annotations

from databuild_dagster.model.commands import InvokeMeta
from databuild_dagster.model.meta_storage import Put, do
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import RUNNING
from databuild_dagster.store.invariants import Violation
from tests.support.world import World


def test_a_key_of_no_operation_that_runs_is_found() -> None:
    world = World([])
    key = OperationId("days", "write", None, 1).state

    world.engine.handle(InvokeMeta(statements=(do(Put(key, RUNNING)),)))

    assert world.broken() == [Violation("I9", key, "is of no operation that runs")]
    world.store.close()
