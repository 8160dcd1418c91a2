"""The page Plan: the form, the effects, the launches over time (rule 8.10)."""

from __future__ import annotations

import html
import re
from typing import Any

from starlette.testclient import TestClient

from databuild_dagster.web.plan_page import MAX_BARS, MAX_ROWS, drawn


def stage(begins_after: float, seconds: float | None) -> dict[str, Any]:
    return {
        "job": "daily",
        "n_refs": 2,
        "refs": ["daily@1", "daily@2"],
        "launches": 1,
        "begins_after": begins_after,
        "seconds": seconds,
        "joined": False,
    }


def test_a_refusal_is_one_sentence_beside_the_form(client: TestClient) -> None:
    answer = client.get("/plan", params={"ref": "orders@1999-01-01"})

    assert answer.status_code == 200
    assert "its partitions begin with 2023-01-01." in html.unescape(answer.text)
    assert 'value="orders@1999-01-01"' in answer.text


def test_the_command_of_a_question_can_be_typed_in_a_shell(client: TestClient) -> None:
    plan = client.get("/plan", params={"ref": '"named@name 0001" named@*'}).text

    assert "<code>databuild plan 'named@name 0001' 'named@*'</code>" in html.unescape(plan)


def test_rows_are_chosen_by_their_effect_and_come_in_pages(client: TestClient) -> None:
    query = {"ref": "named@*", "what": "build"}
    first = client.get("/plan", params=query).text
    last = client.get("/plan", params={**query, "offset": "2000"}).text
    reused = client.get("/plan", params={**query, "only": "reuse"}).text

    assert first.count('<td class="why">') == MAX_ROWS
    assert last.count('<td class="why">') == 3
    assert reused.count('<td class="why">') == 2
    assert re.search(r'aria-current="true"[^>]*>.*?to reuse', reused, re.DOTALL)


def test_a_bar_begins_and_ends_in_proportion_to_its_time() -> None:
    drawing = drawn([stage(-10.0, 20.0), stage(10.0, 10.0), stage(20.0, None)])

    one, two, unknown = drawing.bars
    assert (one.x, two.x) == (0.0, one.width)
    assert abs(one.width - 2 * two.width) <= 0.2
    assert unknown.width > 0
    assert unknown.x + unknown.width <= drawing.width


def test_a_drawing_of_many_launches_says_how_many_it_leaves_out() -> None:
    drawing = drawn([stage(0.0, 0.0)] * (MAX_BARS + 2))

    assert (len(drawing.bars), drawing.n_left_out) == (MAX_BARS, 2)
    assert drawn([]).bars == []
