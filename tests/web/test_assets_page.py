"""The assets as the API and the page list them: all partitions by state, trouble first, filters and their order."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from databuild_dagster.web.assets_page import natural
from tests.support.pages_world import PagesWorld, get


def names(client: TestClient, **query: object) -> list[str]:
    return [found["dataset"] for found in get(client, "/datasets", **query)["datasets"]]


def test_names_are_in_the_order_in_which_people_count() -> None:
    assert sorted(["c10", "c2", "C1", "c1/b10", "c1/b9", "a"], key=natural) == [
        "a",
        "C1",
        "c1/b9",
        "c1/b10",
        "c2",
        "c10",
    ]


def test_every_partition_is_counted_and_missing_ones_are_too(own_world: PagesWorld, acting: TestClient) -> None:
    own_world.live("orders@2023-01-01", "orders@2023-01-02")
    own_world.fail("orders@2023-01-03")

    (orders,) = get(acting, "/datasets", search="orders")["datasets"]

    assert (orders["n"], orders["n_missing"], orders["states"]) == (31, 28, {"Failed": 1, "Live": 2})


def test_assets_with_most_trouble_come_first_then_by_name(own_world: PagesWorld, acting: TestClient) -> None:
    own_world.live("whole", "orders@2023-01-01", "orders@2023-01-02")
    own_world.taint("whole")
    own_world.fail("ticks@2022-03-05-00:00")
    own_world.taint("orders@2023-01-01", "orders@2023-01-02")

    assert names(acting)[:4] == ["orders", "ticks", "whole", "mirror"]
    assert names(acting, trouble=True) == ["orders", "ticks", "whole"]
    assert names(acting, order="name")[:3] == ["mirror", "named", "orders"]


def test_assets_are_found_by_group_and_owner(own_world: PagesWorld, acting: TestClient) -> None:
    found = get(acting, "/datasets", owner="team:shop")

    assert ([one["dataset"] for one in found["datasets"]], found["groups"], found["owners"]) == (
        ["revenue"],
        ["shop"],
        ["kate@shop.com", "team:shop"],
    )
    assert names(acting, group="shop") == ["revenue"]
    assert names(acting, group="none of these") == []


def test_a_bar_shows_a_state_of_few_partitions_beside_one_of_many(own_world: PagesWorld, acting: TestClient) -> None:
    own_world.live("ticks@2022-03-04-00:00")
    own_world.fail("ticks@2022-03-05-00:00")

    text = acting.get("/assets?search=ticks").text

    widths = [float(width) for width in re.findall(r'<rect class="m-[a-z-]+" x="[0-9.]+" width="([0-9.]+)"', text)]
    assert len(widths) == 3
    assert min(widths) >= 1.5
    assert sum(widths) == pytest.approx(100, abs=0.1)
