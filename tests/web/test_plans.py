"""The plan and the what-if of the API: refs as a person types them, refusals, and nothing recorded (rule 8.10)."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from .conftest import MARKUP, PagesWorld

API = "/api/v1"


def test_a_plan_takes_refs_and_ranges_with_blanks_between(client: TestClient) -> None:
    found = client.get(f"{API}/plan", params={"ref": "orders@2023-01-07..2023-01-09  whole"}).json()

    assert {job["ref"]: job["action"] for job in found["jobs"]} == {
        "orders@2023-01-07": "build",
        "orders@2023-01-08": "blocked",
        "orders@2023-01-09": "build",
        "whole": "reuse",
    }


def test_a_key_with_blanks_stands_between_quotation_marks(client: TestClient) -> None:
    found = client.get(f"{API}/plan", params={"ref": '"named@name 0001"'}).json()

    assert [job["ref"] for job in found["jobs"]] == ["named@name 0001"]


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


@pytest.mark.parametrize(
    ("path", "query", "kind"),
    [
        ("/plan", {}, "MissingParameter"),
        ("/plan", {"ref": "   "}, "InvalidRequest"),
        ("/plan", {"ref": "nowhere"}, "UnknownAsset"),
        ("/plan", {"ref": "orders@1999-01-01"}, "UnknownPartition"),
        ("/plan", {"ref": "ticks@*"}, "ReachesTooFar"),
        ("/plan", {"ref": '"orders@2023-01-01'}, "MalformedNames"),
        ("/plan", {"ref": MARKUP}, "UnknownAsset"),
        ("/what-if", {"ref": "whole"}, "MissingParameter"),
        ("/what-if", {"what": "fire", "ref": "whole"}, "InvalidRequest"),
        ("/what-if", {"what": "missing", "ref": "whole"}, "HasArrived"),
        ("/what-if", {"what": "code", "ref": "whole orders"}, "InvalidRequest"),
        ("/what-if", {"what": "taint", "ref": "orders@2023-01-06"}, "BeingBuilt"),
    ],
)
def test_a_question_that_cannot_be_is_refused_in_one_sentence(
    client: TestClient, path: str, query: dict[str, str], kind: str
) -> None:
    answer = client.get(API + path, params=query)

    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["type"] == kind
