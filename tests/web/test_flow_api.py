"""Arcs, gaps, operations and the ledger as the API answers them: what is late, what is missing and why, and no more than asked."""

from __future__ import annotations

import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from databuild_dagster.shapes import gap_ranges
from databuild_dagster.web import flow_api

from .conftest import ATTRIBUTE, MARKUP, PagesWorld

API = "/api/v1"


def get(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: TestClient, path: str, **query: Any) -> tuple[int, str]:
    answer = client.get(API + path, params=query)
    return answer.status_code, answer.json()["error"]["type"]


# Arcs


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


# Gaps


def test_an_absent_lot_is_followed_to_the_first_cause(client: TestClient) -> None:
    found = get(client, "/gaps", dataset="mirror", chain=True)

    assert (found["expected"], found["present"], found["n_absent"]) == (31, 2, 29)
    by_first = {stretch["first_ref"]: stretch for stretch in found["stretches"]}
    assert by_first["orders@2023-01-05"]["cause"] == "never wanted"
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


# Operations


def test_operations_that_run_are_apart_from_those_that_ended(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/operations")

    assert [operation["id"] for operation in found["running"]] == [str(world.running)]
    assert [(operation["id"], operation["state"]) for operation in found["ended"]] == [
        ("orders.write.3", "success"),
        ("orders.write.2", "failed"),
        ("orders.write.1", "failed"),
    ]
    assert refused(client, "/operations", dataset="nope") == (404, "UnknownAsset")


def test_an_operation_shows_the_state_of_each_partition(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/operation", id=str(world.running))

    assert (found["state"], found["done"], found["total"]) == ("running", 1, found["grid"]["n"])
    assert found["grid"]["counts"] == {"live": 1, "missing": found["free"]}


@pytest.mark.parametrize("id", [MARKUP, "orders.write.99", "orders", "orders.write.-1"])
def test_an_operation_that_is_not_there_is_not_found(client: TestClient, id: str) -> None:
    assert refused(client, "/operation", id=id) == (404, "NotFound")


# The ledger


def test_delegations_name_the_requester_and_the_instance(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/ledger")

    entries = {(entry["requester"], entry["ref"]): entry for entry in found["entries"]}
    joined, reused = entries[ATTRIBUTE, "orders@2023-01-06"], entries[ATTRIBUTE, "orders@2023-01-03"]
    assert (joined["kind"], joined["outcome"]) == ("joined", "waiting")
    assert (reused["kind"], reused["outcome"], reused["uuid"]) == ("reused", "live", world.uuid("orders@2023-01-03"))
    (commented,) = [entry for entry in found["entries"] if (entry["requested_by"] or {}).get("comment") == MARKUP]
    assert (commented["kind"], commented["requested_by"]["actor"]) == ("reused", "tester")


def test_filters_of_the_ledger_leave_out_the_others(client: TestClient) -> None:
    def kinds(**query: Any) -> set[str]:
        return {entry["kind"] for entry in get(client, "/ledger", **query)["entries"]}

    assert kinds() == {"joined", "reused"}
    assert kinds(kind="reused") == {"reused"}
    assert kinds(outcome="waiting") == {"joined"}
    assert kinds(requester=ATTRIBUTE, kind="joined") == {"joined"}
    assert kinds(ref="orders@2023-01-06", builds=True) == {"joined", "built"}
    assert kinds(ref="orders@2023-01-06", kind="built") == {"built"}
    assert refused(client, "/ledger", builds=True) == (400, "InvalidRequest")
    assert refused(client, "/ledger", kind="built") == (400, "InvalidRequest")
    assert kinds(dataset="mirror") == set()
    assert refused(client, "/ledger", ref="orders@nope") == (404, "UnknownPartition")
    assert refused(client, "/ledger", requester=MARKUP) == (404, "NotFound")


def test_wants_of_arcs_are_in_the_ledger_only_if_asked_for(client: TestClient, world: PagesWorld) -> None:
    def sources(**query: Any) -> set[str]:
        entries = get(client, "/ledger", builds=True, ref="mirror@2023-01-29", **query)["entries"]
        return {entry["requested_by"]["source"] for entry in entries if entry["requested_by"]}

    world.fire()
    world.live("orders@2023-01-29")
    world.fire()

    assert "arc" not in sources()
    assert "arc" in sources(derived=True)


def test_the_ledger_says_when_older_entries_were_not_searched(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = get(client, "/ledger", limit=2)
    monkeypatch.setattr(flow_api, "MAX_SEARCHED", 2)
    cut = get(client, "/ledger", ref="orders@2023-01-03", builds=True)

    assert (len(whole["entries"]), whole["is_cut"]) == (2, False)
    assert whole["n"] == 3
    assert (cut["n"], cut["n_searched"], cut["is_cut"]) == (2, 2, True)


def test_savings_count_the_builds_that_delegations_replaced(client: TestClient) -> None:
    ended_at = time.monotonic() + 60
    while not (found := get(client, "/savings"))["is_counted"] and time.monotonic() < ended_at:
        pass

    assert found["jobs"]["orders"]["avoided"] == 2
    assert found["jobs"]["orders"]["job_runs"]["Failed"] == 1
