"""The page Builds shows job runs that ended, and of one job the success rate and the durations (rule 8.5, seed 001)."""

from __future__ import annotations

import time

from starlette.testclient import TestClient

from tests.support.pages_world import PagesWorld, get, mounted


def test_the_page_of_a_job_has_its_success_rate_and_its_durations(own_world: PagesWorld) -> None:
    for seconds, day in ((20.0, "01"), (30.0, "02")):
        own_world.start(f"orders@2023-01-{day}")
        own_world.clock.turn(seconds)
        own_world.succeed(f"orders@2023-01-{day}")
    own_world.fail("orders@2023-01-03")
    with mounted(own_world) as client:
        ended_at = time.monotonic() + 60
        while not get(client, "/savings")["is_counted"] and time.monotonic() < ended_at:
            pass
        page = client.get("/builds?job=orders").text
        delegations = client.get("/delegations").text

    assert "<strong>66.7%</strong>" in page
    assert "66.7%" in delegations
    assert page.index("orders@2023-01-01: succeeded, 20 s") < page.index("orders@2023-01-02: succeeded, 30 s")
    assert "orders@2023-01-03" in page


def test_job_runs_that_ended_are_listed_only_if_asked_for(client: TestClient) -> None:
    is_open, ended = client.get("/builds").text, client.get("/builds?ended=true").text

    assert "orders@2023-01-06" in is_open
    assert "orders@2023-01-05" not in is_open
    assert "orders@2023-01-05" in client.get("/builds?ref=orders@2023-01-05").text
    assert "orders@2023-01-05" in ended
    assert client.get("/builds?ended=true&job=odrers").text.count("notice bad") == 1
