"""Arcs and empty lots as an author writes them, in real Dagster (rules 10.3, 10.5)."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import (
    EMPTY,
    BuildContext,
    InvalidAsset,
    available_lots,
    databuild_asset,
    databuild_multi_asset,
    read,
)
from databuild_dagster.bindings.registry.catalog import DagsterCatalog
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.states import InstanceState

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
hourly = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-03-00:00")
DAY, NEXT = "2024-01-01", "2024-01-02"
#: Whose function was called for which partition.
called: list[str] = []
#: Partitions that have no rows.
without_rows: set[str] = set()


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    called.clear()
    without_rows.clear()


def note(context: BuildContext, name: str) -> None:
    called.append(f"{name}@{context.partition_key}")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    note(context, "orders")
    return EMPTY if context.partition_key in without_rows else pd.DataFrame({"amount": [1.5]})  # type: ignore[return-value]


@databuild_asset(partitions_def=daily)
def weather(context: BuildContext) -> pd.DataFrame:
    note(context, "weather")
    return pd.DataFrame({"sunny": [True]})


@databuild_asset(partitions_def=daily, subscribe="orders", skip_empty=True)
def clean(context: BuildContext, orders: pd.DataFrame) -> pd.DataFrame:
    note(context, "clean")
    return orders.assign(clean=True)


@databuild_asset(partitions_def=daily, subscribe=["clean", "weather"], skip_empty=True)
def joined(context: BuildContext, clean: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    note(context, "joined")
    return clean


@databuild_asset(partitions_def=daily, subscribe="clean", skip_empty=True)
def report(context: BuildContext, clean: pd.DataFrame) -> pd.DataFrame:
    note(context, "report")
    return clean[["amount"]].assign(n=len(clean))


def test_emptiness_goes_through_a_chain_of_three_without_a_call(deploy: Any) -> None:
    """Rule 10.3: live, announced, zero rows with the columns of the lots that have some."""
    site = deploy(orders, clean, report)
    site.build(f"orders@{DAY}")
    without_rows.add(NEXT)
    called.clear()

    site.build(f"orders@{NEXT}")

    assert called == [f"orders@{NEXT}"]
    canonical = site.engine.queries.canonical.of([f"clean@{NEXT}", f"report@{NEXT}"])
    assert [instance.state for instance in canonical.values()] == [InstanceState.LIVE] * 2
    assert [instance.manifest_state for instance in canonical.values()] == ["empty"] * 2
    assert site.rows(f"report@{NEXT}") == []
    frame = read(f"report@{NEXT}", format="pandas", instance=site.instance)
    assert list(frame.columns) == ["amount", "n"]
    assert site.materialized("report") == [DAY, NEXT]
    assert [lot.state for lot in available_lots(instance=site.instance) if NEXT in lot.ref] == ["empty"] * 3


def test_of_two_sources_the_lot_waits_for_the_other_and_runs_once(deploy: Any) -> None:
    """Rule 10.5: and is called while one of them has rows."""
    site = deploy(orders, weather, clean, joined)
    without_rows.add(DAY)

    site.build(f"weather@{DAY}")

    assert sorted(called) == [f"joined@{DAY}", f"orders@{DAY}", f"weather@{DAY}"]
    assert called[-1] == f"joined@{DAY}"
    assert called.count(f"joined@{DAY}") == 1


def test_a_batch_is_called_for_what_is_not_empty(deploy: Any) -> None:
    """Rule 10.3"""

    @databuild_asset(partitions_def=daily, batched=True, skip_empty=True)
    def batch(context: BuildContext, orders: pd.DataFrame) -> pd.DataFrame:
        called.extend(f"batch@{key}" for key in context.partition_keys)
        return orders

    site = deploy(orders, batch)
    without_rows.add(NEXT)

    site.build(f"batch@{DAY}", f"batch@{NEXT}")

    assert [call for call in called if call.startswith("batch")] == [f"batch@{DAY}"]
    assert site.engine.queries.canonical.of([f"batch@{NEXT}"])[f"batch@{NEXT}"].manifest_state == "empty"
    assert len(site.rows(f"batch@{DAY}")) == 1


def test_a_blocking_check_is_not_asked_about_what_is_passed_on(deploy: Any) -> None:
    """Rule 10.3: nothing of the user's runs."""

    def has_rows(rows: pd.DataFrame) -> bool:
        called.append("check")
        return len(rows) > 0

    @databuild_asset(partitions_def=daily, skip_empty=True, blocking_checks=[has_rows])
    def checked(orders: pd.DataFrame) -> pd.DataFrame:
        return orders

    site = deploy(orders, checked)
    without_rows.add(DAY)

    site.build(f"checked@{DAY}")

    assert called == [f"orders@{DAY}"]
    assert site.state(f"checked@{DAY}") is InstanceState.LIVE


