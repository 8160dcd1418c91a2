"""The same under `from __future__ import annotations`, where every annotation is a string."""

from __future__ import annotations

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import BuildContext, InvalidAsset, databuild_asset
from databuild_dagster.bindings.declare.asset_spec import body_of


def test_annotations_may_be_strings_and_name_what_is_local() -> None:
    class Local(dg.ConfigurableResource):  # type: ignore[type-arg]
        url: str

    class Settings(dg.Config):
        n: int = 1

    @databuild_asset
    def out(
        x: DataFrame,
        y: pd.DataFrame,
        spark: SparkSession,
        context: BuildContext,
        api: Local,
        config: Settings,
    ) -> DataFrame:
        raise NotImplementedError

    body = body_of(out)
    assert body is not None
    assert [parameter.kind.value for parameter in body.parameters] == [
        "Spark DataFrame",
        "pandas DataFrame",
        "SparkSession",
        "BuildContext",
        "ConfigurableResource",
        "Config",
    ]


def test_a_name_that_is_unknown_there_is_refused() -> None:
    with pytest.raises(InvalidAsset, match="An annotation of asset 'bad' names 'Nowhere'"):

        @databuild_asset
        def bad(x: Nowhere) -> DataFrame: ...  # type: ignore[name-defined, empty-body]  # noqa: F821
