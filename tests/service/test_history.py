"""The judge of records finds each kind of broken promise, and none in a sound history."""

from __future__ import annotations

import pytest

from .history import LEASE_SECONDS, Call, Execution, Final, Instance, Troubles, faults

BUILT = Execution("a@x", "token", 7, 10.0, 11.0)
SOUND = {"a@x": [Instance("u1", "token")]}
SHOWN = {"state": "Live", "canonical": {"uuid": "u1"}, "paused": None}
REFUSED = {"error": {"type": "NotLive"}}


def call(what, called, answered, answer, *, ref="a@x", pid=1, code=0, of=None):
    return Call("client", pid, what, ref, of, called, answered, code, answer)


def judged(calls, executions=(BUILT,), *, instances=None, wants=None, killed=None, frozen=None, log_check=""):
    troubles = Troubles(killed or {}, frozen or {}, end=100.0)
    return faults(list(calls), list(executions), troubles, Final(instances or SOUND, wants or {}, log_check))


def test_a_sound_history_has_no_faults():
    calls = [
        call("show", 1.0, 2.0, {"state": None, "canonical": None, "paused": None}),
        call("read", 3.0, 4.0, REFUSED, code=2),
        call("build", 5.0, 13.0, {"refs": {"live": 1}}),
        call("read", 14.0, 15.0, [{"a": "token"}]),
        call("taint", 16.0, 17.0, {"taint_id": "t"}),
        call("read", 18.0, 19.0, {"error": {"type": "TaintedRef"}}, code=2),
        call("untaint", 20.0, 21.0, {}, ref="t"),
        call("show", 22.0, 23.0, SHOWN),
        call("want", 24.0, 25.0, [{"id": "w"}]),
        call("cancel", 26.0, 27.0, [{"id": "w", "state": "Canceled"}], ref="w"),
        call("pause", 28.0, 29.0, {}),
        call("pause", 30.0, 31.0, {"error": {"type": "AlreadyPaused"}}, code=2),
        call("resume", 32.0, None, None),
    ]

    assert judged(calls, wants={"w": "Canceled"}) == []


@pytest.mark.parametrize(
    ("calls", "more", "sentence"),
    [
        ([call("read", 12.0, 13.0, [{"a": "other"}])], {}, "the unpublished data other"),
        ([call("read", 1.0, 2.0, [{"a": "token"}])], {}, "a@x: readers"),
        ([call("show", 1.0, 2.0, SHOWN)], {}, "a@x: readers"),
        ([call("build", 1.0, 2.0, {})], {}, "a@x: readers"),
        (
            [
                call("show", 12.0, 13.0, SHOWN),
                call("taint", 14.0, 15.0, {"taint_id": "t"}),
                call("show", 16.0, 17.0, SHOWN),
            ],
            {},
            "a@x: readers",
        ),
        (
            [call("pause", 1.0, 2.0, {}), call("resume", 3.0, 4.0, {"error": {"type": "NotPaused"}}, code=2)],
            {},
            "a@x: pause",
        ),
        ([call("want", 1.0, 2.0, [{"id": "w"}])], {}, "want w of a@x was acknowledged"),
        (
            [call("cancel", 1.0, 2.0, [{"id": "w", "state": "Canceled"}], ref="w")],
            {"wants": {"w": "Idle"}},
            "want w was canceled by client, and is Idle",
        ),
        ([call("show", 1.0, 2.0, {"error": {"type": "E"}}, code=70)], {}, "show a@x ended by"),
        ([], {"log_check": "rule 4.1"}, "log check: rule 4.1"),
        ([], {"instances": {"b@x": [Instance("u1", "token", "one", "another")]}}, "its lineage names the data one"),
        ([], {"executions": (BUILT, BUILT._replace(token="2", pid=8, begin=10.5))}, "was at work"),
        (
            [],
            {
                "executions": (BUILT._replace(end=90.0), BUILT._replace(token="2", pid=8, begin=20.5)),
                "frozen": {7: [(12.0, 15.0)]},
            },
            "was at work",
        ),
    ],
)
def test_a_broken_promise_is_found(calls, more, sentence):
    found = judged(calls, **more)

    assert len(found) == 1
    assert sentence in found[0]


@pytest.mark.parametrize(
    "more",
    [{"killed": {7: 12.0}}, {"frozen": {7: [(12.0, 12.5 + LEASE_SECONDS)]}}],
    ids=["killed", "frozen beyond the lease"],
)
def test_a_function_may_begin_while_another_one_is_dead_or_frozen_beyond_its_lease(more):
    executions = (BUILT._replace(end=None), BUILT._replace(token="2", pid=8, begin=50.0, end=51.0))

    found = judged([], executions, instances={"a@x": [Instance("u2", "2")]}, **more)

    assert found == []
