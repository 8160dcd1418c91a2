"""`databuild diff REF` compares the canonical instance with the one before it, or any two (rules 15, 4.6)."""

from __future__ import annotations

import pytest

from tests.support.project import DEFINITIONS, Project

pytestmark = pytest.mark.long

DAY, OTHER = "orders@2024-01-29", "orders@2024-01-30"


def test_an_instance_is_compared_with_the_one_before_it(project: Project) -> None:
    project.build(DAY)
    project.call("taint", DAY, "--reason", "no names")
    project.define(DEFINITIONS.replace('"amount": [1.5, 2.5]', '"amount": [1, 2], "name": ["x", "y"]', 1))
    project.build(DAY)

    found = project.ask("diff", DAY)
    text = project.call("diff", DAY).out

    assert [(column["name"], column["change"]) for column in found["columns"]] == [
        ("amount", "changed"),
        ("name", "added"),
    ]
    assert [(setting["kind"], setting["name"]) for setting in found["settings"]] == [("code", "fingerprint")]
    assert (found["a"]["state"], found["b"]["state"], found["a"]["rows"], found["b"]["rows"]) == (
        "Tainted",
        "Live",
        2,
        2,
    )
    assert "column name" in text
    assert "code fingerprint" in text
    assert "no names" in text


def test_instances_of_two_partitions_are_compared(project: Project) -> None:
    project.build(DAY, OTHER)
    first, second = (project.ask("show", ref)["canonical"]["uuid"] for ref in (DAY, OTHER))

    found = project.ask("diff", OTHER, "--from", first[-8:], "--to", second)
    alone = project.call("diff", DAY, "--json")

    assert (found["a"]["ref"], found["b"]["ref"], found["columns"], found["settings"]) == (DAY, OTHER, [], [])
    assert (alone.code, alone.json["error"]["type"]) == (2, "NothingToCompare")
