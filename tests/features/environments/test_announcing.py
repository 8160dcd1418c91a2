"""Borrowed partitions in the Dagster of their environment: materialized once, tagged, whatever was killed (rule 16.13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import dagster as dg
import pytest

from databuild_dagster.bindings.adapter.dagster_private import DATA_VERSION_TAG
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.registry.instance import DagsterCursors, close_engine, open_instance, store_url
from databuild_dagster.data.environment import home_of
from databuild_dagster.engine.follower import Cursor
from databuild_dagster.features.environments.announcing import BORROWED_TAG, announce_borrowed
from tests.features.environments.conftest import SHOP, Shop, borrow, coded
from tests.support.dagster_files import copy_dagster_files
from tests.support.world import World

NAME = "borrowed_shown/here"


class Branch:
    """An environment with its Dagster."""

    def __init__(self, world: World, instance: dg.DagsterInstance) -> None:
        self.world, self.instance = world, instance

    def announce(self, seconds: float = 60.0) -> bool | None:
        return announce_borrowed(self.instance, "here", SHOP, seconds=seconds)

    def shown(self, asset: str) -> Sequence[dg.AssetMaterialization]:
        """The materializations of an asset, the newest first."""
        records = self.instance.fetch_materializations(asset_key(asset), limit=100).records
        return [found for record in records if (found := record.asset_materialization) is not None]


@pytest.fixture
def branch(shop: Shop) -> Iterator[Branch]:
    copy_dagster_files()
    world = shop.branch(coded("clean", "raw", code="2"))
    with open_instance(home_of(shop.home, "branch")) as instance:
        yield Branch(world, instance)
        close_engine(store_url(instance))


def test_a_borrowed_partition_is_materialized_with_its_data_version(branch: Branch) -> None:
    borrow(branch.world, "report@x")

    assert branch.announce() is True

    (shown,) = branch.shown("other")
    assert (shown.partition, shown.tags) == (
        "x",
        {
            BORROWED_TAG: "true",
            DATA_VERSION_TAG: branch.world.uuid("other@x"),
            "dagster/data_version_is_user_provided": "true",
        },
    )
    assert branch.instance.get_materialized_partitions(asset_key("raw")) == {"x"}
    assert [branch.shown(asset) for asset in ("clean", "report")] == [[], []], "they are built here"


def test_a_batch_that_was_stored_before_a_kill_is_not_repeated(branch: Branch) -> None:
    borrow(branch.world, "other@x")
    branch.announce()
    # The cursor is stored after the batch.
    DagsterCursors(branch.instance).store(NAME, Cursor())
    branch.world.succeed("clean@x", inputs=["raw@x"])

    assert branch.announce() is True

    assert [len(branch.shown(asset)) for asset in ("raw", "other")] == [1, 1]


def test_a_tick_that_has_no_time_leaves_the_rest_to_the_next(branch: Branch) -> None:
    borrow(branch.world, "other@x")

    assert branch.announce(seconds=-1) is False
    assert branch.shown("other") == []
    assert branch.announce() is True
    assert len(branch.shown("other")) == 1


def test_a_partition_that_was_tainted_or_built_since_is_shown_as_that(branch: Branch) -> None:
    borrow(branch.world, "other@x")
    branch.world.taint("other@x")
    branch.announce()
    assert branch.shown("other") == []

    branch.world.succeed("other@x", inputs=["raw@x"])
    DagsterCursors(branch.instance).store(NAME, Cursor())
    branch.announce()

    assert branch.shown("other") == []


def test_a_base_has_no_work_and_no_cursor(shop: Shop) -> None:
    instance = SimpleNamespace(root_directory=str(shop.home))

    assert announce_borrowed(instance, "here", SHOP) is True  # type: ignore[arg-type]
