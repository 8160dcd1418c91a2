"""`databuild lot arrive` (rule 10.6): files from outside are a lot in one command, or one sentence says why not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from databuild_dagster.model.events import LotArrived
from tests.support.project import DEFINITIONS, Done, Project

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LOT = "2024-01-29-05:00"
REF = f"clicks@{LOT}"

MORE = """
from databuild_dagster import databuild_boundary

hourly = dg.HourlyPartitionsDefinition("2024-01-29-00:00", end_date="2024-01-30-00:00")
regions = dg.StaticPartitionsDefinition(["eu", "us"])


@databuild_asset(partitions_def=hourly)
def totals(clicks: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [clicks["n"].sum()]})


defs = build_definitions([
    orders, totals, databuild_boundary("clicks", partitions_def=hourly), dg.AssetSpec("declared", partitions_def=hourly),
    databuild_boundary("prices", partitions_def=regions),
])
"""


class Landing:
    """Files of another program, beside the project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "outside"
        self.folder.mkdir()

    def write(self, name: str, *numbers: int, **columns: Any) -> str:
        """The path as a user types it."""
        pd.DataFrame({"n": list(numbers), **columns}, dtype=None if numbers else "int64").to_parquet(self.folder / name)
        return f"outside/{name}"

    def arrive(self, *arguments: str, lot: str = LOT, dataset: str = "clicks") -> Done:
        return self.project.call("lot", "arrive", dataset, lot, *arguments)

    def refused(self, *arguments: str, lot: str = LOT, dataset: str = "clicks") -> str:
        """The one line of a refusal; nothing is recorded, and no manifest is left."""
        before = self.arrivals(), self.manifests()
        done = self.arrive(*arguments, lot=lot, dataset=dataset)
        assert done.code == 2, done
        assert (self.arrivals(), self.manifests()) == before
        (line,) = done.err.splitlines()
        return line

    def arrivals(self) -> list[str]:
        facts = [event.fact for event in self.project.queries.events(0)]
        return [arrival.ref for fact in facts if isinstance(fact, LotArrived) for arrival in fact.arrivals]

    def manifests(self) -> list[Path]:
        return sorted(self.project.home.rglob("manifest.json"))

    def rows(self, ref: str = REF) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.project.ask("read", ref)
        return rows


@pytest.fixture
def landing(project: Project) -> Iterator[Landing]:
    project.define(DEFINITIONS + MORE)
    yield Landing(project)
    assert project.is_sound()


@pytest.fixture(scope="module")
def landed(shared_project: Project) -> Landing:
    """Files of all kinds and one empty lot, for tests that are refused."""
    shared_project.define(DEFINITIONS + MORE)
    landed = Landing(shared_project)
    landed.write("a.parquet", 1)
    landed.write("other.parquet", 1, m=[2])
    (landed.folder / "bad.parquet").write_bytes(b"PAR1")
    assert landed.arrive("--empty", lot="2024-01-29-23:00").code == 0
    return landed


def test_files_are_a_live_lot_that_is_read_and_built_from(landing):
    one, two = landing.write("a.parquet", 1, 2), landing.write("b.parquet", 3)

    done = landing.arrive(one, two)
    built = landing.project.build(f"totals@{LOT}")

    assert done.out == f"{REF} has arrived with 2 files, 3 rows.\n"
    assert [row["n"] for row in landing.rows()] == [1, 2, 3]
    assert built["refs"]["failed"] == 0
    assert landing.rows(f"totals@{LOT}") == [{"total": 6}]


def test_a_lot_id_a_folder_and_a_pattern_mean_the_same(landing):
    """Rule 10.1."""
    landing.write("a.parquet", 1)

    landing.arrive("outside", lot="20240129PT1H005")
    again = landing.arrive("outside/*.parquet")

    assert landing.arrivals() == [REF]
    assert again.out.startswith(f"No news: {REF} has arrived as instance ")


def test_the_same_file_twice_is_no_news_in_one_command_or_two(landing):
    file = landing.write("a.parquet", 1)
    landing.arrive(file, file)

    again = landing.project.ask("lot", "arrive", "clicks", LOT, file)

    assert (again["recorded"], again["known"], len(landing.arrivals())) == (
        False,
        [str(landing.folder / "a.parquet")],
        1,
    )


