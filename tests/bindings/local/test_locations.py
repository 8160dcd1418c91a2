"""Definitions as a Python program gives them."""

import importlib
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


def test_a_module_is_taken_as_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_as_a_module.py").write_text(
        "from databuild_dagster import build_definitions\ndefs = build_definitions([], location='shop')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    found = deployed(locations_of(importlib.import_module("shop_as_a_module")))

    assert [location.deployment.location for location in found if location.deployment] == ["shop"]


@pytest.mark.parametrize(
    "definitions", [Path("no_such_folder"), "no_such_file.py", "no_such_module", [], dg.Definitions(), 3]
)
def test_definitions_that_build_nothing_are_refused_with_one_sentence(definitions) -> None:
    with pytest.raises(CannotLoad):
        deployed(locations_of(definitions))
