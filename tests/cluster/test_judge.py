"""The judge finds each kind of violation that is planted, and nothing in a history that is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from .judge import Canonical, Event, Evidence, judged, lost_job_runs

Change = Callable[[Evidence], Evidence]


def history(*facts: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(seq, type, json.loads(json.dumps(payload))) for seq, (type, payload) in enumerate(facts, 1)]


def lease(run: str) -> tuple[str, dict[str, Any]]:
    return "JobRunBuffered", {"runs": [{"job_run_id": run, "refs": ["slow@007"]}]}


def success(run: str) -> tuple[str, dict[str, Any]]:
    output = {"ref": "slow@007", "manifest": {"uri": f"s3://lake/{run}"}}
    return "JobRunSucceeded", {"runs": [{"job_run_id": run, "outputs": [output]}]}


WANTED = ("WantCreated", {"request_id": "r1"})
LOSS = ("JobRunLost", {"failures": [{"job_run_id": "lost"}]})
TAINT = ("TaintCreated", {"taint_id": "t1", "refs": ["slow@007"]})
STARTED = ("MetaInvoked", {"puts": {"distOp.slow.count.1.state": ""}})
ENDED = ("MetaInvoked", {"puts": {"distOpHistory.slow.count.1": ""}})
ARRIVED = (
    "LotArrived",
    {"arrivals": [{"job_run_id": "lot", "ref": "arrived@2013-01-01", "manifest": {"uri": "s3://lake/lot"}}]},
)
FACTS = (
    WANTED,
    lease("lost"),
    LOSS,
    lease("one"),
    success("one"),
    TAINT,
    lease("two"),
    success("two"),
    STARTED,
    ENDED,
    ARRIVED,
)
RIGHT = Evidence(
    history(*FACTS),
    {"w1": ("Successful", "user", ("slow@007",)), "w2": ("Canceled", "job run", ("numbers@007",))},
    {"slow@007": Canonical("Live", "two"), "arrived@2013-01-01": Canonical("Live", "lot")},
    lambda manifest: [3] if manifest == "s3://lake/lot" else [64],
    [("request", "r1"), ("taint", "t1"), ("operation", "slow.count.1")],
    {"2013-01-01": [3]},
)


def with_facts(*facts: tuple[str, dict[str, Any]]) -> Change:
    return lambda seen: replace(seen, events=history(*facts))


def without(fact: tuple[str, dict[str, Any]]) -> Change:
    return with_facts(*(known for known in FACTS if known != fact))


PLANTED: dict[str, tuple[Change, str]] = {
    "wants_that_are_open": (lambda seen: replace(seen, wants={"w": ("Building", "user", ())}), "w of () is Building"),
    "wants_that_need_a_person": (lambda seen: replace(seen, wants={"w": ("Canceled", "user", ())}), "is Canceled"),
    "refs_that_need_a_person": (
        lambda seen: replace(seen, canonical={**seen.canonical, "slow@008": Canonical("Failed", "x")}),
        "slow@008 is Failed",
    ),
    "leases_held_twice": (without(LOSS), "one got slow@007, which lost holds"),
    "successes_of_fenced_attempts": (
        with_facts(*FACTS[:3], success("lost"), *FACTS[5:]),
        "lost had ended, and published",
    ),
    "refs_published_twice": (with_facts(*FACTS[:5], *FACTS[6:], TAINT), "was published 2 times, and tainted 0"),
    "pointers_to_other_attempts": (
        lambda seen: replace(seen, canonical={**seen.canonical, "slow@007": Canonical("Live", "one")}),
        "live by one, and two published it last",
    ),
    "acknowledgements_without_event": (without(WANTED), "request r1 was acknowledged"),
    "operations_not_ended_once": (with_facts(*FACTS, ENDED), "slow.count.1 ended 2 times"),
    "rows_that_are_wrong": (
        lambda seen: replace(seen, values=lambda manifest: [3] if manifest == "s3://lake/lot" else [64, 64]),
        "slow@007 reads as [64, 64]",
    ),
    "files_that_are_in_no_lot": (lambda seen: replace(seen, landed={"2013-01-01": [3, 4]}), "[3, 4] have landed"),
}


def test_a_history_that_is_right_has_no_violation() -> None:
    assert judged(RIGHT) == []
    assert lost_job_runs(RIGHT) == 1


@pytest.mark.parametrize(("question", "change", "sentence"), [(name, *planted) for name, planted in PLANTED.items()])
def test_a_planted_violation_is_found_by_its_question(question: str, change: Change, sentence: str) -> None:
    found = judged(change(RIGHT))

    assert [violation for violation in found if violation.startswith(f"{question}: ") and sentence in violation], found


def test_every_question_has_a_planted_violation() -> None:
    from .judge import QUESTIONS

    assert set(PLANTED) == {question.__name__ for question in QUESTIONS}
