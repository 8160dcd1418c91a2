"""The history of a ref: why each instance is in its state, and the earlier instance that an instance is compared with."""

from __future__ import annotations

from databuild_dagster.engine.why.history import history_of, one_before
from databuild_dagster.model.commands import RetryRefs
from databuild_dagster.model.refs import Ref
from tests.support.catalog import dataset


def test_the_instance_before_is_the_last_one_that_was_live() -> None:
    assert one_before([("x", True), ("y", False), ("z", True)], "z") == "x"
    assert one_before([("x", False), ("y", False), ("z", True)], "z") == "y"
    assert one_before([("x", True)], "x") is None


def test_the_error_of_an_instance_stays_seen_after_its_retry(make_world) -> None:
    world = make_world(dataset("day"))
    world.fail("day", error="no such file")
    world.handle(RetryRefs(refs=(Ref("day"),), reason="the file came"))
    world.live("day")

    failed, live = history_of(world.queries, Ref("day"))

    assert failed.why is not None
    assert failed.why.startswith("tainted by ")
    assert failed.why.endswith("; it failed with: no such file")
    assert live.why is None