def test_every_output_of_a_multi_asset_is_woken_and_empty(deploy: Any) -> None:
    """Rules 10.5, 6.2: in one job run."""

    @databuild_multi_asset(
        outs={"low": dg.AssetSpec("low"), "high": dg.AssetSpec("high")},
        partitions_def=daily,
        subscribe="orders",
        skip_empty=True,
    )
    def split(orders: pd.DataFrame) -> dict[str, pd.DataFrame]:
        called.append("split")
        return {"low": orders, "high": orders}

    site = deploy(orders, split)
    without_rows.add(NEXT)

    site.build(f"orders@{DAY}", f"orders@{NEXT}")

    assert called.count("split") == 1
    assert {site.state(f"{name}@{day}") for name in ("low", "high") for day in (DAY, NEXT)} == {InstanceState.LIVE}


def test_an_arc_has_the_sources_and_the_lateness_that_its_author_names() -> None:
    """Rules 10.5, 10.6: a source need not be an input."""
    landed = dg.AssetSpec("landed", partitions_def=daily)

    found = specs(orders, clean, landed, named("eager", daily, subscribe=[landed, "orders"], follow_late=True))

    arcs = [found[name].arc for name in ("clean", "eager")]
    assert [(arc.follow_late, [source.asset for source in arc.sources]) for arc in arcs if arc is not None] == [
        (False, ["orders"]),
        (True, ["landed", "orders"]),
    ]


def test_an_asset_s_arc_keeps_the_prefix_that_dagster_gives_its_inputs() -> None:
    """Rule 5.7: sources that are inputs are called what the inputs are called by now."""
    keys = {key: key.with_prefix("shop") for asset in (orders, clean) for key in asset.keys}
    renamed = [asset.with_attributes(asset_key_replacements=keys) for asset in (orders, clean)]
    spec = specs(*renamed)["shop/clean"]

    assert isinstance(spec.arc, ArcSpec)
    assert [source.asset for source in spec.arc.sources] == ["shop/orders"]


# Which lots are woken


def specs(*assets: Any) -> dict[str, DatasetSpec]:
    return {spec.asset: spec for spec in datasets_of(dg.Definitions(assets=assets).resolve_asset_graph(), "tests")}


def named(name: str, partitions: Any = None, **options: Any) -> Any:
    def made() -> pd.DataFrame: ...  # type: ignore[empty-body]

    return databuild_asset(name=name, partitions_def=partitions, **options)(made)


@pytest.mark.parametrize(
    ("upstream", "downstream", "mapping", "key", "woken"),
    [
        (daily, daily, None, NEXT, (NEXT,)),
        (daily, daily, dg.TimeWindowPartitionMapping(start_offset=-1), NEXT, (NEXT, "2024-01-03")),
        (daily, monthly, None, "2024-02-29", ("2024-02-01",)),
        (hourly, daily, None, "2024-01-01-23:00", (DAY,)),
        (monthly, None, None, "2024-02-01", (None,)),
        (None, None, None, None, (None,)),
        (None, monthly, None, None, ("2024-01-01", "2024-02-01")),
        (daily, monthly, dg.AllPartitionMapping(), NEXT, ("2024-01-01", "2024-02-01")),
        (daily, monthly, dg.SpecificPartitionsPartitionMapping([DAY]), NEXT, ()),
        (daily, daily, dg.TimeWindowPartitionMapping(start_offset=-1), "2031-01-01", ()),
    ],
)
def test_the_lots_of_a_source_s_partition_are_those_that_read_it(
    upstream: Any, downstream: Any, mapping: Any, key: Any, woken: Any
) -> None:
    """Rule 10.5"""
    dep = dg.AssetDep("source", partition_mapping=mapping)
    found = specs(named("source", upstream), named("arc", downstream, deps=[dep], subscribe="source"))
    arc = found["arc"].arc
    assert isinstance(arc, ArcSpec)
    with dg.DagsterInstance.ephemeral() as instance:
        catalog = DagsterCatalog(instance)

        assert catalog.woken(found["arc"], arc.sources[0], key) == woken

        ref = "source" if key is None else f"source@{key}"
        assert all(ref in catalog.inputs(found["arc"], key) for key in woken)


# What cannot work


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscribe": []}, "subscribe of asset 'arc' names nothing"),
        ({"subscribe": "arc"}, "subscribes to itself"),
        ({"subscribe": ["source", "source"]}, "names 'source' twice"),
        ({"subscribe": 7}, "has 7, which names no asset"),
        ({"follow_late": True}, "has follow_late and no sources; name its sources"),
        ({"skip_empty": True}, "has no inputs that could be empty"),
        (
            {"deps": ["source"], "subscribe": dg.AssetDep("source", partition_mapping=dg.AllPartitionMapping())},
            "maps 'source', whose input has a mapping",
        ),
    ],
)
def test_an_arc_that_cannot_work_is_refused_at_import(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidAsset, match=why):
        named("arc", daily, **options)
