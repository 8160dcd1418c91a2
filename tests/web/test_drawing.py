"""The boxes of a graph have places of their own, and what has no room is counted."""

from __future__ import annotations

from typing import Any

from databuild_dagster.model.refs import Ref
from databuild_dagster.web.drawing import MAX_ROWS, drawn


def node(name: str, level: int) -> dict[str, Any]:
    return {"uuid": name, "ref": Ref(name), "state": "Live", "canonical": True, "live_since": None, "level": level}


def graph(n_inputs: int) -> dict[str, Any]:
    inputs = [f"input@{number:03}" for number in range(n_inputs)]
    return {
        "uuid": "sum",
        "ref": "sum",
        "levels": 1,
        "nodes": [node("sum", 0), *(node(name, -1) for name in inputs)],
        "edges": [{"input": name, "output": "sum"} for name in inputs],
        "is_cut": False,
        "n_reached": 0,
    }


def test_no_two_boxes_have_one_place_and_all_are_within_the_picture() -> None:
    found = drawn(graph(5))

    assert len({(box.x, box.y) for box in found.boxes}) == 6
    assert len(found.lines) == 5
    assert all(0 <= box.x < found.width and 0 <= box.y < found.height for box in found.boxes)
    assert found.n_left_out == 0


def test_boxes_beyond_the_last_row_are_counted() -> None:
    found = drawn(graph(MAX_ROWS + 7))

    assert (found.n_left_out, len(found.lines)) == (7, MAX_ROWS)


def test_a_long_ref_keeps_its_beginning_and_its_end() -> None:
    long = f"{'a' * 40}@2024-01-31"

    (box,) = drawn({**graph(0), "nodes": [node(long, 0)]}).boxes

    assert box.text == "aaaaaaaaaaaaaa…aaa@2024-01-31"
