"""`databuild adopt`: what it takes, says and answers; `arrivals/test_adoption.py` has the rules."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.support.project import Done, Project

DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]
FIRST, SECOND, THIRD = (f"orders@{day}" for day in DAYS)


class Outside:
    """Files of another program, beside the project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "outside"

    def day(self, day: str, *amounts: float, name: str = "a.parquet", **columns: object) -> Path:
        file = self.folder / f"day={day}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"day": [day] * len(amounts), "amount": list(amounts), **columns}).to_parquet(file)
        return file

    def adopt(self, *arguments: str) -> Done:
        """The pattern is below the working directory."""
        return self.project.call("adopt", "orders", "--files", "outside/day={partition_key}/*.parquet", *arguments)


@pytest.fixture
def outside(project: Project) -> Iterator[Outside]:
    yield Outside(project)
    assert project.is_sound()


def test_partitions_that_have_files_are_live_and_the_others_are_named(outside):
    outside.day(DAYS[0], 1.0, 2.0)
    outside.day(DAYS[1], 3.0)
    outside.day(DAYS[1], 4.0, name="b.parquet")

    adopted = outside.adopt()
    again = outside.adopt()

    assert (adopted.code, again.code) == (0, 0)
    assert adopted.out.splitlines()[0] == "2 partitions live from 3 files, 4 rows."
    assert adopted.out.splitlines()[1].startswith(f"30 partitions without files: {THIRD}, ")
    assert again.out.splitlines()[:2] == ["Nothing to record.", "2 partitions live from the same files before."]
    (instance,) = outside.project.ask("history", FIRST)
    assert instance["why"].startswith("adopted from ")
    assert instance["why"].endswith(f", by {instance['actor']}")


def test_an_adopted_partition_is_read_and_built_from_where_it_is(outside):
    """Rule 10.2: readers read what a manifest lists."""
    project = outside.project
    files = [outside.day(f"2024-01-{day}", 1.0 * day) for day in (29, 30, 31)]
    outside.adopt()

    built = project.build("revenue@2024-01-01")

    assert built["job_runs"]["succeeded"] == 1, "the days were there"
    assert project.ask("read", SECOND) == [{"day": DAYS[1], "amount": 30.0}]
    assert project.ask("read", "revenue@2024-01-01") == [{"revenue": 90.0}]
    assert project.ask("show", SECOND)["canonical"]["files"] == [str(files[1])]
    assert f"adopted from {outside.folder}/day={DAYS[1]}/*.parquet (1 file, " in project.call("show", SECOND).out
    assert project.call("log", "check", "--deep").code == 0


def test_a_dry_run_lists_everything_and_records_nothing(outside):
    path = outside.day(DAYS[0], 1.0, 2.0)

    answer = outside.adopt("--dry-run", "--json").json
    shown = outside.adopt("--dry-run", "--wide").out

    assert [(entry["ref"], entry["files"], entry["rows"]) for entry in answer["recorded"]] == [(FIRST, 1, 2)]
    assert str(path) in shown
    assert "1 partition would be live" in shown
    assert [partition["state"] for partition in outside.project.ask("partitions", "orders")][:2] == [None, None]
    assert list(outside.project.home.rglob("manifest.json")) == []


def test_named_partitions_are_looked_at_alone_and_what_is_the_same_is_no_news(outside):
    for day in DAYS:
        outside.day(day, 1.0)

    some = outside.adopt("--partitions", DAYS[0], "--json").json
    more = outside.adopt("--partitions", f"{DAYS[0]}..{DAYS[1]}", "--json").json

    assert [entry["ref"] for entry in some["recorded"]] == [FIRST]
    assert ([entry["ref"] for entry in more["recorded"]], more["same"]) == ([SECOND], [FIRST])
    assert [partition["state"] for partition in outside.project.ask("partitions", "orders")][:3] == [
        "Live",
        "Live",
        None,
    ]


def test_live_with_other_data_is_refused_until_the_user_says_which_counts(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()
    outside.day(DAYS[0], 2.0, name="late.parquet")

    refused = outside.adopt()
    kept = outside.adopt("--live", "keep")
    replaced = outside.adopt("--live", "replace", "--json").json

    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "--live keep leaves it" in refused.err
    assert f"1 partition live with other data, and kept so: {FIRST}." in kept.out
    assert [entry["ref"] for entry in replaced["recorded"]] == [FIRST]
