"""`databuild erase`: shown first, done with --yes, with a receipt and an exit code that says whether it is complete (rule 10.11)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.project import Project

pytestmark = pytest.mark.long

DAY, NEXT = "orders@2024-01-29", "orders@2024-01-30"
WHERE = ("--where", "amount = 1.5")
CONFIRMED = (*WHERE, "--reason", "ticket 7", "--yes")


def test_rows_are_shown_then_erased_and_the_receipt_is_complete(project: Project) -> None:
    project.build(DAY)
    project.build(DAY, "--rebuild")
    project.build(NEXT)
    events = project.n_events()

    planned = project.ask("erase", "orders", *WHERE)
    shown = project.call("erase", "orders", *WHERE, "--dry-run")

    assert (planned["done"], planned["matched"], len(planned["instances"])) == (False, 3, 3)
    assert sorted(instance["action"] for instance in planned["instances"]) == ["remove", "rewrite", "rewrite"]
    assert "3 rows of 3 instances would be erased. Nothing was done; --yes does it." in shown.out
    assert project.n_events() == events

    receipt = project.ask("erase", "orders", *CONFIRMED)

    assert (receipt["done"], receipt["complete"], receipt["reason"]) == (True, True, "ticket 7")
    assert [(one["ref"], one["rows_before"], one["rows_after"]) for one in receipt["rewritten"]] == [
        (NEXT, 2, 1),
        (DAY, 2, 1),
    ]
    assert len(receipt["removed"]) == 3
    assert receipt["proof"] == {"instances": 2, "files": 2, "rows": 2, "matched": 0}
    assert project.ask("read", DAY) == [{"day": "2024-01-29", "amount": 2.5}]
    assert project.ask("log", "check", "--deep")["ok"]
    assert project.is_sound()


def test_a_read_of_an_earlier_time_and_a_revert_give_the_reason(project: Project) -> None:
    project.build(DAY)
    then = str(project.n_events())
    earlier = project.queries.history(DAY)[0].uuid
    project.call("erase", "orders", *CONFIRMED)

    read, reverted = project.call("read", DAY, "--as-of", then), project.call("revert", DAY, "--to", earlier)

    assert (read.code, reverted.code) == (2, 2)
    for refused in (read, reverted):
        assert "its data was erased since, at" in refused.err
        assert "ticket 7" in refused.err
        assert "1.5" not in refused.err


def test_the_receipt_of_an_adopted_file_names_it_and_ends_with_1(project: Project, tmp_path: Path) -> None:
    project.build(DAY)
    (source,) = (project.home / "warehouse" / "orders").rglob("*.parquet")
    theirs = tmp_path / "2024-01-30.parquet"
    theirs.write_bytes(source.read_bytes())
    project.call("adopt", "orders", "--files", f"{tmp_path}/{{partition_key}}.parquet")

    done = project.call("erase", "orders", *CONFIRMED)

    assert done.code == 1
    assert f"Outside of our reach: {theirs} of {NEXT} has 1 row that match" in done.err
    assert project.ask("read", NEXT) == [{"day": "2024-01-29", "amount": 2.5}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders", *WHERE, "--yes"), "--yes needs --reason."),
        (("orders", *CONFIRMED, "--dry-run"), "--yes excludes --dry-run"),
        ((DAY, *WHERE), "rows leave all partitions of a dataset"),
        (("orders", "--where", "amont = 1"), "there is no column 'amont' among day, amount, partition_key"),
        (("orders", "--where", "amount"), "cannot be applied"),
        (("order", *WHERE), "orders"),
    ],
)
def test_a_wrong_request_is_refused_with_one_sentence(project: Project, arguments: tuple[str, ...], said: str) -> None:
    project.build(DAY)
    events = project.n_events()

    refused = project.call("erase", *arguments)

    assert refused.code == 2
    assert said in refused.err
    assert sum(line.startswith("Error: ") for line in refused.err.splitlines()) == 1
    assert project.n_events() == events


@pytest.mark.parametrize("command", ["erase orders --where amount=1.5", f"read {DAY} --where amount=1.5"])
def test_without_sqlglot_a_condition_is_refused_and_nothing_is_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    project.build(DAY)
    events = project.n_events()
    monkeypatch.setitem(sys.modules, "sqlglot", None)

    done = project.call(*command.split())

    assert (done.code, done.out) == (2, "")
    assert (
        "needs sqlglot, and sqlglot is not installed. Install it: pip install 'databuild-dagster-core[filters]'"
        in done.err
    )
    assert project.n_events() == events
