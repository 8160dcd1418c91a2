"""The files that a newcomer needs before any of our code runs: pins, make targets, CI, the example's data."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from itertools import chain
from pathlib import Path

import pyarrow.compute as pc
import pytest
import yaml
from packaging.requirements import Requirement

from examples.flights import nycflights
from tools.parts import MISSION, PARTS

ROOT = Path(__file__).parent.parent

A_PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")


def test_the_constraints_are_pins_and_name_no_index_and_no_place():
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    others = [line for line in lines if not line.startswith("# ") and not A_PIN.fullmatch(line)]

    assert others == []


def test_everything_the_project_asks_for_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}

    names = {re.match(r"[A-Za-z0-9._-]+", requirement).group() for requirement in asked}

    assert {normal(name) for name in names} - {normal(name) for name in pinned} == {normal(project["name"])}


def test_the_package_names_its_license_and_no_address():
    """A wheel contains the text of the license. Addresses wait until the project has one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    assert "urls" not in project
    assert "://" not in str(project)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_a_page_names_exists(page):
    named = set(re.findall(r"\bmake ([a-z-]+)(?=`|$|\s{2,})", (ROOT / page).read_text(), re.MULTILINE))

    assert named
    assert named <= make_targets()


def test_plain_make_shows_what_a_contributor_needs_and_make_more_the_rest():
    makefile = (ROOT / "Makefile").read_text()
    first = set(re.findall(r"^([a-z-]+):.* ## ", makefile, re.MULTILINE))
    more = set(re.findall(r"^([a-z-]+):.* #: ", makefile, re.MULTILINE))

    assert first == {"demo", "ui", "test", "test-all", "check", "docs"}
    assert first | more == make_targets() - {"help"}


def test_ci_runs_what_a_person_runs():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()

    assert "part make setup" in lines
    assert lines[-3:] == ["part make test", "# Its parts print their own minutes.", "make test-rest"]
    assert {part.target for part in PARTS} <= make_targets()


def test_the_workflow_runs_each_part_on_a_machine_of_its_own():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["part"]

    assert job["strategy"]["matrix"]["part"] == [part.target for part in (MISSION, *PARTS)]
    assert job["steps"][-1] == {"run": ".ci/run ${{ matrix.part }}"}


def test_each_change_is_an_item_whose_name_ends_with_its_section():
    """changes/README.md"""
    items = {path.name: path.read_text() for path in (ROOT / "changes").iterdir() if path.name != "README.md"}

    assert [name for name in items if not re.fullmatch(r"[\w-]+\.(added|changed|fixed)\.md", name)] == []
    assert [name for name, text in items.items() if not re.match(r"- [A-Z`@*\[]", text)] == []


def test_the_section_of_a_release_in_the_changelog_fits_on_one_page():
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]

    assert [section.splitlines()[0] for section in sections if len(section.split()) > 700] == []


def test_every_room_of_the_package_has_an_owner_and_no_pattern_is_of_another_tree():
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    owned = {line.split()[0] for line in lines if line.startswith("/")}
    rooms = {f"/databuild_dagster/{init.parent.name}/" for init in (ROOT / "databuild_dagster").glob("*/__init__.py")}

    assert rooms <= owned
    assert [pattern for pattern in owned if not (ROOT / pattern.strip("/")).is_dir()] == []


def test_an_unknown_way_to_spark_is_refused_before_anything_is_installed():
    environment = {**os.environ, "SPARK": "flink"}
    done = subprocess.run(
        ["sh", "tools/setup.sh", "example"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "SPARK=flink is neither shared nor sail.\n")


def test_the_demos_need_at_most_100_packages():
    """`make demo` installs them first; what they need as their installed metadata says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *chain(*(project["optional-dependencies"][name] for name in ("example", "sail"))),
    ]

    assert len(needed(map(Requirement, asked))) <= 100


def test_the_budget_of_each_part_is_in_the_docs():
    rows = re.findall(r"^\| `make ([a-z-]+)` \| ([\d.]+) \|", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE)

    budget = {target: float(minutes) for target, minutes in rows}

    assert budget == {part.target: part.processor_minutes for part in (MISSION, *PARTS)}
    assert round(sum(budget.values()), 1) <= 72


def test_the_year_has_336_776_flights_and_january_27_004():
    assert nycflights.all_flights().num_rows == 336_776
    assert nycflights.flights_in([1]).num_rows == 27_004


def test_the_days_of_a_month_are_that_month():
    days = [nycflights.flights_on(f"2013-01-{day:02}").num_rows for day in range(1, 32)]

    assert sum(days) == 27_004
    assert min(days) > 0


def test_52_flights_of_january_have_no_weather_and_none_has_two():
    flights, weather = nycflights.flights_in([1]).to_pandas(), nycflights.weather_in([1]).to_pandas()

    joined = flights.merge(weather, "left", ["month", "day", "origin", "time_hour"], indicator=True)

    assert len(joined) == 27_004
    assert (joined["_merge"] == "left_only").sum() == 52


def test_no_reading_of_the_year_would_multiply_flights():
    weather = nycflights.all_weather()

    hours = weather.group_by(["month", "day", "origin", "time_hour"]).aggregate([])

    assert hours.num_rows == weather.num_rows


def test_the_last_day_of_the_year_has_flights_and_no_weather():
    assert nycflights.flights_on("2013-12-31").num_rows == 776
    assert nycflights.weather_on("2013-12-31").num_rows == 0


def test_the_weathers_columns_are_written_down_as_they_are():
    named = [column.split()[0] for column in nycflights.WEATHER_COLUMNS.split(",")]

    assert named == nycflights.weather_on("2013-01-01").column_names


@pytest.mark.parametrize("day", ["2013-01-01", "2013-06-28", "2013-12-31"])
def test_a_days_rows_are_one_chunk_because_spark_stops_at_an_empty_one(day):
    for table in (nycflights.flights_on(day), nycflights.weather_on(day)):
        assert [batch.num_rows for batch in table.to_batches()] in ([], [table.num_rows])


def test_na_is_null_and_a_flights_hour_is_an_instant():
    january = nycflights.flights_in([1])

    assert january["dep_time"].null_count == 521
    assert january["tailnum"].null_count > 0
    assert pc.min(january["time_hour"]).as_py().isoformat() == "2013-01-01T10:00:00+00:00"


def needed(requirements: Iterable[Requirement]) -> set[str]:
    """The distributions that requirements bring to this machine, by their installed metadata."""
    left, found = list(requirements), set[tuple[str, str]]()
    while left:
        requirement = left.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        for extra in {"", *requirement.extras}:
            if (key := (normal(requirement.name), extra)) in found:
                continue
            found.add(key)
            for further in map(Requirement, requires(requirement.name) or []):
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    further.marker = None
                    left.append(further)
    return {name for name, _ in found}


def make_targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return set(phony.group(1).split())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
