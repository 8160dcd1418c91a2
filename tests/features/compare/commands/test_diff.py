"""`databuild diff REF` compares the canonical instance with the one before it, or any two (rules 15, 4.6)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.events import MadeWith
from tests.features.compare.launches import launch
from tests.support.project import Project
from tests.support.published import DAYS, DELTA, PublishedWorld

DAY, OTHER = f"sales@{DAYS[0]}", f"sales@{DAYS[1]}"


@pytest.fixture
def sales(project: Project) -> PublishedWorld:
    """A dataset in the home of the project."""
    return PublishedWorld(project.home, DELTA)


def test_an_instance_is_compared_with_the_one_before_it(project: Project, sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"amount": [1.5, 2.5]})
    sales.taint(DAY, reason="no names")
    launch(sales, DAY, MadeWith("code-2", {}, {}, {}))
    sales.build(DAYS[0], {"amount": [1, 2], "name": ["x", "y"]})

    found = project.ask("diff", DAY)
    text = project.call("diff", DAY).out

    assert [(column["name"], column["change"]) for column in found["columns"]] == [
        ("amount", "changed"),
        ("name", "added"),
    ]
    assert (found["a"]["state"], found["b"]["state"], found["a"]["rows"], found["b"]["rows"]) == (
        "Tainted",
        "Live",
        2,
        2,
    )
    assert [(setting["kind"], setting["name"]) for setting in found["settings"]] == [("code", "digest")]
    assert "column name" in text
    assert "code digest" in text
    assert "no names" in text
    assert (found["equal_by_hash"], "equal by hash" in text) == (False, False)


def test_rows_that_are_equal_by_their_hashes_are_said(project: Project, sales: PublishedWorld) -> None:
    sales.build(DAYS[0], {"id": [1]}, content_hash="arrow-1:1:0a")
    sales.build(DAYS[1], {"id": [1]}, content_hash="arrow-1:1:0a")
    sales.taint(DAY)
    sales.build(DAYS[0], {"id": [1]}, content_hash="arrow-1:1:0a")

    assert project.ask("diff", DAY)["equal_by_hash"] is True
    assert "Their rows are equal by hash." in project.call("diff", DAY).out
    assert "1 added, 1 equal by hash." in project.call("diff", DAY, OTHER).out


def test_a_range_is_compared_by_its_rows(project: Project, sales: PublishedWorld) -> None:
    for day in DAYS[:3]:
        sales.build(day, {"id": [1, 2], "amount": [1.5, 2.5]})
        sales.taint(f"sales@{day}")
    for day, amount in zip(DAYS[:3], (2.5, 9.0, 2.5), strict=True):
        sales.build(day, {"id": [1, 2], "amount": [1.5, amount]})

    words = (f"sales@{DAYS[0]}..{DAYS[2]}", "--key", "id")
    found, text = project.ask("diff", *words), project.call("diff", *words, "--markdown").out

    assert found["counts"] == {"different": 1, "equal": 2}
    amounts = {"a": {"nulls": 0, "least": 1.5, "greatest": 2.5}, "b": {"nulls": 0, "least": 1.5, "greatest": 9.0}}
    assert [(of["ref"], of["changed"], of["values"]) for of in found["partitions"]] == [
        (OTHER, 1, [{"name": "amount", "rows": 1, **amounts}])
    ]
    assert f"| {OTHER} | different | 2 | 2 | 0 | 0 | 1 | amount in 1 |" in text


def test_two_instances_are_named_for_one_ref_alone(project: Project, sales: PublishedWorld) -> None:
    uuid = sales.build(DAYS[0], {"id": [1]})
    sales.build(DAYS[1], {"id": [1]})

    assert project.call("diff", DAY, OTHER, "--from", uuid).code == 2
    assert project.call("diff", DAY, "--from", uuid, "--key", "id").code == 2
