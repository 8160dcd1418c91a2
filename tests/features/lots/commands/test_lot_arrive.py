"""`databuild lot arrive`: what it takes, says and answers; `arrivals/test_arrival.py` has the rules (rule 10.6)."""

from collections.abc import Iterator

import pandas as pd
import pytest

from tests.support.project import DEFINITIONS, Done, Project

LOT = "2024-01-29-05:00"
REF = f"clicks@{LOT}"

MORE = """
from databuild_dagster import databuild_boundary

hourly = dg.HourlyPartitionsDefinition("2024-01-29-00:00", end_date="2024-01-30-00:00")


@databuild_asset(partitions_def=hourly)
def totals(clicks: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [clicks["n"].sum()]})


defs = build_definitions([totals, databuild_boundary("clicks", partitions_def=hourly)])
"""


class Landing:
    """Files of another program, beside the project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "outside"
        self.folder.mkdir()

    def write(self, name: str, *numbers: int, column: str = "n") -> str:
        """The path as a user types it."""
        pd.DataFrame({column: list(numbers)}).to_parquet(self.folder / name)
        return f"outside/{name}"

    def arrive(self, *arguments: str) -> Done:
        return self.project.call("lot", "arrive", "clicks", LOT, *arguments)

    def numbers(self) -> list[int]:
        return [row["n"] for row in self.project.ask("read", REF)]


@pytest.fixture
def landing(project: Project) -> Iterator[Landing]:
    project.define(DEFINITIONS + MORE)
    yield Landing(project)
    assert project.is_sound()


def test_files_are_a_live_lot_that_is_read_and_built_from(landing):
    one, two = landing.write("a.parquet", 1, 2), landing.write("b.parquet", 3)

    arrived = landing.arrive(one)
    late = landing.arrive(one, two)
    again = landing.arrive(one)
    landing.project.build(f"totals@{LOT}")

    assert arrived.out == f"{REF} has arrived with 1 file, 2 rows.\n"
    assert late.out == f"{REF} has arrived, late data: a new instance, with 2 files, 3 rows.\n"
    assert again.out.startswith(f"No news: {REF} has arrived as instance ")
    assert again.out.endswith(" already. 1 file known before, or a copy.\n")
    assert landing.numbers() == [1, 2, 3]
    assert landing.project.ask("read", f"totals@{LOT}") == [{"total": 6}]


def test_the_json_answer_names_the_files_and_those_that_were_known(landing):
    file = landing.write("a.parquet", 1)
    path = str(landing.folder / "a.parquet")

    first = landing.arrive(file, file, "--json").json
    again = landing.arrive(file, "--json").json

    assert (first["recorded"], first["files"], first["rows"], first["known"]) == (True, [path], 1, [])
    assert (again["recorded"], again["files"], again["rows"], again["known"]) == (False, None, None, [path])
    assert (first["late"], again["late"], first["uuid"]) == (False, False, again["uuid"])


def test_empty_and_replace_say_what_the_lot_has_from_now_on(landing):
    empty = landing.arrive("--empty")
    landing.arrive(landing.write("a.parquet", 1))
    refused = landing.arrive("--empty")
    landing.arrive("--replace", landing.write("b.parquet", 2))

    assert empty.out == f"{REF} has arrived empty.\n"
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert landing.numbers() == [2]


def test_a_dataset_of_definitions_that_are_not_loaded_is_said_to_be_theirs(landing):
    landing.arrive(landing.write("a.parquet", 1))
    (landing.project.folder / "others.py").write_text(
        "from databuild_dagster import build_definitions\n\ndefs = build_definitions([])\n"
    )

    done = landing.arrive("outside/a.parquet", "-f", "others.py")

    assert done.code == 2
    assert "clicks belongs to code location" in done.err
    assert "not among the definitions that are loaded here. Name its definitions with -f, -m or -w." in done.err
