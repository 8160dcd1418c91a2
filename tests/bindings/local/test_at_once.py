"""How many launches run at a time where the user does not say (rule 8.9)."""

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, databuild_asset, databuild_multi_asset
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.local.at_once import free_cores, launches_at_once


@pytest.mark.parametrize(
    ("may_run_beside", "spark", "store", "free_cores", "number"),
    [
        (True, "shared", None, 2.0, 2),
        (True, "sail", None, 1.5, 2),
        (True, "classic", None, 7.5, 2),
        (True, "shared", None, 1.0, 1),
        (True, "shared", None, -20.0, 1),
        (True, "shared", "s3", -20.0, 4),
        (True, "remote", None, 0.0, 4),
        (True, "remote", "gs", 2.0, 4),
        (True, None, "s3", 8.0, 1),
        (False, "shared", None, 8.0, 1),
        (False, "remote", "s3", 8.0, 1),
    ],
)
def test_the_number_follows_from_spark_the_store_and_the_cores(
    may_run_beside: bool, spark: str | None, store: str | None, free_cores: float, number: int
) -> None:
    found = launches_at_once(may_run_beside=may_run_beside, spark=spark, store=store, free_cores=free_cores)

    assert found == number


def test_a_machine_that_does_not_tell_its_load_has_no_free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> tuple[float, float, float]:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr("os.getloadavg", unknown)

    assert free_cores() == 0.0


@databuild_asset
def of_spark(spark: SparkSession, context: BuildContext) -> DataFrame:
    return spark.range(1)


@databuild_multi_asset(outs={"one": dg.AssetSpec("one"), "two": dg.AssetSpec("two")})
def several(of_spark: DataFrame) -> dict[str, DataFrame]:
    return {"one": of_spark, "two": of_spark}


@databuild_asset
def reads_pandas(of_spark: pd.DataFrame, spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(of_spark)


@databuild_asset
def returns_pandas(of_spark: DataFrame) -> pd.DataFrame:
    return of_spark.toPandas()


@databuild_asset(concurrency=2)
def says_that_it_may(of_spark: pd.DataFrame) -> pd.DataFrame:
    return of_spark


@databuild_asset(concurrency=1)
def one_of_its_own(of_spark: DataFrame) -> DataFrame:
    return of_spark


def is_positive(rows: pd.DataFrame) -> bool:
    return bool((rows["id"] >= 0).all())


@databuild_asset(blocking_checks=[is_positive])
def checked_in_pandas(of_spark: DataFrame) -> DataFrame:
    return of_spark


@pytest.mark.parametrize(
    ("asset", "may"),
    [
        (of_spark, True),
        (several, True),
        (one_of_its_own, True),
        (says_that_it_may, True),
        (reads_pandas, False),
        (returns_pandas, False),
        (checked_in_pandas, False),
    ],
)
def test_an_asset_of_spark_alone_or_with_a_concurrency_may_run_beside_others(
    asset: dg.AssetsDefinition, may: bool
) -> None:
    body = body_of(asset)

    assert body is not None
    assert body.may_run_beside is may
