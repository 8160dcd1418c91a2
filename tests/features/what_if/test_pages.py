"""Suppositions in the API and on the page Plan: refusals, and nothing recorded (rule 8.10)."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.support.pages_world import API, PagesWorld, client, refused, world

__all__ = ["client", "world"]


def test_each_question_has_its_answer(client: TestClient, world: PagesWorld) -> None:
    def answer(**query: str) -> dict[str, str]:
        found = client.get(f"{API}/what-if", params=query).json()
        return {change["ref"]: change["effect"] for change in found["changes"]}

    before = world.seq

    tainted = answer(what="taint", ref="orders@2023-01-01")
    downstream = answer(what="taint", ref="orders@2023-01-01", downstream="true")
    code = answer(what="code", ref="whole")
    missing = answer(what="missing", ref="orders@2023-01-31")

    # The month was stale before, and its other wanted days are built meanwhile.
    assert tainted["orders@2023-01-01"] == "build"
    assert "revenue@2023-01-01" not in tainted
    assert downstream["revenue@2023-01-01"] in ("build", "wait", "blocked", "tainted")
    assert code == {"whole": "build"}
    assert missing["orders@2023-01-31"] == "blocked"
    assert world.seq == before


def test_the_form_keeps_the_question_and_every_question_has_a_page(client: TestClient) -> None:
    empty = client.get("/plan").text
    asked = client.get("/plan", params={"ref": "orders@2023-01-01", "what": "taint", "downstream": "true"}).text

    assert empty.count("<option") == 4
    assert 'value="orders@2023-01-01"' in asked
    assert '<option value="taint" selected>' in asked
    assert "checked" in asked
    assert "<code>databuild plan --if-tainted --downstream orders@2023-01-01</code>" in asked


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ({"ref": "whole"}, "MissingParameter"),
        ({"what": "fire", "ref": "whole"}, "InvalidRequest"),
        ({"what": "code", "ref": "whole orders"}, "InvalidRequest"),
        ({"what": "taint", "ref": "orders@2023-01-06"}, "BeingBuilt"),
    ],
)
def test_a_supposition_that_cannot_be_is_refused(client: TestClient, query: dict[str, str], kind: str) -> None:
    assert refused(client, "/what-if", **query) == (400, kind)
