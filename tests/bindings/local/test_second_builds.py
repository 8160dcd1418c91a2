"""Second builds, compared with the earlier instances that could have come back in their place (rule 4.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from databuild_dagster.bindings.local.second_builds import (
    ComparedBuild,
    checked_sample,
    compared_builds,
    verified_in_words,
)
from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import VERIFIES
from tests.support.edited_code import NEEDS, Shop, spec
from tests.support.fixtures import database, make_world
from tests.support.world import COMPLETE, World

__all__ = ["database", "make_world"]

DATABASES = ("sqlite", "postgres")

B = Ref("b")


@pytest.fixture
def shop(make_world: Callable[..., World]) -> Shop:
    """`b` is in the sample, and its first instance has the hash x:1."""
    shop = Shop(make_world(*(spec(name, "old") for name in NEEDS)), content_hash="x:1:1")
    shop.edited_and_edited_back("b")
    shop.sampled("b", verify=1.0)
    return shop


def compared(shop: Shop) -> list[tuple[str, str | None]]:
    return [(build.outcome, build.why) for build in compared_builds(shop.world.queries, [B, Ref("c")])]


@pytest.mark.parametrize(("content_hash", "outcome"), [("x:1:1", "equal"), ("x:1:2", "different")])
def test_recorded_hashes_of_one_implementation_are_compared(shop: Shop, content_hash: str, outcome: str) -> None:
    """No instance of this world has files."""
    (first, *_) = shop.world.queries.instances.history(B, 9)
    second = shop.build("b", content_hash=content_hash)

    (build,) = compared_builds(shop.world.queries, [B, Ref("c")])

    assert (build.ref, build.first, build.second, build.outcome) == ("b", first.uuid, second, outcome)


@pytest.mark.parametrize("content_hash", [None, "y:1:1"])
def test_other_hashes_are_computed_from_the_files_or_the_build_is_not_compared(
    shop: Shop, content_hash: str | None
) -> None:
    shop.build("b", content_hash=content_hash)

    ((outcome, why),) = compared(shop)

    assert (outcome, "cannot be read" in (why or "")) == ("not compared", True)


def test_a_second_build_is_reported_until_the_next_build(shop: Shop) -> None:
    assert compared(shop) == [("not compared", "its second build is not live")]
    shop.world.fail("b", kind="transient")
    shop.world.clock.turn(3600)
    assert compared(shop) == [("not compared", "its second build is not live")]
    shop.build("b", content_hash="x:1:2")
    assert compared(shop) == compared(shop) == [("different", None)]

    shop.fresh("b", rebuild=True)
    shop.build("b", content_hash="x:1:2")

    assert compared(shop) == []


def test_a_compaction_after_a_second_build_keeps_its_verdict(shop: Shop) -> None:
    second = shop.build("b", content_hash="x:1:2")
    files = replace(COMPLETE, content_hash="x:1:2")

    shop.world.handle(c.ReplaceFiles(ref=B, uuid=second, job_run_id=shop.world.ids(), manifest=files))

    assert compared(shop) == [("different", None)]


def test_a_taint_that_names_an_instance_of_another_store_asks_for_no_second_build(shop: Shop) -> None:
    """An environment copies the taints of its base."""
    c_uuid = shop.world.uuid("c")

    shop.world.handle(c.TaintPartitions(uuids=(c_uuid,), reason=f"{VERIFIES}an-instance-of-the-base"))

    assert shop.world.queries.instances.second_builds(["c"]) == []


def test_the_next_sample_compares_with_its_own_earlier_instance(shop: Shop) -> None:
    second = shop.build("b", content_hash="x:1:2")
    shop.edited_and_edited_back("b")
    shop.sampled("b", verify=1.0)
    shop.build("b", content_hash="x:1:2")

    (build,) = compared_builds(shop.world.queries, [B])

    assert (build.first, build.outcome) == (second, "equal")


def input_changed(shop: Shop) -> None:
    shop.world.taint("a")
    shop.build("a")
    shop.build("b")


def code_changed(shop: Shop) -> None:
    shop.edit("b", "newer")
    shop.build("b")


def data_removed(shop: Shop) -> None:
    (first, *_) = shop.world.queries.instances.history(B, 9)
    shop.build("b")
    shop.world.handle(c.RemoveManifests(uuids=(first.uuid,), reason="gc"))


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (input_changed, "its inputs were changed meanwhile"),
        (code_changed, "its code was changed meanwhile"),
        (data_removed, "was removed"),
    ],
)
def test_what_cannot_be_compared_has_a_reason(shop: Shop, act: Callable[[Shop], None], why: str) -> None:
    act(shop)

    ((outcome, found),) = compared(shop)

    assert (outcome, why in (found or "")) == ("not compared", True)


def test_an_asset_that_has_lost_the_option_is_left_out(shop: Shop) -> None:
    shop.build("b", content_hash="x:1:2")
    shop.edit("b", "old", deterministic=False)

    assert compared(shop) == []


@pytest.mark.parametrize(
    ("verify", "options"),
    [
        (0.0, {}),
        (-0.5, {}),
        (2.0, {}),
        (float("nan"), {}),
        ("abc", {}),
        (0.5, {"fresh": False}),
        (0.5, {"rebuild": True}),
    ],
)
def test_no_sample_is_made_of_a_bad_part(verify: Any, options: dict[str, bool]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked_sample(verify, **{"fresh": True, "rebuild": False} | options)

    assert refused.value.facts["what"] == "verify"


def test_a_sentence_counts_each_outcome() -> None:
    builds = [
        ComparedBuild(B, "x", "y", "equal"),
        ComparedBuild(B, "x", "y", "different"),
        ComparedBuild(B, "x", None, "not compared", "its second build is not live"),
    ]

    assert verified_in_words(builds, n_returned=0) == (
        " 3 refs built a second time: 1 with equal rows, 1 with other rows, not compared b (its second build is not live)."
    )
    assert "another process" in verified_in_words([], n_returned=2)
