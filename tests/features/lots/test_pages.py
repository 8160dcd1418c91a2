"""Arcs and gaps as the API and the pages have them: what is late, what is missing and why, and no more than asked."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from databuild_dagster.features.lots import gap_ranges
from tests.support.pages_world import MARKUP, PagesWorld, client, get, refused, world

__all__ = ["client", "world"]


def test_arcs_that_share_an_asset_are_one_chain_sources_first(client: TestClient) -> None:
    found = get(client, "/arcs")

    (chain,) = found["chains"]
    assert chain["levels"] == [["orders"], ["mirror"], ["summary"]]
    assert [[source["asset"] for source in arc["sources"]] for arc in chain["arcs"]] == [["orders"], ["mirror"]]
    assert [(arc["arc"], arc["n"], arc["follow_late"]) for arc in chain["arcs"]] == [
        ("mirror", 31, False),
        ("summary", 1, True),
    ]


def test_an_arc_names_the_newest_source_that_woke_it(client: TestClient, world: PagesWorld) -> None:
    world.fire()
    world.live("orders@2023-01-30")
    world.fire()

    woken = get(client, "/arc", name="mirror")["arc"]["woken"]

    assert (woken["ref"], woken["uuid"]) == ("orders@2023-01-30", world.uuid("orders@2023-01-30"))


def test_a_lot_that_was_built_before_its_source_changed_has_late_data(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/arc", name="mirror")

    lots = {lot["ref"]: lot for lot in found["lots"]}
    assert [(late["ref"], late["source"], late["source_uuid"]) for late in found["late"]] == [
        ("mirror@2023-01-21", "orders@2023-01-21", world.uuid("orders@2023-01-21"))
    ]
    assert (lots["mirror@2023-01-21"]["state"], lots["mirror@2023-01-21"]["stale"]) == ("complete", True)
    assert (lots["mirror@2023-01-19"]["stale"], lots["mirror@2023-01-01"]["state"]) == (False, "missing")


def test_the_lots_of_an_arc_are_the_newest_first_in_pages(client: TestClient) -> None:
    first = get(client, "/arc", name="mirror", limit=20)["lots"]
    second = get(client, "/arc", name="mirror", limit=20, offset=20)["lots"]
    beyond = get(client, "/arc", name="mirror", offset=500)["lots"]

    assert [lot["ref"] for lot in (*first, *second)] == [f"mirror@2023-01-{day:02}" for day in range(31, 0, -1)]
    assert beyond == []


def test_an_asset_that_is_no_arc_is_refused(client: TestClient) -> None:
    assert refused(client, "/arc", name="orders") == (400, "NoArc")
    assert refused(client, "/arc", name=MARKUP) == (404, "UnknownAsset")


def test_an_absent_lot_is_followed_to_the_first_cause(client: TestClient) -> None:
    found = get(client, "/gaps", dataset="mirror", chain=True)

    assert (found["expected"], found["present"], found["n_absent"]) == (31, 2, 29)
    by_first = {stretch["first_ref"]: stretch for stretch in found["stretches"]}
    assert by_first["orders@2023-01-05"]["cause"] == "waiting for its source orders@2023-01-05"
    assert MARKUP in by_first["orders@2023-01-05"]["why"]
    causes = {(cause["ref"], cause["cause"]) for cause in found["first_causes"]}
    assert {("orders@2023-01-05", "failed"), ("orders@2023-01-02", "tainted")} <= causes
    assert [upstream["dataset"] for upstream in found["upstream"]] == ["orders"]
    assert found["grid"]["counts"]["live"] == 2


def test_first_causes_of_one_kind_are_counted_together(client: TestClient) -> None:
    found = get(client, "/gaps", dataset="mirror", chain=True, start="2023-01-08", end="2023-01-15")

    (cause,) = [cause for cause in found["first_causes"] if cause["cause"] == "never wanted"]
    assert (cause["ref"], cause["n"]) == (f"orders@2023-01-{15 - cause['n']:02}", cause["n_refs"])


def test_absent_lots_are_cut_and_counted(client: TestClient) -> None:
    found = get(client, "/gaps", dataset="mirror", limit=3)

    assert (len(found["absent"]), found["n_absent"]) == (3, 29)


def test_the_newest_lots_are_reported_unless_a_range_is_named(client: TestClient) -> None:
    newest = get(client, "/gaps", dataset="ticks")
    named = get(client, "/gaps", dataset="ticks", start="2022-03-04-00:00", end="2022-03-05-00:00")
    begun = get(client, "/gaps", dataset="ticks", start="2022-03-04-00:00")

    assert (newest["expected"], newest["to"]) == (gap_ranges.USUAL_LOTS, "2023-01-01T00:00:00Z")
    assert (named["expected"], named["present"], named["from"]) == (288, 1, "2022-03-04T00:00:00Z")
    assert (begun["expected"], begun["from"]) == (gap_ranges.USUAL_LOTS, "2022-03-04T00:00:00Z")


def test_a_range_of_too_many_lots_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    year = {"dataset": "ticks", "start": "2022-01-01-00:00", "end": "2022-12-31-00:00"}

    assert refused(client, "/gaps", **year) == (400, "TooManyLots")
    monkeypatch.setattr(gap_ranges, "MAX_LOTS_OF_CHAIN", 40)
    assert refused(client, "/gaps", dataset="mirror", start="2023-01-01", end="2023-02-01", chain=True) == (
        400,
        "TooManyLots",
    )
    assert get(client, "/gaps", dataset="mirror", chain=True)["expected"] == 20


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ({"dataset": "named"}, (400, "NoLots")),
        ({"dataset": "nope"}, (404, "UnknownAsset")),
        ({"dataset": "mirror", "start": MARKUP}, (400, "InvalidTime")),
        ({"dataset": "mirror", "start": "2023-01-09", "end": "2023-01-03"}, (400, "InvalidLotRange")),
        ({}, (400, "MissingParameter")),
    ],
)
def test_a_range_that_cannot_be_is_refused(client: TestClient, query: dict[str, Any], refusal: tuple[int, str]) -> None:
    assert refused(client, "/gaps", **query) == refusal


def test_the_calendar_and_the_partitions_of_an_arc_lead_to_it(client: TestClient, world: PagesWorld) -> None:
    for path in ("/calendar?dataset={}", "/partition?ref={}@2023-01-19"):
        assert 'href="/databuild/arc?name=mirror"' in client.get(path.format("mirror")).text
        assert "/arc?name=" not in client.get(path.format("orders")).text
