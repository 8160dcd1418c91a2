"""What is alike is one line of the page Now."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from databuild_dagster.engine.outages import begin_outage
from databuild_dagster.model.fold.demands import FOUND_MISSING
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.web.now_page import shortened, together
from tests.support.catalog import HERE
from tests.support.pages_world import PagesWorld


def event(seq: int, kind: str, *refs: str, actor: str = "orchestrator") -> dict[str, Any]:
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


def test_events_of_one_type_actor_and_asset_are_one_line_also_between_others() -> None:
    kept, built, failed = "WantKept", "JobRunSucceeded", "JobRunFailed"
    found = shortened(
        [
            event(7, kept),
            event(6, kept),
            event(5, kept, actor="anna"),
            event(4, built, "a@2"),
            event(3, failed, "a@3"),
            event(2, built, "a@1"),
            event(1, built, "b@1"),
        ]
    )

    assert [(line.event["seq"], line.n) for line in found] == [(7, 2), (5, 1), (4, 2), (3, 1), (1, 1)]
    assert found[2].refs == ["a@2", "a@1"]


def test_events_far_apart_are_lines_of_their_own() -> None:
    found = shortened([event(2, "JobRunFailed", "a"), {**event(1, "JobRunFailed", "a"), "at": "2024-03-05T23:00:00Z"}])

    assert [line.n for line in found] == [1, 1]


def test_wants_for_missing_inputs_are_said_in_words() -> None:
    made = [{**event(seq, "WantCreated", f"a@{seq}"), "text": FOUND_MISSING} for seq in (2, 1)]

    assert [line.in_words for line in shortened(made)] == ["2 wants were made for inputs that a job run found missing"]


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


def test_an_outage_and_what_is_tried_again_are_on_the_page(acting: TestClient, own_world: PagesWorld) -> None:
    """Rule 6.17: given three days that failed by Spark, the outage is one sentence, and the days are one line."""
    for day in range(1, 4):
        ref = f"orders@2023-01-0{day}"
        own_world.want(ref)
        own_world.fail(ref, error="no session", owner=Surrounding.SPARK)
    begin_outage(own_world.engine, HERE, Surrounding.SPARK, "no session", "job run")

    page = acting.get("/").text

    assert page.count("Spark is out of reach for") == 1
    assert "0 of 3" in page[page.index("Retrying") :]
