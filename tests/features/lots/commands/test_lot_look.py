"""`databuild lot arrive --landed` (rule 10.6): what lies in the landing folders is recorded now, without a daemon."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.project import Project

DEFINITIONS = """
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import build_definitions, databuild_asset, databuild_boundary

HERE = Path(__file__).parent
hourly = dg.HourlyPartitionsDefinition("2024-01-29-00:00", end_date="2024-01-29-03:00")


def landed(name, folder="landing", **options):
    files = f"{HERE}/{folder}/{name}_{{time:%Y%m%dT%H}}.parquet"
    return databuild_boundary(name, partitions_def=hourly, files=files, settle_seconds=0, **options)


@databuild_asset(partitions_def=hourly, subscribe="clicks")
def totals(clicks: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [clicks["n"].sum()]})


by_hand = databuild_boundary("by_hand", partitions_def=hourly)
defs = build_definitions([landed("clicks", empty=True), landed("views"), by_hand, totals])
"""


@pytest.fixture
def project(project: Project) -> Project:
    project.define(DEFINITIONS)
    (project.folder / "landing").mkdir()
    return project


@pytest.fixture(scope="module")
def shared_project(shared_project: Project) -> Project:
    shared_project.define(DEFINITIONS)
    (shared_project.folder / "landing").mkdir()
    return shared_project


def drop(project: Project, name: str, *numbers: int) -> Path:
    path = project.folder / "landing" / f"{name}.parquet"
    pd.DataFrame({"n": list(numbers)}).to_parquet(path)
    return path


def test_every_boundary_looks_and_the_next_tick_launches_what_subscribes(project: Project) -> None:
    """Rule 10.5: from the arrival to the launch it takes one tick."""
    drop(project, "clicks_20240129T01", 1, 2)

    looked = project.call("lot", "arrive", "--landed")
    ticked = project.call("admin", "tick")

    assert looked.out.splitlines() == [
        "clicks: 3 lots arrived with 1 file; 2 of them empty.",
        "views: Nothing has arrived.",
    ]
    assert ticked.out == "Launched totals (3 partitions); 3 refs wanted by arcs.\n"
    assert project.ask("read", "totals@2024-01-29-01:00") == [{"total": 3}]
    (again,) = project.ask("lot", "arrive", "--landed", "clicks")
    assert again == {
        "dataset": "clicks",
        "recorded": [],
        "late": [],
        "held": {},
        "empty": [],
        "new_files": 0,
        "strangers": [],
        "unclear": {},
        "unsettled": [],
        "more": False,
    }


def test_a_file_that_cannot_be_recorded_is_named_and_the_command_fails(project: Project) -> None:
    drop(project, "views_20240129T00", 1)
    (project.folder / "landing" / "views_20240129T01.parquet").write_bytes(b"PAR1")
    drop(project, "views_20240131T00", 1)

    looked = project.call("lot", "arrive", "--landed", "views")

    answer, held, stranger = looked.out.splitlines()
    assert looked.code == 1
    assert answer == "views: 1 lot arrived with 1 file; 1 lot cannot be recorded; 1 file belongs to no lot."
    assert held.startswith("  views@2024-01-29-01:00 cannot be recorded: ")
    assert stranger.startswith("  1 file belongs to no lot, because no time of a partition is in the name of ")


def test_a_folder_that_is_missing_is_named_and_the_others_are_looked_at(project: Project) -> None:
    drop(project, "views_20240129T00", 1)
    project.define(DEFINITIONS.replace('landed("clicks"', 'landed("clicks", "gone"'))

    looked = project.call("lot", "arrive", "--landed")

    assert looked.code == 2
    assert "The landing folder" in looked.err
    assert looked.out.splitlines() == ["views: 1 lot arrived with 1 file."]
    again = project.call("lot", "arrive", "--landed", "--json")
    views, clicks = again.json
    assert (again.code, views["recorded"], clicks["dataset"]) == (2, [], "clicks")
    assert clicks["error"]["type"] == "NoLandingFolder"


@pytest.mark.parametrize(
    ("dataset", "kind"), [("by_hand", "NothingWatched"), ("totals", "NothingWatched"), ("click", "UnknownAsset")]
)
def test_a_dataset_without_a_landing_folder_is_refused(known_project: Project, dataset: str, kind: str) -> None:
    done = known_project.call("lot", "arrive", "--landed", dataset, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, kind)


def test_a_project_that_watches_no_folder_is_told_to_declare_one(project: Project) -> None:
    project.define(DEFINITIONS.replace('landed("clicks", empty=True), landed("views"), ', ""))

    done = project.call("lot", "arrive", "--landed")

    assert done.code == 2
    assert "No landing folder is watched for any dataset of these definitions. Declare where its files land" in done.err


def test_a_read_of_a_changed_or_missing_file_says_how_to_repair_the_lot(project: Project) -> None:
    """Rule 10.6: nothing here builds it, so it has to come again."""
    path = drop(project, "views_20240129T00", 1)
    project.ask("lot", "arrive", "--landed", "views")
    path.unlink()

    gone = project.call("read", "views@2024-01-29-00:00", "--json")
    drop(project, "views_20240129T00", 1, 2)
    changed = project.call("read", "views@2024-01-29-00:00", "--json")

    for refused in (gone, changed):
        error = refused.json["error"]
        assert (refused.code, error["type"]) == (2, "FilesGone")
        assert str(path) in error["message"]
        assert "databuild build" not in error["hint"]
        assert "`databuild lot arrive --landed views`" in error["hint"]
        assert "`databuild lot arrive --replace views 2024-01-29-00:00 URI…`" in error["hint"]
    project.ask("lot", "arrive", "--landed", "views")
    assert project.ask("read", "views@2024-01-29-00:00") == [{"n": 1}, {"n": 2}]
    path.unlink()
    elsewhere = project.folder / "again.parquet"
    pd.DataFrame({"n": [3]}).to_parquet(elsewhere)
    project.ask("lot", "arrive", "--replace", "views", "2024-01-29-00:00", str(elsewhere))
    assert project.ask("read", "views@2024-01-29-00:00") == [{"n": 3}]
