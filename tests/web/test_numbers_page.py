"""The numbers of an asset over its partitions: bounded points, and numbers that are unlike their neighbors."""

from __future__ import annotations

import msgspec
import pytest
from starlette.testclient import TestClient

from databuild_dagster.model.refs import Ref
from databuild_dagster.web.numbers_page import MAX_POINTS, MAX_UNLIKE, unlike_in
from tests.support.pages_world import PagesWorld, get, refused
from tests.support.world import COMPLETE


def known(*numbers: float) -> list[tuple[Ref, float]]:
    return [(Ref(f"a@{place:03}"), number) for place, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "unlike"),
    [
        ((100, 110, 50, 105, 95, 100), ["a@002"]),
        ((100, 110, 100, 250, 95, 100), ["a@003"]),
        ((100, 110, 0, 105, 95, 100), ["a@002"]),
        ((100, 130, 80, 105, 95, 100), []),
        ((100, 10, 100), []),
        ((0, 0, 0, 0, 0, 5), []),
    ],
    ids=["half", "too many", "nothing", "usual", "too few neighbors", "only zeros around"],
)
def test_a_number_is_unlike_by_its_ratio_to_the_median_around_it(numbers: tuple[float, ...], unlike: list[str]) -> None:
    assert [one.ref for one in unlike_in(known(*numbers))] == unlike


def test_the_most_unlike_numbers_come_first_and_are_bounded() -> None:
    numbers = [100.0] * 400
    numbers[20::20] = [50.0 - place for place in range(19)]

    found = unlike_in(known(*numbers))

    assert (len(found), found[0].number) == (MAX_UNLIKE, 32.0)


def test_a_point_of_many_partitions_keeps_the_least_and_the_most(own_world: PagesWorld, acting: TestClient) -> None:
    for hour, rows in enumerate((200, 90, 200, 210, 190, 205)):
        manifest = msgspec.structs.replace(COMPLETE, rows=rows)
        own_world.succeed(f"ticks@2022-01-01-0{hour}:00", manifest=manifest)

    found = get(acting, "/numbers", dataset="ticks")

    assert (found["n"], found["n_known"], found["least"], found["most"]) == (105_120, 6, 90, 210)
    assert len(found["points"]) <= MAX_POINTS
    assert [(point["n"], point["least"], point["most"], point["is_unlike"]) for point in found["points"][:2]] == [
        (438, 90, 210, True),
        (438, None, None, False),
    ]
    assert [one["ref"] for one in found["unlike"]] == ["ticks@2022-01-01-01:00"]


def test_a_part_of_the_partitions_has_a_chart_of_its_own(own_world: PagesWorld, acting: TestClient) -> None:
    own_world.live("ticks@2022-01-01-00:00", "ticks@2022-01-02-00:00")

    found = get(acting, "/numbers", dataset="ticks", value="bytes", within="2022-01-02")

    assert (found["n"], found["n_known"], found["points"][0]["n"]) == (288, 1, 2)
    assert acting.get("/numbers?dataset=ticks&value=seconds&within=2022-01-02").status_code == 200


def test_a_number_of_the_authors_metadata_is_picked_like_rows(own_world: PagesWorld, acting: TestClient) -> None:
    for hour, tills in enumerate((4.0, -2.5)):
        own_world.succeed(f"ticks@2022-01-01-0{hour}:00", tills=tills, rows=7.0)

    found = get(acting, "/numbers", dataset="ticks", value="tills")
    page = acting.get("/numbers?dataset=ticks&value=tills").text

    assert (found["names"], found["least"], found["most"]) == (["rows", "bytes", "files", "seconds", "tills"], -2.5, 4)
    assert "Least -2.5, median 0.75 (dashed), most 4." in page
    assert refused(acting, "/numbers", dataset="ticks", value="till") == (400, "InvalidRequest")
