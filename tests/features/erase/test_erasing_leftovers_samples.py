"""Rows that `validate` showed leave the results of operations, and the events that keep them are named (rule 10.11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from databuild_dagster.features.erase.erasing import Eraser, Receipt
from databuild_dagster.model.meta_storage import Put, do
from databuild_dagster.store.meta_storage import MetaQueries
from tests.support.published import DAYS, ICEBERG, PublishedWorld

KEY = "distOpHistory.sales.validate.%31abc.0"
OTHER = "distOpHistory.sales2.validate.%31abc.0"


def report(*rows: dict[str, Any]) -> bytes:
    """As `validate` leaves it: objects for a rule, and texts for a partition."""
    shown = [json.dumps(row) for row in rows]
    rules = [{"rule": "n > 9", "offending": len(rows), "samples": list(rows), "partitions": [{"samples": shown}]}]
    return json.dumps({"format": 1, "report": {"ok": False, "rules": rules}}).encode()


def world_with(tmp_path: Path, *puts: Put) -> PublishedWorld:
    world = PublishedWorld(tmp_path, ICEBERG)
    world.build(DAYS[0], {"name": ["ada", "bob", "bob"], "n": [1, 2, 3]})
    world.invoke(do(*puts))
    return world


def value(world: PublishedWorld, key: str) -> bytes | None:
    (entry,) = MetaQueries(world.store).get_all([key]).entries
    return entry.value


def erase(world: PublishedWorld, where: str = "name = 'ada'") -> Receipt:
    return Eraser(world.engine, world.warehouse.root).erase("sales", where, "ticket 7")


def test_samples_with_a_match_leave_the_result_and_the_event_is_named(tmp_path: Path) -> None:
    others = report({"name": "ada", "n": 1})
    world = world_with(tmp_path, Put(KEY, report({"name": "ada", "n": 1}, {"name": "bob", "n": 2})), Put(OTHER, others))
    seq = world.seq

    receipt = erase(world)

    found = json.loads(value(world, KEY) or b"")
    assert found["report"]["rules"] == [
        {"rule": "n > 9", "offending": 2, "samples": [], "partitions": [{"samples": []}]}
    ]
    assert value(world, OTHER) == others
    assert [(one.what, "never edited" in one.why) for one in receipt.not_done] == [(f"event {seq} of the log", True)]
    assert b"ada" not in b"".join(
        entry.value or b""
        for batch in MetaQueries(world.store).changes(MetaQueries(world.store).compacted(), KEY, KEY + "~").batches
        for entry in batch.entries
    )


def test_samples_without_a_match_stay(tmp_path: Path) -> None:
    """An absent field is null."""
    shown = report({"name": "bob", "n": 2}, {"n": 3})
    world = world_with(tmp_path, Put(KEY, shown))

    receipt = erase(world, "name = 'ada' and n = 1")

    assert receipt.is_complete
    assert value(world, KEY) == shown


def test_a_sample_that_cannot_be_judged_counts_as_a_match(tmp_path: Path) -> None:
    world = world_with(tmp_path, Put(KEY, report({"name": "bob", "n": "many"})))

    assert not erase(world, "n = 1").is_complete
