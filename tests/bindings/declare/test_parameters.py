"""An asset's signature: what is understood, and what is refused at import with the parameter's name."""

import dagster as dg
import pandas as pd
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

from databuild_dagster import BuildContext, InvalidAsset, databuild_asset
from databuild_dagster.bindings.declare.parameters import ParameterKind, kind_of


class Api(dg.ConfigurableResource):  # type: ignore[type-arg]
    url: str


class Settings(dg.Config):
    n: int = 1


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (DataFrame, ParameterKind.SPARK_FRAME),
        (ConnectDataFrame, ParameterKind.SPARK_FRAME),
        (pd.DataFrame, ParameterKind.PANDAS_FRAME),
        (SparkSession, ParameterKind.SPARK_SESSION),
        (LazyPySparkResource, ParameterKind.SPARK_RESOURCE),
        (PySparkResource, ParameterKind.SPARK_RESOURCE),
        (BuildContext, ParameterKind.CONTEXT),
        (Api, ParameterKind.RESOURCE),
        (Settings, ParameterKind.CONFIG),
        (int, None),
        (list[int], None),
        (dg.AssetExecutionContext, ParameterKind.CONTEXT),
    ],
)
def test_a_parameter_is_filled_by_its_annotation(annotation: object, kind: ParameterKind | None) -> None:
    assert kind_of(annotation) is kind


def test_the_upstream_is_the_asset_of_the_parameters_name_unless_ins_says_otherwise() -> None:
    @databuild_asset(ins={"y": dg.AssetIn(key=["raw", "why"])}, deps=["z"])
    def out(x: DataFrame, y: pd.DataFrame) -> DataFrame: ...  # type: ignore[empty-body]

    deps = [dep.asset_key.to_user_string() for dep in out.specs_by_key[out.key].deps]
    assert deps == ["x", "raw/why", "z"]


def test_calling_an_asset_calls_its_function() -> None:
    @databuild_asset
    def added(x: pd.DataFrame) -> pd.DataFrame:
        return x + 1

    assert added(pd.DataFrame({"n": [1]}))["n"].tolist() == [2]
    assert added(x=pd.DataFrame({"n": [2]}))["n"].tolist() == [3]


def test_what_dagster_knows_of_assets_is_passed_on() -> None:
    @databuild_asset(
        key_prefix=["shop"],
        owners=["team:data"],
        tags={"tier": "gold"},
        kinds={"spark"},
        group_name="sales",
        code_version="7",
        metadata={"answer": 42},
        automation_condition=dg.AutomationCondition.eager(),
        pool="cluster",
    )
    def orders() -> DataFrame:
        """What was ordered."""
        raise NotImplementedError

    spec = orders.specs_by_key[dg.AssetKey(["shop", "orders"])]
    assert spec.owners == ["team:data"]
    assert spec.tags["tier"] == "gold"
    assert spec.kinds == {"spark"}
    assert (spec.group_name, spec.code_version, spec.description) == ("sales", "7", "What was ordered.")
    assert spec.metadata["answer"] == 42
    assert spec.automation_condition is not None
    assert orders.op.pool == "cluster"


def refused(message: str) -> pytest.RaisesExc[InvalidAsset]:
    return pytest.raises(InvalidAsset, match=message)


def test_an_annotation_that_nothing_fills_is_refused_with_the_parameters_name() -> None:
    with refused("Parameter 'limit' of asset 'bad' is annotated int, which cannot be filled"):

        @databuild_asset
        def bad(limit: int) -> DataFrame: ...  # type: ignore[empty-body]


def test_a_parameter_without_annotation_is_refused() -> None:
    with refused("Parameter 'flights' of asset 'bad' has no annotation"):

        @databuild_asset
        def bad(flights) -> DataFrame: ...  # type: ignore[no-untyped-def, empty-body]


def test_a_config_under_another_name_is_refused() -> None:
    with refused("Parameter 'settings' of asset 'bad' is a Config"):

        @databuild_asset
        def bad(settings: Settings) -> DataFrame: ...  # type: ignore[empty-body]


def test_a_wrong_return_annotation_is_refused() -> None:
    with refused("Asset 'bad' is annotated to return int"):

        @databuild_asset
        def bad() -> int: ...  # type: ignore[empty-body]


def test_ins_for_no_parameter_is_refused() -> None:
    with refused("ins of asset 'bad' names 'y'"):

        @databuild_asset(ins={"y": dg.AssetIn("z")})
        def bad(x: DataFrame) -> DataFrame: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batched": True}, "has no partitions, so batched=True means nothing"),
        ({"check_specs": []}, "check_specs= means nothing here"),
        ({"retry_policy": dg.RetryPolicy()}, "retry_policy= means nothing here"),
        ({"max_partitions_per_launch": 0}, "max_partitions_per_launch of asset 'bad' is 0"),
    ],
)
def test_options_without_a_meaning_are_refused_with_a_sentence(options: dict[str, object], said: str) -> None:
    with refused(said):

        @databuild_asset(**options)  # type: ignore[call-overload]
        def bad() -> DataFrame: ...  # type: ignore[empty-body]
