"""A translator changes how assets look in a project; everything that hangs on their keys goes along.

What the assets answer are pandas frames: nothing here waits for Spark.
"""

import types
from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import (
    BuildContext,
    DatabuildTranslator,
    automation,
    build_definitions,
    databuild_asset,
    databuild_multi_asset,
)
from databuild_dagster.bindings.adapter.run_tags import TAINT_CHECK
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.model.states import InstanceState

from ..conftest import Site

daily = dg.DailyPartitionsDefinition("2024-01-12", end_date="2024-01-15")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")

Deploy = Callable[..., Site]


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.0, -2.0 if context.partition_key == "2024-01-13" else 2.0]})


def nothing_is_free(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows.amount <= 0]


@databuild_multi_asset(
    outs={"big": dg.AssetSpec("big_orders"), "all": dg.AssetSpec("all_orders", deps=["shops"])},
    partitions_def=daily,
    batched=True,
    ins={"sold": dg.AssetIn("orders")},
    blocking_checks={"all": [nothing_is_free]},
)
def split(sold: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {"big": sold[sold.amount > 1], "all": sold}


@databuild_asset
def shops() -> pd.DataFrame:
    return pd.DataFrame({"shop": ["north"]})


@dg.asset(partitions_def=daily)
def report(big_orders: pd.DataFrame) -> None:
    assert big_orders.amount.tolist() == [2.0]


@dg.asset_check(asset="shops", additional_deps=["orders"])
def there_is_one() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


class Prefixed(DatabuildTranslator):
    """As a project shows what several packages bring along."""

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(
            key=spec.key.with_prefix(["retail", "v2"]),
            group_name="retail",
            owners=["team:retail"],
            tags={"tier": "gold"},
            metadata={"of": spec.key.to_user_string()},
            automation_condition=automation.eager(),
        )


def changing(**attributes: Any) -> DatabuildTranslator:
    class Changing(DatabuildTranslator):
        def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
            return spec.replace_attributes(**attributes)

    return Changing()


def test_checks_deps_and_parameters_follow_a_translated_key(deploy: Deploy) -> None:
    """The store's datasets, jobs, inputs and parameters, Dagster's deps and checks."""
    site = deploy(orders, split, shops, report, asset_checks=[there_is_one], translator=Prefixed())

    datasets = {spec.asset: spec for spec in site.engine.queries.datasets.all().values()}
    graph = site.repository.asset_graph

    assert {asset.removeprefix("retail/v2/") for asset in datasets} == {
        "orders",
        "big_orders",
        "all_orders",
        "shops",
        "report",
    }
    assert [(source.asset, source.param) for source in datasets["retail/v2/all_orders"].inputs] == [
        ("retail/v2/orders", "sold"),
        ("retail/v2/shops", None),
    ]
    assert datasets["retail/v2/orders"].job == "retail/v2/orders"
    assert {key.to_user_string() for key in graph.get(dg.AssetKey(["retail", "v2", "report"])).parent_keys} == {
        "retail/v2/big_orders"
    }
    checks = [key for key in graph.asset_check_keys if key.name != TAINT_CHECK]
    assert {(key.asset_key.to_user_string(), key.name) for key in checks} == {
        ("retail/v2/all_orders", "nothing_is_free"),
        ("retail/v2/shops", "there_is_one"),
    }
    check = graph.get_check_spec(dg.AssetCheckKey(dg.AssetKey(["retail", "v2", "shops"]), "there_is_one"))
    assert [dep.asset_key.to_user_string() for dep in check.additional_deps] == ["retail/v2/orders"]


def test_translated_assets_are_built_read_and_checked_under_their_new_keys(deploy: Deploy) -> None:
    site = deploy(orders, split, shops, report, translator=Prefixed())

    days = ["2024-01-12", "2024-01-13"]
    site.build(*(f"retail/v2/{asset}@{day}" for asset in ("big_orders", "all_orders") for day in days))

    assert site.rows("retail/v2/big_orders@2024-01-12") == [{"amount": 2.0}]
    assert site.state("retail/v2/all_orders@2024-01-12") is InstanceState.LIVE
    assert site.state("retail/v2/all_orders@2024-01-13") is InstanceState.FAILED
    assert site.red("retail/v2/all_orders") == ["2024-01-13"]
    key = dg.AssetCheckKey(dg.AssetKey(["retail", "v2", "all_orders"]), "nothing_is_free")
    (run,) = site.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert run.status.value == "FAILED"
    assert site.launch(["retail/v2/report"], ["2024-01-12"]).is_success


def test_dagster_shows_the_specs_of_the_translator(deploy: Deploy) -> None:
    site = deploy(orders, shops, dg.AssetSpec("outside"), translator=Prefixed())

    for name in ("orders", "outside"):
        spec = site.repository.asset_graph.get(dg.AssetKey(["retail", "v2", name])).to_asset_spec()
        assert (spec.group_name, list(spec.owners), dict(spec.tags)) == ("retail", ["team:retail"], {"tier": "gold"})
        assert spec.metadata["of"] == name


def test_the_prefix_that_dagsters_own_loader_puts_before_keys_is_followed_as_well(deploy: Deploy) -> None:
    module = types.ModuleType("shop_assets")
    vars(module).update(orders=orders, split=split, shops=shops)

    site = deploy(*dg.load_assets_from_modules([module], key_prefix="shop"))
    site.build("shop/big_orders@2024-01-12")

    assert site.rows("shop/big_orders@2024-01-12") == [{"amount": 2.0}]


class Forgetful(DatabuildTranslator):
    def get_asset_spec(self, spec: dg.AssetSpec) -> Any:
        spec.replace_attributes(group_name="retail")


class Versioned(DatabuildTranslator):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(code_version=spec.key.to_user_string())


REFUSED = [
    (
        changing(key="one"),
        r"'orders' and 'big_orders' are both translated to 'one'; give each asset a key of its own\.",
    ),
    (changing(partitions_def=monthly), r"Changing\.get_asset_spec changes the partitions of 'orders'.*; leave them\."),
    (changing(deps=["shops"]), r"Changing\.get_asset_spec changes the deps of 'orders'; they belong to its function"),
    (changing(key="a@b"), r"gives 'orders' the key 'a@b': .* an asset key may not hold '@'"),
    (Forgetful(), r"Forgetful\.get_asset_spec answered None for 'orders'; return an AssetSpec"),
    (Versioned(), r"The outputs of 'split' are translated to several code versions"),
]


@pytest.mark.parametrize(("translator", "sentence"), REFUSED)
def test_an_impossible_translation_is_refused_with_a_sentence(translator: DatabuildTranslator, sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=sentence):
        build_definitions([orders, split, shops], translator=translator)
