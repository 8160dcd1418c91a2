"""The instance of a ref to compare another one with."""

from __future__ import annotations

from databuild_dagster.engine.why.history import one_before


def test_the_instance_before_is_the_last_one_that_was_live() -> None:
    assert one_before([("x", True), ("y", False), ("z", True)], "z") == "x"
    assert one_before([("x", False), ("y", False), ("z", True)], "z") == "y"
    assert one_before([("x", True)], "x") is None
