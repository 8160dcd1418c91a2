"""The plan of the API: refs as a person types them, and refusals (rule 8.6)."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.support.pages_world import API, MARKUP


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
    ],
)
def test_a_question_that_cannot_be_is_refused_in_one_sentence(
    client: TestClient, path: str, query: dict[str, str], kind: str
) -> None:
    answer = client.get(API + path, params=query)

    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["type"] == kind
