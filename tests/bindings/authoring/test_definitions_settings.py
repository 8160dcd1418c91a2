"""The settings of a code location at its doors: refused by name, typed for editors."""

from __future__ import annotations

import typing
from collections.abc import Callable

import pandas as pd
import pytest

from databuild_dagster import (
    DatabuildComponent,
    DatabuildSpark,
    InvalidAsset,
    SharedLocation,
    build_definitions,
    databuild_asset,
)
from databuild_dagster.bindings.declare.settings import settings
from databuild_dagster.spark.errors import BadSparkUrl


@pytest.mark.parametrize(
    "door", [lambda **given: build_definitions([], **given), lambda **given: SharedLocation("shop", **given)]
)
def test_a_misspelt_setting_is_refused_by_name(door: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"no argument thread=; did you mean threads=\?"):
        door(thread=1)


@pytest.mark.feature("environments")
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


def frame() -> pd.DataFrame:
    return pd.DataFrame()


orders = databuild_asset(name="orders")(frame)


@pytest.mark.parametrize(
    ("assets", "sentence"),
    [
        (orders, r"build_definitions takes a list of assets; write build_definitions\(\[orders\]\)"),
        ([frame], "'frame' is a function among the assets; write @databuild_asset above it"),
        ([[orders]], r"A list is among the assets; write build_definitions\(\[\*assets, …\]\)"),
    ],
)
def test_what_is_no_list_of_assets_is_refused_with_what_to_write(assets: typing.Any, sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=sentence):
        build_definitions(assets)


@pytest.mark.parametrize("spark", ["local[*]", {"spark.driver.memory": "2g"}])
def test_a_spark_that_is_no_resource_is_refused_with_what_to_write(spark: typing.Any) -> None:
    with pytest.raises(ValueError, match=r"spark is .*; write DatabuildSpark\(…\), or a PySparkResource"):
        build_definitions([], spark=spark)


def test_a_remote_spark_without_a_url_is_refused_where_it_is_written() -> None:
    with pytest.raises(BadSparkUrl, match="mode='remote' needs a url"):
        DatabuildSpark(mode="remote")
