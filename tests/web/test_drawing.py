"""The boxes of a graph have places of their own, and what has no room is counted."""

from __future__ import annotations

from typing import Any

from databuild_dagster.model.refs import Ref
from databuild_dagster.web.drawing import BOX_HEIGHT, BOX_WIDTH, MARGIN, MAX_LINES, PER_LINE, drawn


def node(name: str, level: int) -> dict[str, Any]:
    return {"uuid": name, "ref": Ref(name), "state": "Live", "canonical": True, "live_since": None, "level": level}


def graph(n_inputs: int) -> dict[str, Any]:
    inputs = [f"input_{number:03}" for number in range(n_inputs)]
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


def test_boxes_beyond_the_last_line_of_a_level_are_counted() -> None:
    most = PER_LINE * MAX_LINES

    found = drawn(graph(most + 7))

    assert (found.n_left_out, len(found.lines)) == (7, most)


def test_the_width_does_not_grow_with_the_depth() -> None:
    nodes = [node(f"c{number}", -number) for number in range(26)]

    found = drawn({**graph(0), "nodes": nodes})

    assert (found.width, found.depth) == (BOX_WIDTH + 2 * MARGIN, 25)
    assert all(box.y + BOX_HEIGHT < found.height for box in found.boxes)


def test_alike_instances_of_a_level_share_a_box_until_they_are_unfolded() -> None:
    days = [node(f"day@{number:02}", -1) for number in range(31)]
    days[4]["state"] = "Tainted"
    edges = [{"input": day["uuid"], "output": "sum"} for day in days]
    shown = {**graph(0), "nodes": [node("sum", 0), *days], "edges": edges}

    folded, unfolded = drawn(shown), drawn(shown, "day")

    assert [(box.text, box.node["state"]) for box in folded.boxes] == [
        ("30 × day", "Live"),
        ("day@04", "Tainted"),
        ("sum", "Live"),
    ]
    assert (len(folded.lines), folded.n_left_out) == (2, 0)
    assert (len(unfolded.boxes), len(unfolded.lines)) == (32, 31)


def test_a_long_ref_keeps_its_beginning_and_its_end() -> None:
    long = f"{'a' * 40}@2024-01-31"

    (box,) = drawn({**graph(0), "nodes": [node(long, 0)]}).boxes

    assert box.text == "aaaaaaaaaaaaa…aa@2024-01-31"
