"""`sample=True` is in the registration of an asset, and nothing is there without it (rule 5.7)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import msgspec
import pandas as pd
import pytest
from msgspec import UNSET

from databuild_dagster import (
    DatabuildTranslator,
    InvalidAsset,
    build_definitions,
    databuild_asset,
    databuild_boundary,
    databuild_multi_asset,
)
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.model.datasets import DatasetSpec

daily = dg.DailyPartitionsDefinition("2024-01-01")


def registered(*assets: Any, **options: Any) -> dict[str, DatasetSpec]:
    definitions = build_definitions(assets, location="here", **options)
    graph = definitions.get_repository_def().asset_graph
    return {spec.asset: spec for spec in datasets_of(graph, "here")}


@databuild_asset(sample=True)
def shown() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset
def hidden() -> pd.DataFrame:
    return pd.DataFrame()


def test_the_permission_is_registered_for_assets_and_boundaries() -> None:
    files = databuild_boundary("files", partitions_def=daily, sample=True)

    found = registered(shown, hidden, files)

    assert {name: spec.sample for name, spec in found.items()} == {"shown": True, "hidden": UNSET, "files": True}


def test_a_registration_without_it_is_the_text_of_older_versions() -> None:
    spec = registered(hidden)["hidden"]

    assert b"sample" not in msgspec.json.encode(spec)


def test_outputs_of_a_multi_asset_have_their_own_permission() -> None:
    outs = {name: dg.AssetSpec(name) for name in ("a", "b")}

    @databuild_multi_asset(outs=outs, sample={"a": True})
    def both() -> dict[str, Any]:
        return {}

    @databuild_multi_asset(outs={name.upper(): dg.AssetSpec(name.upper()) for name in outs}, sample=True)
    def all_of_them() -> dict[str, Any]:
        return {}

    found = registered(both, all_of_them)

    assert {name: spec.sample for name, spec in found.items()} == {"a": True, "b": UNSET, "A": True, "B": True}


def test_a_translator_cannot_lose_the_permission() -> None:
    class Renaming(DatabuildTranslator):
        def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
            return spec.replace_attributes(key=spec.key.with_prefix("shop"), metadata={})

    assert registered(shown, translator=Renaming())["shop/shown"].sample is True


def test_a_value_that_is_no_permission_is_refused() -> None:
    with pytest.raises(InvalidAsset, match="sample of asset 'x' is 5; write True or False"):
        databuild_asset(name="x", sample=5)(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(InvalidAsset, match="sample of multi-asset 'm' names 'c'"):
        databuild_multi_asset(name="m", outs={"a": dg.AssetSpec("a")}, sample={"c": True})(lambda: None)
