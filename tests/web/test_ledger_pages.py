"""The ledger as the API answers it: who asked, what each request got, and what delegation has spared."""

from __future__ import annotations

import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from databuild_dagster.web import ledger_pages
from tests.support.pages_world import ATTRIBUTE, MARKUP, PagesWorld, get, refused


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


def test_the_ledger_says_when_older_entries_were_not_searched(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = get(client, "/ledger", limit=2)
    monkeypatch.setattr(ledger_pages, "MAX_SEARCHED", 2)
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


def test_delegations_name_the_requester_and_the_instance(client: TestClient, world: PagesWorld) -> None:
    found = get(client, "/ledger")

    entries = {(entry["requester"], entry["ref"]): entry for entry in found["entries"]}
    joined, reused = entries[ATTRIBUTE, "orders@2023-01-06"], entries[ATTRIBUTE, "orders@2023-01-03"]
    assert (joined["kind"], joined["outcome"]) == ("joined", "waiting")
    assert (reused["kind"], reused["outcome"], reused["uuid"]) == ("reused", "live", world.uuid("orders@2023-01-03"))
    (commented,) = [entry for entry in found["entries"] if (entry["requested_by"] or {}).get("comment") == MARKUP]
    assert (commented["kind"], commented["requested_by"]["actor"]) == ("reused", "tester")
