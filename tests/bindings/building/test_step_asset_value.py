"""Tests read the rows of an asset from the result of `materialize()`, as Dagster's users do (findings/first-use.md 7)."""

from collections.abc import Iterator

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import EMPTY, BuildContext, NotBuilt, databuild_asset, databuild_multi_asset, read
from databuild_dagster.bindings.building import step

shops = dg.StaticPartitionsDefinition(["north", "south"])
BOTH = {"dagster/asset_partition_range_start": "north", "dagster/asset_partition_range_end": "south"}


@databuild_asset(partitions_def=shops)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"shop": [context.partition_key], "n": [1]})


@databuild_asset(partitions_def=shops)
def of_polars(orders: pl.DataFrame) -> pl.DataFrame:
    return orders.with_columns(n=pl.col("n") + 1)


def has_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("n").is_null())


@databuild_asset(partitions_def=shops, batched=True, blocking_checks=[has_numbers])
def in_batches(orders: pl.DataFrame) -> pl.DataFrame:
    assert set(orders["partition_key"]) == {"north", "south"}
    return orders.with_columns(n=pl.when(pl.col("shop") == "north").then(pl.col("n")))


@databuild_asset(partitions_def=shops)
def of_arrow(of_polars: pa.Table) -> pa.Table:
    return of_polars.select(["n"])


@databuild_asset
def of_spark(orders: DataFrame, spark: SparkSession) -> DataFrame:
    return orders.groupBy().sum("n")


@databuild_asset
def without_annotation(orders: pd.DataFrame):
    return orders.describe()


@databuild_asset
def nothing() -> pd.DataFrame:
    return EMPTY


@databuild_multi_asset(outs={"left": dg.AssetSpec("left"), "right": dg.AssetSpec("right")})
def both() -> dict[str, pd.DataFrame]:
    return {"left": pd.DataFrame({"n": [1]}), "right": pd.DataFrame({"n": [2]})}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def test_the_value_of_a_partition_is_its_frame_whether_it_was_live_before_or_not(instance: dg.DagsterInstance) -> None:
    """Rule 8.8"""
    for _ in range(2):
        result = dg.materialize([orders], instance=instance, partition_key="north")

        assert result.asset_value("orders").to_dict("list") == {"shop": ["north"], "n": [1]}
        assert result.output_for_node("orders", "orders").n.tolist() == [1]


def test_the_value_of_several_partitions_is_one_frame_of_the_annotated_kind(instance: dg.DagsterInstance) -> None:
    result = dg.materialize([orders, of_polars, of_arrow], instance=instance, tags=BOTH)

    assert result.asset_value("orders").shop.tolist() == ["north", "south"]
    assert result.asset_value("of_polars").sort("shop").rows() == [("north", 2), ("south", 2)]
    assert result.asset_value("of_arrow").to_pydict() == {"n": [2, 2]}


@pytest.mark.long("only Spark has a frame that works after its run")
def test_the_value_of_a_spark_asset_is_a_frame_that_works_after_the_run(instance: dg.DagsterInstance) -> None:
    dg.materialize([orders], instance=instance, tags=BOTH)

    result = dg.materialize([orders, of_spark], instance=instance, selection=["of_spark"])

    assert result.asset_value("of_spark").collect()[0][0] == 2


def test_a_batch_of_polars_is_split_by_key_and_checked_by_key(instance: dg.DagsterInstance) -> None:
    dg.materialize([orders], instance=instance, tags=BOTH)

    with pytest.raises(NotBuilt, match="has_numbers"):
        dg.materialize([orders, in_batches], instance=instance, tags=BOTH, selection=["in_batches"])

    assert read("in_batches@north", format="polars", instance=instance).rows() == [("north", 1)]


def test_each_output_has_its_value_and_an_empty_one_no_rows(instance: dg.DagsterInstance) -> None:
    result = dg.materialize([both, nothing], instance=instance)

    assert result.asset_value("left").n.tolist() == [1]
    assert result.asset_value("right").n.tolist() == [2]
    assert len(result.asset_value("nothing")) == 0


def test_without_an_annotation_the_value_is_of_pandas(instance: dg.DagsterInstance) -> None:
    dg.materialize([orders], instance=instance, tags=BOTH)

    result = dg.materialize([orders, without_annotation], instance=instance, selection=["without_annotation"])

    assert "n" in result.asset_value("without_annotation").columns


def test_much_data_is_no_value(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MAX_PARTITIONS", 1)

    result = dg.materialize([orders], instance=instance, tags=BOTH)

    assert result.success
    assert result.asset_value("orders") is None
