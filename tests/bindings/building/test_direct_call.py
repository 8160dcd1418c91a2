"""A test of an asset calls its function with plain frames, and with a context that no build has made (rule 6.3)."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import (
    EMPTY,
    BuildContext,
    DepMiss,
    PartitionRef,
    databuild_asset,
    databuild_multi_asset,
)
from databuild_dagster.testing import build_context

daily = dg.DailyPartitionsDefinition("2024-01-29")
DAY, NEXT = "2024-01-29", "2024-01-30"


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    context.log.info("counting")
    context.add_output_metadata({"source": "shop"})
    return pd.DataFrame({"day": [context.partition_key]})


@databuild_asset(partitions_def=daily, batched=True)
def doubled(context: BuildContext, orders: pd.DataFrame) -> pd.DataFrame:
    assert set(orders.partition_key) <= set(context.partition_keys)
    return orders.assign(amount=orders.amount * 2)


@databuild_multi_asset(outs={"low": dg.AssetSpec("low"), "high": dg.AssetSpec(["deep", "high"])}, partitions_def=daily)
def split(context: BuildContext, orders: pd.DataFrame) -> dict[str, pd.DataFrame]:
    context.add_output_metadata({"rows": 1}, output_name="high")
    return {"low": orders[orders.amount < 5], "high": EMPTY}  # type: ignore[dict-item]


@databuild_asset
def history(context: BuildContext) -> pd.DataFrame:
    found: pd.DataFrame = context.read(PartitionRef("orders", DAY), f"orders@{NEXT}")
    return found


def test_an_asset_called_is_its_function_with_a_context_or_with_none(caplog: pytest.LogCaptureFixture) -> None:
    context = build_context(partition_key=DAY)

    with caplog.at_level(logging.INFO):
        answer = orders(context)

    assert answer.day.tolist() == [DAY]
    assert context.output_metadata(f"asset@{DAY}") == {"source": "shop"}
    assert "counting" in caplog.text


def test_with_its_asset_a_context_knows_refs_and_windows() -> None:
    context = build_context(orders, partition_key=DAY)

    orders(context)

    assert context.refs == (PartitionRef("orders", DAY),)
    assert context.ref == PartitionRef("orders", DAY)
    assert context.asset_key == dg.AssetKey("orders")
    assert context.partition_time_window.end.day == 30
    assert context.output_metadata(context.ref) == {"source": "shop"}
    assert len(context.job_run_id) == 36


def test_a_batched_function_is_called_with_the_keys_of_its_batch() -> None:
    batch = pd.DataFrame({"partition_key": [DAY, NEXT], "amount": [1.0, 2.0]})

    context = build_context(doubled, partition_keys=[DAY, NEXT])
    answer = doubled(context, orders=batch)

    assert answer.amount.tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match=r"is built in a batch of 2; use context\.partition_keys"):
        _ = context.partition_key


def test_a_multi_asset_answers_by_output() -> None:
    """Rule 6.2"""
    context = build_context(split, partition_key=DAY)

    answer = split(context, orders=pd.DataFrame({"amount": [1.0, 9.0]}))

    assert answer["low"].amount.tolist() == [1.0]
    assert answer["high"] is EMPTY
    assert context.refs == (PartitionRef("low", DAY), PartitionRef("deep/high", DAY))
    assert context.output_metadata(f"deep/high@{DAY}") == {"rows": 1}
    assert context.output_metadata(f"low@{DAY}") == {}


def test_a_read_at_run_time_finds_what_was_given_by_ref_or_is_a_dep_miss() -> None:
    """Rule 6.3"""
    one = pd.DataFrame({"amount": [1.0]})

    with pytest.raises(DepMiss) as missed:
        history(build_context(inputs={f"orders@{DAY}": one}))
    answer = history(build_context(inputs={f"orders@{DAY}": one, PartitionRef("orders", NEXT): one + 1}))

    assert missed.value.refs == (f"orders@{NEXT}",)
    assert answer.amount.tolist() == [1.0, 2.0]


def test_resources_and_an_instance_are_there_to_be_used() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        context = build_context(resources={"prices": {"tea": 2.5}}, instance=instance)

        assert context.resources.prices["tea"] == 2.5
        assert context.instance is instance
    build_context().instance.add_dynamic_partitions("tails", ["N1"])


class Prices(dg.ConfigurableResource):  # type: ignore[type-arg]
    state: str = "new"

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator["Prices"]:
        LIVES.append("set up")
        yield Prices(state="ready")
        LIVES.append("torn down")


LIVES: list[str] = []


@databuild_asset
def priced(prices: Prices, orders: pd.DataFrame) -> pd.DataFrame:
    LIVES.append("called")
    return orders.assign(state=prices.state)


def test_a_resource_among_the_arguments_is_set_up_for_the_call_and_torn_down() -> None:
    answer = priced(Prices(), orders=pd.DataFrame({"n": [1]}))

    assert answer.state.tolist() == ["ready"]
    assert LIVES == ["set up", "called", "torn down"]


def test_keys_that_do_not_fit_and_questions_that_need_a_run_are_refused() -> None:
    with pytest.raises(ValueError, match="one of them"):
        build_context(partition_key=DAY, partition_keys=[DAY])
    with pytest.raises(ValueError, match="at least one"):
        build_context(partition_keys=[])
    with pytest.raises(ValueError, match="history has no partitions"):
        build_context(history, partition_key=DAY)
    with pytest.raises(ValueError, match="orders is partitioned"):
        build_context(orders)
    with pytest.raises(ValueError, match="orders is not batched"):
        build_context(orders, partition_keys=[DAY, NEXT])
    with pytest.raises(ValueError, match="is not an asset of databuild"):
        build_context(dg.asset(lambda: 1, name="plain"))
    with pytest.raises(ValueError, match=r"build_context\(asset, …\)"):
        _ = build_context(partition_key=DAY).partition_time_window
    with pytest.raises(ValueError, match="no Dagster run"):
        _ = build_context().run
    with pytest.raises(ValueError, match="no partition key"):
        _ = build_context().partition_key
