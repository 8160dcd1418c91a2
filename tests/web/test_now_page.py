"""What is alike is one line of the page Now."""

from __future__ import annotations

from typing import Any

from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.events import EventShape
from databuild_dagster.web.now_page import shortened, together


def event(seq: int, kind: str, *refs: str, actor: str = "orchestrator") -> EventShape:
    at = "2024-03-06T00:00:00Z"
    return {
        "seq": seq,
        "at": at,
        "type": kind,
        "actor": actor,
        "refs": [*map(Ref, refs)],
        "n_refs": len(refs),
        "text": "",
    }


def test_events_without_refs_that_repeat_themselves_are_one_line() -> None:
    kept, built = "WantKept", "JobRunSucceeded"
    found = shortened(
        [event(5, kept), event(4, kept), event(3, kept, actor="anna"), event(2, built, "a"), event(1, built, "a")]
    )

    assert [(line.event["seq"], line.n) for line in found] == [(5, 2), (3, 1), (2, 1), (1, 1)]


def want(ref: str, source: str, deadline: str | None = None, state: str = "Building") -> Any:
    return {
        "id": f"{ref} {source}",
        "refs": [Ref(ref)],
        "n_refs": 1,
        "state": state,
        "source": source,
        "actor": source,
        "deadline": deadline,
    }


def test_wants_of_arcs_for_one_asset_share_a_line_and_those_of_people_do_not() -> None:
    found = together(
        [
            want("a@3", "arc"),
            want("a@2", "user"),
            want("a@2", "arc"),
            want("a@1", "user"),
            want("a@1", "arc", "2024"),
            want("b", "arc"),
        ]
    )

    assert [line.refs for line in found] == [["a@3", "a@2"], ["a@2"], ["a@1"], ["a@1"], ["b"]]
