"""Every url of the API answers what its type says, and as the command line does (rules 15)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from databuild_dagster.web import api
from databuild_dagster.web.api import routes
from databuild_dagster.web.routes import ApiRoute
from tests.support.pages_world import PagesWorld, get

API = "/api/v1"
#: The parameters that each url is called with, beside a call without any where none is required.
CALLS: dict[str, list[dict[str, Any]]] = {
    "/builds": [{"limit": 1}, {"ended": "true", "job": "orders"}, {"in_state": "failed", "since": "7d"}],
    "/events": [{"before": 3}, {"limit": 2}],
    "/log": [{"after": 4, "limit": 2}],
    "/datasets": [{"search": "ORD"}, {"limit": 1, "offset": 1}],
    "/calendar": [
        {"dataset": "orders"},
        {"dataset": "ticks"},
        {"dataset": "ticks", "within": "2022-03-04"},
        {"dataset": "orders", "as_of": 9},
        {"dataset": "named", "find": "name 1999"},
    ],
    "/numbers": [{"dataset": "orders"}, {"dataset": "ticks", "value": "seconds", "within": "2022-03"}],
    "/search": [{"q": "orders@01-0"}, {"q": "orders"}],
    "/partition": [
        {"ref": "orders@2023-01-02"},
        {"ref": "orders@2023-01-31"},
        {"ref": "shown", "as_of": 6},
    ],
    "/command": [{"id": "nothing"}],
    "/explain": [{"name": "orders@2023-01-05"}, {"name": "shown", "as_of": 6}],
    "/history": [{"ref": "orders@2023-01-02"}, {"ref": "shown", "as_of": 6}],
    "/plan": [{"ref": "revenue@2023-01-01"}],
    "/what-if": [{"what": "taint", "ref": "orders@2023-01-01"}, {"what": "missing", "ref": "orders@2023-01-31"}],
    "/arcs": [{"search": "MIR"}, {"limit": 1, "offset": 1}],
    "/arc": [{"name": "mirror"}, {"name": "summary", "limit": 1}],
    "/gaps": [{"dataset": "mirror"}, {"dataset": "mirror", "chain": "true", "start": "2023-01-05", "limit": 2}],
    "/operations": [{"dataset": "orders", "limit": 1}, {"before": 5}],
    "/ledger": [{"derived": "true"}, {"builds": "true", "ref": "orders@2023-01-03"}, {"kind": "reused", "limit": 1}],
    "/wants": [
        {"open": "true"},
        {"ref": "orders@2023-01-07"},
        {"in_state": "failed"},
        {"dataset": "orders", "as_of": 30},
    ],
}
PLAIN = [route for route in routes() if not route.is_stream]


def calls_of(route: ApiRoute, world: PagesWorld) -> list[dict[str, Any]]:
    shown = world.queries.instances.history("shown")
    needs = any(parameter.required for parameter in route.parameters)
    by_id: dict[str, list[dict[str, Any]]] = {
        "/lineage": [{"instance": world.uuid("revenue@2023-01-01")}, {"instance": world.uuid("orders@2023-01-01")}],
        "/graph": [
            {"instance": world.uuid("revenue@2023-01-01")},
            {"instance": world.uuid("whole"), "levels": 1},
            {"instance": world.uuid("orders@2023-01-02"), "as_of": world.seq - 1},
        ],
        "/contents": [{"instance": world.uuid("orders@2023-01-01")}, {"instance": world.uuid("shown")}],
        "/diff": [
            {"a": shown[0].uuid, "b": shown[1].uuid},
            {"a": world.uuid("revenue@2023-01-01"), "b": world.uuid("orders@2023-01-05")},
        ],
        "/receipt": [
            {"instance": world.uuid("revenue@2023-01-01")},
            {"instance": world.uuid("shown"), "limit": 1},
        ],
        "/sample": [{"ref": "shown"}],
        "/want_refs": [{"name": world.open_wants("orders@2023-01-07")[0].id, "offset": 0, "limit": 5}],
        "/operation": [{"id": str(world.running)}, {"id": "orders.write.1"}, {"id": "orders.write.3"}],
        "/job_run": [{"name": world.job_run("orders@2023-01-06")}, {"name": world.queries.job_runs.newest()[-1].id}],
        "/raised": [{"job_run": world.canonical("orders@2023-01-05").job_run}],
        "/want": [{"name": world.open_wants("orders@2023-01-07")[0].id}],
    }
    return [*([] if needs else [{}]), *CALLS.get(route.path, []), *by_id.get(route.path, [])]


@pytest.mark.parametrize("route", PLAIN, ids=lambda route: route.path)
def test_an_answer_is_of_the_type_and_by_the_schema_of_its_route_and_names_no_file(
    client: TestClient, world: PagesWorld, document: dict[str, Any], route: ApiRoute
) -> None:
    schema = document["paths"][route.path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator({**schema, "components": document["components"]})
    calls = calls_of(route, world)

    answers = [client.get(API + route.path, params=query) for query in calls]

    assert answers
    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
        msgspec.json.decode(answer.content, type=route.answer, strict=True, dec_hook=lambda kind, _: kind())
        validator.validate(answer.json())
        assert "file:///" not in answer.text


def test_a_year_of_five_minute_lots_is_shown_by_the_day(client: TestClient) -> None:
    answer = client.get(f"{API}/calendar", params={"dataset": "ticks"})

    found = answer.json()
    cells = {cell["title"]: cell for row in found["rows"] for cell in row["cells"] if cell}
    assert (found["n"], found["is_grouped"], len(cells)) == (105_120, True, 365)
    assert (cells["2022-03-04"]["mark"], cells["2022-03-04"]["counts"]) == ("partial", {"live": 1, "missing": 287})
    assert cells["2022-03-05"]["mark"] == "failed"
    assert len(answer.content) < 300_000


def test_a_page_of_many_keys_counts_all_of_them_and_opens_at_a_key(client: TestClient) -> None:
    def calendar(**query: Any) -> Any:
        return get(client, "/calendar", **query)

    first, found = calendar(dataset="named"), calendar(dataset="named", find="named@name 1999")
    day, month = calendar(dataset="ticks", find="2022-03-04-00:05"), calendar(dataset="ticks", find="nothing")

    assert (first["n"], first["counts"]) == (2_003, {"live": 2, "missing": 2_001})
    assert (found["found"], found["offset"], found["counts"]) == ("named@name 1999", 1_500, first["counts"])
    assert (day["found"], day["within"], day["n"]) == ("ticks@2022-03-04-00:05", "2022-03-04", 288)
    assert (month["found"], month["n"]) == (None, 105_120)


def test_the_failures_are_the_first_causes(client: TestClient) -> None:
    found = get(client, "/failures")

    assert [cause["refs"] for cause in found["alike"]] == [["ticks@2022-03-05-00:00"], ["orders@2023-01-05"]]
    assert (found["n"], found["n_causes"]) == (2, 2)


def test_a_history_has_the_newest_instances_up_to_the_limit(client: TestClient, world: PagesWorld) -> None:
    for _ in range(3):
        world.live("orders@2023-01-15")
        world.taint("orders@2023-01-15", reason="wrong")
    of_ref = {"ref": "orders@2023-01-15"}

    every = get(client, "/history", **of_ref)
    newest = get(client, "/history", **of_ref, limit=2)

    assert len(every) == 3
    assert newest == every[1:]


def test_a_filter_that_ended_wants_may_pass_looks_at_the_newest_ones(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(**parameters: Any) -> tuple[int | None, int, list[list[str]]]:
        answer = get(client, "/wants", **parameters, source="user")
        return answer["of_newest"], answer["n"], [want["refs"] for want in answer["wants"]]

    in_full = found()
    of_named = found(dataset="named")
    monkeypatch.setattr(api, "MAX_LOOKED_AT", 3)
    monkeypatch.setattr(api, "MAX_COUNTED", 1)

    assert in_full[0] is None
    assert found() == (3, 2, in_full[2][:2])
    assert found(limit=1) == (3, 2, in_full[2][:1])
    assert found(dataset="named") == (3, 0, [])
    assert of_named[1] == 2
    assert found(ref="whole") == (None, 1, [["whole"]])


def test_events_name_the_refs_of_their_job_runs(client: TestClient, world: PagesWorld) -> None:
    events = get(client, "/log", after=0, limit=500)

    failed = next(event for event in events if event["type"] == "JobRunFailed")
    assert (failed["refs"], failed["n_refs"]) == (["orders@2023-01-05"], 1)
    assert [event["seq"] for event in events] == list(range(1, world.seq + 1))
    newest = get(client, "/events", limit=3)
    assert get(client, "/events", limit=3, before=2**53) == newest
    assert [event["seq"] for event in newest] == [world.seq, world.seq - 1, world.seq - 2]
