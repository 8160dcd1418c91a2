"""The requests that had an instance built, back to the first ones (rules 5.1, 6.4)."""

from __future__ import annotations

import getpass

import pytest

from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.why.want_report import who_asked
from databuild_dagster.model import commands as c
from tests.support.catalog import dataset


@pytest.fixture
def world(make_world):
    return make_world(*(dataset(name) for name in "abcd"))


def want(world, ref, actor, comment=""):
    command = c.CreateWants(wants=((ref,),), comment=comment)
    return world.engine.handle(command, actor=actor).want_ids[0]


def askers(world, ref):
    uuid = world.uuid(ref)
    return [(item.actor, item.refs, item.comment) for item in who_asked(world.queries, [uuid])[uuid]]


def test_a_missing_input_was_asked_for_by_the_wants_of_what_needs_it(world):
    """Rule 6.4: through as many levels as there are."""
    want(world, "a", "user:kate", "the board's report")
    world.miss("a", "b")
    world.miss("b", "c")
    world.live("c")

    answer = askers(world, "c")

    assert answer[-1] == ("user:kate", ("a",), "the board's report")
    assert [refs for _, refs, _ in answer] == [("c",), ("b",), ("a",)]


def test_each_instance_has_its_own_askers(world):
    """Rule 5.3: a want that a taint opens again had both built; one that had ended by then, the first alone."""
    kate, finn = want(world, "a", "user:kate"), want(world, "a", "user:finn")
    world.live("a")
    first = world.uuid("a")
    world.taint("a")
    world.cancel_want(finn)
    world.live("a")

    found = who_asked(world.queries, [first, world.uuid("a")])

    assert [[item.want for item in of_one] for of_one in found.values()] == [[kate, finn], [kate]]


def test_an_arrival_without_a_want_was_asked_for_by_no_user(world):
    world.arrive("d", "somewhere")

    assert askers(world, "d") == []


def test_a_person_is_called_as_the_system_calls_them(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "kate")
    assert this_user() == "user:kate"


def test_a_process_without_a_user_is_a_user_without_a_name(monkeypatch):
    """As in a container that was started with a number of its own."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_001)

    assert this_user() == "user"


def test_a_name_that_is_no_text_can_be_recorded(world, monkeypatch):
    monkeypatch.setenv("LOGNAME", "k\udce9te")

    world.engine.handle(c.CreateWants(wants=(("a",),)), actor=this_user())

    assert world.queries.events.after(world.seq - 1)[0].actor == "user:k?te"
