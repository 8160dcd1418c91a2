"""`databuild erase`: shown first, done with --yes, with a receipt and an exit code that says whether it is complete (rule 10.11)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from databuild_dagster.model.commands import RegisterDatasets
from tests.support.catalog import HERE
from tests.support.project import Project
from tests.support.published import DAYS, ICEBERG, PublishedWorld

DAY, NEXT = f"sales@{DAYS[0]}", f"sales@{DAYS[1]}"
ROWS = {"amount": [1.5, 2.5]}
WHERE = ("--where", "amount = 1.5")
CONFIRMED = (*WHERE, "--reason", "ticket 7", "--yes")


@pytest.fixture
def sales(project: Project) -> Iterator[PublishedWorld]:
    """A dataset without a table, in the home of the project, with one instance."""
    world = PublishedWorld(project.home, ICEBERG)
    spec = msgspec.structs.replace(world.spec, table=msgspec.UNSET)
    world.handle(RegisterDatasets(location=HERE, datasets=(spec,)))
    world.build(DAYS[0], ROWS)
    yield world
    assert world.check() == []
    world.close()


def test_rows_are_shown_then_erased_and_the_receipt_is_complete(project: Project, sales: PublishedWorld) -> None:
    sales.taint(DAY)
    sales.build(DAYS[0], ROWS)
    sales.build(DAYS[1], ROWS)
    events = project.n_events()

    planned = project.ask("erase", "sales", *WHERE)
    shown = project.call("erase", "sales", *WHERE, "--dry-run")

    assert (planned["done"], planned["matched"], len(planned["instances"])) == (False, 3, 3)
    assert sorted(instance["action"] for instance in planned["instances"]) == ["remove", "rewrite", "rewrite"]
    assert "3 rows of 3 instances would be erased. Nothing was done; --yes does it." in shown.out
    assert project.n_events() == events

    receipt = project.ask("erase", "sales", *CONFIRMED)

    assert (receipt["done"], receipt["complete"], receipt["reason"]) == (True, True, "ticket 7")
    assert [(one["ref"], one["rows_before"], one["rows_after"]) for one in receipt["rewritten"]] == [
        (NEXT, 2, 1),
        (DAY, 2, 1),
    ]
    assert len(receipt["removed"]) == 3
    assert receipt["proof"] == {"instances": 2, "files": 2, "rows": 2, "matched": 0}
    assert project.ask("read", DAY) == [{"amount": 2.5}]
    assert project.ask("log", "check", "--deep")["ok"]


def test_the_receipt_of_an_adopted_file_names_it_and_ends_with_1(
    project: Project, sales: PublishedWorld, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs" / "2024-01-02.parquet"
    sales.adopt(DAYS[1], theirs, ROWS)

    done = project.call("erase", "sales", *CONFIRMED)

    assert done.code == 1
    assert f"Outside of our reach: {theirs} of {NEXT} has 1 row that match" in done.err
    assert project.ask("read", NEXT) == [{"amount": 2.5}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sales", *WHERE, "--yes"), "--yes needs --reason."),
        (("sales", *CONFIRMED, "--dry-run"), "--yes excludes --dry-run"),
        ((DAY, *WHERE), "rows leave all partitions of a dataset"),
    ],
)
def test_options_that_exclude_each_other_are_refused_with_one_sentence(
    project: Project, sales: PublishedWorld, arguments: tuple[str, ...], said: str
) -> None:
    with project.recording_nothing():
        refused = project.call("erase", *arguments)

    assert refused.code == 2
    assert said in refused.err
    assert sum(line.startswith("Error: ") for line in refused.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["erase sales --where amount=1.5", f"read {DAY} --where amount=1.5"])
def test_without_sqlglot_a_condition_is_refused_and_nothing_is_recorded(
    project: Project, sales: PublishedWorld, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)

    with project.recording_nothing():
        done = project.call(*command.split())

    assert (done.code, done.out) == (2, "")
    assert "needs sqlglot, and sqlglot is not installed. Install it: pip install 'databuild-dagster" in done.err
