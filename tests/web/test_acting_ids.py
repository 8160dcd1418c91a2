"""The command id of an action: the same call is done once, and another call with the same id is refused (decision 0054)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from databuild_dagster.web.settings import Settings
from tests.support.browser import confirmation, form_of, sent
from tests.support.pages_world import DAY, OTHER_DAY, TOKEN, PagesWorld, call, mounted

ONCE = {"command_id": "once"}


@pytest.mark.parametrize(
    "change",
    [{"refs": [OTHER_DAY]}, {"refs": [DAY, OTHER_DAY]}, {"comment": "b"}, {"comment": None}, {"priority": 1}, {"actor": "b"}],
    ids=["another ref", "one more ref", "another comment", "no comment", "one more field", "another actor"],
)  # fmt: skip
def test_an_id_that_is_used_with_other_fields_is_refused(
    acting: TestClient, own_world: PagesWorld, change: dict[str, Any]
) -> None:
    fields = {"refs": [DAY], "comment": "a", **ONCE}
    first = call(acting, "want", fields)
    before = own_world.seq

    refused = call(acting, "want", fields | change)
    again = call(acting, "want", fields)

    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "CommandIdUsed")
    assert (again.status_code, own_world.seq) == (200, before)
    assert [want["id"] for want in again.json()] == [want["id"] for want in first.json()]


def test_the_same_fields_in_another_order_are_the_same_command(acting: TestClient, own_world: PagesWorld) -> None:
    call(acting, "want", {"refs": [DAY], "comment": "a", "rebuild": True, **ONCE})
    before = own_world.seq

    again = call(acting, "want", {"rebuild": True, "comment": "a", **ONCE, "refs": [DAY], "sla": None})

    assert (again.status_code, own_world.seq) == (200, before)


def test_a_time_from_now_is_the_same_field_at_each_call(acting: TestClient, own_world: PagesWorld) -> None:
    """It is another time each time."""
    fields = {"refs": ["orders"], "reason": "the source moves", "until": "12h", **ONCE}

    first, again = call(acting, "pause", fields), call(acting, "pause", fields)

    assert (first.status_code, again.status_code) == (200, 200)


def test_two_actions_may_have_the_same_id(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.live(DAY)

    answers = [call(acting, action, {"refs": [DAY], "reason": "a", **ONCE}) for action in ("taint", "pause")]

    assert [answer.status_code for answer in answers] == [200, 200]


def test_an_id_finds_its_events_with_and_without_the_fingerprint(acting: TestClient, own_world: PagesWorld) -> None:
    before = own_world.seq
    call(acting, "want", {"refs": [DAY], **ONCE})
    (event,) = own_world.queries.events.after(before)

    found = [acting.get("/api/v1/command", params={"id": id}).json() for id in ("web/want/once", event.command_id)]

    assert [[shape["seq"] for shape in events] for events in found] == [[event.seq], [event.seq]]


def test_a_form_that_was_changed_after_it_was_sent_is_refused_and_gets_a_new_id(
    acting: TestClient, own_world: PagesWorld
) -> None:
    """A person goes back, changes the comment, and presses the button again."""
    form = form_of(confirmation(acting, "want", refs=DAY).text)
    sent(acting, "want", form, actor="Anna", comment="a")
    before = own_world.seq

    refused = sent(acting, "want", form, actor="Anna", comment="b")
    again = form_of(refused.text)
    after_refusal = own_world.seq
    done = sent(acting, "want", again)

    assert (refused.status_code, after_refusal) == (409, before)
    assert dict(again)["comment"] == "b"
    assert dict(again)["command_id"] != dict(form)["command_id"]
    assert (done.status_code, own_world.seq > before) == (303, True)


def test_of_two_calls_at_once_with_one_id_one_is_done(own_world: PagesWorld) -> None:
    both_begin = threading.Barrier(2)

    def want(ref: str, id: str) -> int:
        with mounted(own_world, Settings(token=TOKEN)) as client:
            both_begin.wait(250)
            status: int = call(client, "want", {"refs": [ref], "command_id": id}).status_code
            return status

    with ThreadPoolExecutor(2) as threads:
        for id in map(str, range(10)):
            before = own_world.seq
            answers = [threads.submit(want, ref, id) for ref in (DAY, OTHER_DAY)]
            assert sorted(answer.result(250) for answer in answers) == [200, 409]
            assert own_world.seq == before + 1
