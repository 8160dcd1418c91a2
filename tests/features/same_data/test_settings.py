"""`same_data="keep"` and `deterministic=True` are registered, and refused where no build writes or reads rows (rules 4.8, 4.9)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import msgspec
import pandas as pd
import pytest
from msgspec import UNSET

from databuild_dagster import (
    InvalidAsset,
    build_definitions,
    databuild_asset,
    databuild_boundary,
    databuild_multi_asset,
)
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.model.datasets import DatasetSpec

daily = dg.DailyPartitionsDefinition("2024-01-01")


def registered(*assets: Any) -> dict[str, DatasetSpec]:
    graph = build_definitions(assets, location="here").get_repository_def().asset_graph
    return {spec.asset: spec for spec in datasets_of(graph, "here")}


@databuild_asset(same_data="keep")
def kept() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset
def other() -> pd.DataFrame:
    return pd.DataFrame()


def test_the_option_is_registered_for_an_asset() -> None:
    found = registered(kept, other)

    assert {name: spec.same_data for name, spec in found.items()} == {"kept": True, "other": UNSET}


def test_a_registration_without_it_is_the_text_of_older_versions() -> None:
    assert b'"same_data":' not in msgspec.json.encode(registered(other)["other"])


def test_outputs_of_a_multi_asset_have_their_own_option() -> None:
    @databuild_multi_asset(outs={name: dg.AssetSpec(name) for name in ("a", "b")}, same_data={"a": "keep"})
    def both() -> dict[str, Any]:
        return {}

    assert {name: spec.same_data for name, spec in registered(both).items()} == {"a": True, "b": UNSET}


def test_another_value_is_refused() -> None:
    with pytest.raises(InvalidAsset, match="same_data of asset 'x' is True; write 'keep', or leave it out"):
        databuild_asset(name="x", same_data=True)(lambda: None)  # type: ignore[call-overload]


def test_files_of_other_programs_are_refused_because_no_call_writes_them() -> None:
    with pytest.raises(InvalidAsset, match="same_data"):
        databuild_boundary("files", partitions_def=daily, same_data="keep")  # type: ignore[call-arg]


def test_a_deterministic_asset_is_registered_so() -> None:
    @databuild_asset(deterministic=True)
    def sums(kept: pd.DataFrame) -> pd.DataFrame:
        return kept

    @databuild_asset(deps=["kept"], deterministic=False)
    def counts() -> pd.DataFrame:
        return pd.DataFrame()

    found = registered(kept, sums, counts)

    assert [found[name].deterministic for name in ("sums", "counts", "kept")] == [True, UNSET, UNSET]


def test_outputs_of_a_multi_asset_are_deterministic_one_by_one() -> None:
    outs = {"a": dg.AssetSpec("a", deps=["kept"]), "b": dg.AssetSpec("b")}

    def dicts() -> dict[str, Any]:
        return {}

    both = databuild_multi_asset(outs=outs, deterministic={"a": True})(dicts)

    assert {name: spec.deterministic for name, spec in registered(kept, both).items() if name in "ab"} == {
        "a": True,
        "b": UNSET,
    }
    with pytest.raises(InvalidAsset, match="'b' is about equal inputs, and the asset has no input; leave it out"):
        databuild_multi_asset(outs=outs, deterministic=True)(dicts)


def test_a_deterministic_asset_without_inputs_is_refused() -> None:
    with pytest.raises(
        InvalidAsset, match="deterministic of asset 'x' is about equal inputs, and the asset has no input"
    ):
        databuild_asset(name="x", deterministic=True)(lambda: None)


def test_another_value_of_deterministic_is_refused() -> None:
    with pytest.raises(InvalidAsset, match="deterministic of asset 'x' is 'yes'; write True, or leave it out"):
        databuild_asset(name="x", deterministic="yes", deps=["a"])(lambda: None)  # type: ignore[call-overload]


def test_files_of_other_programs_are_not_deterministic() -> None:
    with pytest.raises(InvalidAsset, match="deterministic is for assets with a function, and this one has none"):
        databuild_boundary("files", partitions_def=daily, deterministic=True)  # type: ignore[call-arg]
