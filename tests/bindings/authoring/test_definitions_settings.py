"""The settings of a code location at its doors: refused by name, typed for editors."""

from __future__ import annotations

import typing
from collections.abc import Callable

import pytest

from databuild_dagster import DatabuildComponent, SharedLocation, build_definitions
from databuild_dagster.bindings.declare.settings import settings


@pytest.mark.parametrize(
    "door", [lambda **given: build_definitions([], **given), lambda **given: SharedLocation("shop", **given)]
)
def test_a_misspelt_setting_is_refused_by_name(door: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"no argument thread=; did you mean threads=\?"):
        door(thread=1)


@pytest.mark.feature("lots")
@pytest.mark.feature("notices")
@pytest.mark.feature("operations")
@pytest.mark.feature("tables")
def test_an_editor_finds_the_type_of_every_setting() -> None:
    from databuild_dagster import databuild_boundary
    from databuild_dagster.features.settings import ComponentAttributes

    for door in (build_definitions, SharedLocation.__init__, databuild_boundary):
        assert typing.get_type_hints(door)
    # The list for type checkers is written by hand.
    listed = {*typing.get_type_hints(ComponentAttributes)} - {*typing.get_type_hints(ComponentAttributes.__base__)}
    assert listed == {*settings()}
    assert {*settings()} <= {*DatabuildComponent.model_fields}


@pytest.mark.feature("notices")
@pytest.mark.feature("operations")
@pytest.mark.feature("tables")
def test_a_member_of_a_shared_location_may_write_defaults() -> None:
    build_definitions([], location=SharedLocation("shop"), sample_rows=0, publish=None, alerts=[], operations=())