def test_a_second_file_for_a_lot_is_late_data_and_a_new_instance(landing):
    landing.arrive(landing.write("a.parquet", 1))

    done = landing.arrive(landing.write("b.parquet", 2))

    assert done.out == f"{REF} has arrived, late data: a new instance, with 2 files, 2 rows.\n"
    assert [row["n"] for row in landing.rows()] == [1, 2]
    assert [instance["state"] for instance in landing.project.ask("history", REF)] == ["Live", "Live"]


def test_replace_takes_these_files_alone(landing):
    landing.arrive(landing.write("a.parquet", 1))

    landing.arrive("--replace", landing.write("b.parquet", 2))

    assert [row["n"] for row in landing.rows()] == [2]


def test_an_empty_lot_is_live_and_may_get_data_later(landing):
    """Rule 10.3."""
    empty = landing.arrive("--empty")
    again = landing.arrive("--empty")
    state = landing.project.ask("show", REF)["state"]

    landing.arrive(landing.write("a.parquet", 1))

    assert (empty.out, state) == (f"{REF} has arrived empty.\n", "Live")
    assert again.out.startswith("No news")
    assert [row["n"] for row in landing.rows()] == [1]


def test_a_lot_with_data_becomes_empty_only_with_replace(landing):
    landing.arrive(landing.write("a.parquet", 1))

    refused = landing.refused("--empty")
    landing.arrive("--empty", "--replace")

    assert "it is not empty" in refused
    assert landing.rows() == []


def test_a_tainted_lot_takes_the_same_file_only_with_replace(landing):
    file = landing.write("a.parquet", 1)
    landing.arrive(file)
    landing.project.call("taint", REF, "--reason", "wrong units")

    said = landing.arrive(file, landing.write("b.parquet", 2))
    landing.arrive("--replace", file)

    assert said.code == 2
    assert "is among its files" in said.err
    assert [row["n"] for row in landing.rows()] == [1]


def test_a_dataset_of_definitions_that_are_not_loaded_is_said_to_be_theirs(landing):
    landing.arrive(landing.write("a.parquet", 1))
    (landing.project.folder / "others.py").write_text(
        "from databuild_dagster import build_definitions\n\ndefs = build_definitions([])\n"
    )

    done = landing.project.call("lot", "arrive", "clicks", LOT, "outside/a.parquet", "-f", "others.py")

    assert done.code == 2
    assert "clicks belongs to code location" in done.err
    assert "not among the definitions that are loaded here. Name its definitions with -f, -m or -w." in done.err


def test_a_lot_need_not_be_of_a_time(landing):
    done = landing.arrive(landing.write("a.parquet", 1), lot="eu", dataset="prices")

    assert done.out == "prices@eu has arrived with 1 file, 1 row.\n"


@pytest.mark.parametrize(
    ("arguments", "where", "words"),
    [
        ([], {}, "No files are given for clicks@2024-01-29-05:00"),
        (["--empty", "outside/a.parquet"], {}, "--empty is given for"),
        (["outside/nothing.parquet"], {}, "There is no data file outside/nothing.parquet"),
        (["outside/bad.parquet"], {}, "outside/bad.parquet cannot be a file of clicks@2024-01-29-05:00"),
        (["outside/a.parquet", "outside/other.parquet"], {}, "does not fit"),
        (["outside/a.parquet"], {"lot": "2024-01-29-05:30"}, "is no lot of clicks"),
        (["outside/a.parquet"], {"lot": "2024-02-29-05:00"}, "its partitions end with 2024-01-29-23:00"),
        (["outside/a.parquet"], {"lot": "20240129PT1H024"}, "20240129PT1H024"),
        (["outside/a.parquet"], {"lot": "20240129PT5M005"}, "lots of PT1H"),
        (["outside/a.parquet"], {"lot": "20240130PT1H000"}, "is no lot of clicks"),
        (["outside/a.parquet"], {"dataset": "orders", "lot": "2024-01-29"}, "orders is built by its own function"),
        (
            ["outside/a.parquet"],
            {"dataset": "declared"},
            "declared is declared, and not as a boundary for files from outside",
        ),
        (["outside/a.parquet"], {"dataset": "click"}, "Did you mean clicks?"),
    ],
)
def test_files_that_cannot_arrive_are_refused_in_a_sentence_and_not_recorded(landed, arguments, where, words):
    assert words in landed.refused(*arguments, **where)
