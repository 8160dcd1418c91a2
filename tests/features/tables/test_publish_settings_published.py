"""An asset's own table, or the location's default, is in the registration of its dataset (rule 10.10)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import (
    DatabuildTranslator,
    Delta,
    Iceberg,
    InvalidAsset,
    build_definitions,
    databuild_asset,
    databuild_boundary,
    databuild_multi_asset,
)
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.model.datasets import TableSpec

DAILY = dg.DailyPartitionsDefinition("2024-01-01")


@databuild_asset
def plain() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset(partitions_def=DAILY, publish=Iceberg(table="shop.sales"))
def sales() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset(publish=False)
def private() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_multi_asset(
    outs={"good": dg.AssetSpec("good"), "bad": dg.AssetSpec("bad")}, publish={"good": Delta(tainted="keep")}
)
def both() -> dict[str, Any]:
    return {}


def tables_of(*assets: Any, **options: Any) -> dict[str, TableSpec]:
    definitions = build_definitions(assets, location="here", **options)
    graph = definitions.get_repository_def().asset_graph
    return {spec.asset: spec.table for spec in datasets_of(graph, "here") if spec.table}


def test_an_asset_has_the_table_that_its_author_names() -> None:
    tables = tables_of(plain, sales, private, both)

    assert set(tables) == {"sales", "good"}
    assert tables["sales"].name == "shop.sales"
    assert tables["good"].keep_tainted


def test_the_default_of_a_location_holds_for_our_assets_without_one() -> None:
    boundary = databuild_boundary("files", partitions_def=DAILY)
    published = databuild_boundary("lake", partitions_def=DAILY, publish=Iceberg())

    tables = tables_of(plain, sales, private, boundary, published, publish=Iceberg(namespace="lake"))

    names = {asset: table.name for asset, table in tables.items()}
    assert names == {"plain": "lake.plain", "sales": "shop.sales", "lake": "databuild.lake"}


def test_the_table_survives_a_translator_that_makes_new_specs() -> None:
    class Renaming(DatabuildTranslator):
        def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
            return spec.replace_attributes(key=dg.AssetKey(["lake", *spec.key.path]), metadata={})

    assert tables_of(sales, translator=Renaming())["lake/sales"].name == "shop.sales"


def test_two_assets_with_one_table_are_refused() -> None:
    @databuild_asset(publish=Iceberg(table="shop.sales"))
    def other() -> pd.DataFrame:
        return pd.DataFrame()

    with pytest.raises(
        InvalidAsset, match="Assets 'sales' and 'other' have one table, 'shop.sales'; give each its own"
    ):
        tables_of(sales, other)


def test_a_default_with_one_table_for_all_is_refused() -> None:
    with pytest.raises(InvalidAsset, match=r"gives all assets one table, 'a.b'; write Iceberg\(namespace=…\) there"):
        tables_of(plain, publish=Iceberg(table="a.b"))


def test_one_table_for_several_outputs_is_refused() -> None:
    with pytest.raises(InvalidAsset, match="gives its outputs one table, 'a.b'; give each its own"):

        @databuild_multi_asset(outs={"x": dg.AssetSpec("x"), "y": dg.AssetSpec("y")}, publish=Iceberg(table="a.b"))
        def several() -> dict[str, Any]:
            return {}
