"""The list of what somebody tainted or paused, each with the button that ends it."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.support.pages_world import PagesWorld, get


def test_taints_and_pauses_in_force_are_listed_with_who_and_why(own_world: PagesWorld, acting: TestClient) -> None:
    own_world.live("orders@2023-01-01", "orders@2023-01-02")
    taint = own_world.taint("orders@2023-01-01", "orders@2023-01-02", reason="counted twice")
    own_world.untaint(own_world.taint("orders@2023-01-01", reason="a mistake"))
    own_world.pause("ticks", reason="the till is closed")
    own_world.pause("orders@2023-01-08", reason="late")
    own_world.resume("orders@2023-01-08")

    found = get(acting, "/taints")
    page = acting.get("/taints").text

    assert [(one["taint_id"], one["reason"], one["actor"], one["n"], one["refs"]) for one in found["taints"]] == [
        (taint, "counted twice", "tester", 2, ["orders@2023-01-01", "orders@2023-01-02"])
    ]
    assert [(one["name"], one["pause"]["reason"]) for one in found["pauses"]] == [("ticks", "the till is closed")]
    assert f"/confirm/untaint?taint={taint}" in page
    assert "/confirm/resume?refs=ticks" in page


def test_without_taints_and_pauses_the_page_says_so(acting: TestClient) -> None:
    page = acting.get("/taints").text

    assert "Readers see no taint." in page
    assert "Nothing is paused." in page
