"""Answers about one thing of any size have a bound (rules 15)."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from databuild_dagster.web import pages, state
from databuild_dagster.web.bounded import MAX_REFS
from tests.support.pages_world import PagesWorld, get, mounted, refused

API = "/api/v1"
MANY = [f"named@name {n:04}" for n in range(100, 100 + MAX_REFS + 50)]


def test_a_want_of_many_refs_is_listed_with_the_first_of_them(client: TestClient, world: PagesWorld) -> None:
    want = world.want(*MANY)

    wants = get(client, "/wants", ref=MANY[-1])["wants"]
    listed = next(one for one in wants if one["id"] == want)
    (shown,) = get(client, "/want", name=want)["wants"]

    assert (listed["refs"], listed["n_refs"], listed["is_cut"]) == (MANY[:MAX_REFS], len(MANY), True)
    assert (len(shown["waits_for"]), shown["n_waits_for"]) == (MAX_REFS, len(MANY))
    few = get(client, "/wants", ref="orders@2023-01-07")["wants"]
    assert [(one["n_refs"], one["is_cut"]) for one in few] == [(1, False)]


def test_all_refs_of_a_want_come_in_pages_with_their_marks(client: TestClient, world: PagesWorld) -> None:
    want = world.want("orders@2023-01-01", *MANY)

    pages = [get(client, "/want_refs", name=want, offset=offset) for offset in (0, 50, 100, 150)]

    assert [one["ref"] for page in pages for one in page["refs"]] == ["orders@2023-01-01", *MANY]
    assert {page["n"] for page in pages} == {len(MANY) + 1}
    assert [one["mark"] for one in pages[0]["refs"][:2]] == ["live", "wanted"]
    second = client.get(f"/want?name={want}&offset=50").text
    assert "51 to 100 of 151" in second
    assert MANY[49] in second
    assert f"{MANY[99]}<" not in second


def test_ended_job_runs_are_listed_by_the_filters_of_the_command_line(client: TestClient, world: PagesWorld) -> None:
    def found(**query: str) -> list[tuple[str, str]]:
        runs = [build["job_run"] for build in get(client, "/builds", **query)]
        return [(run["refs"][0], run["state"]) for run in runs]

    failed = ("orders@2023-01-05", "Failed")
    assert found(ref="orders@2023-01-05", ended="true") == [failed]
    assert found(ref="orders@2023-01-05") == []
    assert failed in found(in_state="failed", job="orders")
    assert found(in_state="failed", since="2999-01-01T00:00:00Z") == []
    assert refused(client, "/builds", job="odrers") == (404, "NotFound")
    report = get(client, "/job_run", name=world.job_run("orders@2023-01-06"))
    assert [output["state"] for output in report["outputs"]] == ["Building"]


def test_wants_reasons_histories_and_calendars_are_those_of_an_earlier_event(
    own_world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3.2: as `--as-of` has them."""
    ref = "orders@2023-01-01"
    own_world.want(ref)
    own_world.start(ref)
    then = own_world.seq
    own_world.succeed(ref)
    with mounted(own_world) as client:
        wants = get(client, "/wants", open="true", as_of=then)
        (instance,) = get(client, "/history", ref=ref, as_of=then)
        calendar = get(client, "/calendar", dataset="orders", as_of=then)

        assert get(client, "/wants", open="true")["n"] == 0
        assert ([want["state"] for want in wants["wants"]], wants["as_of"]["seq"]) == (["Building"], then)
        assert (instance["state"], instance["live_since"]) == ("Building", None)
        assert get(client, "/explain", name=ref, as_of=then)["state"] == "Building"
        assert calendar["rows"][0]["cells"][0]["mark"] == "building"
        assert "building" in client.get(f"/calendar?dataset=orders&ref={ref}&as_of={then}").text
        assert 'type="range"' in client.get("/calendar?dataset=orders").text
        monkeypatch.setattr(pages, "MAX_FOLDED", then - 1)
        assert 'type="range"' not in client.get("/calendar?dataset=orders").text
        monkeypatch.setattr(state, "MAX_FOLDED", then - 1)
        assert refused(client, "/history", ref=ref, as_of=then) == (400, "TooManyEvents")
        assert get(client, "/wants", open="true", as_of=then)["n"] == 1


def test_the_history_names_some_refs_of_the_wants_behind_an_instance(client: TestClient, world: PagesWorld) -> None:
    refs = [f"named@name {n:04}" for n in range(700, 740)]
    world.want(*refs)
    world.start(refs[0])

    (instance,) = get(client, "/history", ref=refs[0])

    (asker,) = instance["asked_by"]
    assert (len(asker["refs"]), asker["n_refs"], instance["n_asked_by"]) == (10, 40, 1)


def test_the_graph_of_an_earlier_event_is_a_page_with_a_slider(client: TestClient, world: PagesWorld) -> None:
    day = world.uuid("orders@2023-01-02")
    built = get(client, "/history", ref="revenue@2023-01-01")[0]["seq"]

    before = get(client, "/graph", instance=day, as_of=built)
    now = get(client, "/graph", instance=day)
    page = client.get(f"/lineage?instance={day}&as_of={built}").text

    assert [(node["ref"], node["state"]) for node in before["nodes"]] == [("orders@2023-01-02", "Live")]
    assert (before["as_of"]["seq"], now["as_of"]) == (built, None)
    assert {node["ref"]: node["state"] for node in now["nodes"]}["orders@2023-01-02"] == "Tainted"
    assert "revenue@2023-01-01" in {node["ref"] for node in now["nodes"]}
    assert f'as of <time datetime="{before["as_of"]["at"]}">' in page
    assert "would have reached 0 other live partitions" in page
    too_early = client.get(f"{API}/graph", params={"instance": day, "as_of": before["made_seq"] - 1})
    assert (too_early.status_code, too_early.json()["error"]["type"]) == (400, "NotMadeYet")
