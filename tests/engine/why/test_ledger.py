"""The ledger names what was built with equal rows, and the reuses that this allowed (rule 4.8)."""

from __future__ import annotations

from msgspec.structs import replace

from databuild_dagster.engine.why.ledger import shown_entries
from databuild_dagster.model.coordination import Answer
from tests.support.catalog import dataset
from tests.support.world import COMPLETE, World

EQUAL = replace(COMPLETE, content_hash="x:1")


def test_an_entry_names_what_was_built_with_equal_rows_before_it() -> None:
    world = World([dataset("a"), dataset("b", "a")])
    world.succeed("a", manifest=EQUAL)
    world.succeed("b", inputs=["a"])
    world.claim("b", dagster_run_id="early")
    world.clock.turn(10)
    world.taint("a")
    again = world.succeed("a", manifest=EQUAL)
    world.clock.turn(10)
    world.claim("b", dagster_run_id="late")

    shown = shown_entries(world.queries, world.ledger.entries())

    reused = {entry.requester: list(entry.equal_rows) for entry in shown if entry.kind is Answer.REUSE}
    built = {entry.uuid: list(entry.equal_rows) for entry in shown if entry.kind is Answer.BUILD}
    assert reused == {"early": [], "late": ["a"]}
    assert {uuid: refs for uuid, refs in built.items() if refs} == {again: ["a"]}
    world.close()
