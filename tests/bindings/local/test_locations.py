"""Definitions as a Python program gives them."""

from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster import build_definitions
from databuild_dagster.bindings.authoring.location import CannotLoad
from databuild_dagster.bindings.local.locations import deployed, locations_of


def test_an_object_has_the_name_of_its_location_and_a_file_its_own(tmp_path: Path) -> None:
    file = tmp_path / "other_definitions.py"
    file.write_text("from databuild_dagster import build_definitions\ndefs = build_definitions([], location='other')\n")

    found = deployed(locations_of([build_definitions([], location="shop"), str(file)]))

    assert [location.deployment.location for location in found if location.deployment] == ["shop", "other"]


@pytest.mark.parametrize(
    "definitions", [Path("no_such_folder"), "no_such_file.py", "no_such_module", [], dg.Definitions()]
)
def test_definitions_that_build_nothing_are_refused_with_one_sentence(definitions) -> None:
    with pytest.raises(CannotLoad):
        deployed(locations_of(definitions))
