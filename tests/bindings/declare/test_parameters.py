"""An asset's signature: what is understood, and what is refused at import with the parameter's name."""

from functools import partial
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

from databuild_dagster import BuildContext, InvalidAsset, databuild_asset, databuild_multi_asset
from databuild_dagster.bindings.declare.asset_spec import body_of
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


def of_a_number(limit: int) -> DataFrame: ...  # type: ignore[empty-body]
def unannotated(flights) -> DataFrame: ...  # type: ignore[no-untyped-def, empty-body]
def of_settings(settings: Settings) -> DataFrame: ...  # type: ignore[empty-body]
def to_a_number() -> int: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (of_a_number, "Parameter 'limit' of asset 'of_a_number' is annotated int, which cannot be filled"),
        (unannotated, "Parameter 'flights' of asset 'unannotated' has no annotation"),
        (of_settings, "Parameter 'settings' of asset 'of_settings' is a Config"),
        (to_a_number, "Asset 'to_a_number' is annotated to return int"),
    ],
)
def test_a_signature_that_means_nothing_is_refused_with_the_name(function: Any, sentence: str) -> None:
    with refused(sentence):
        databuild_asset(function)


class Callable:
    def __call__(self) -> pd.DataFrame:
        return pd.DataFrame()


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (partial(lambda n: n, 1), "functools.partial"),
        (Callable(), "test_parameters.Callable"),
        (Callable, "class"),
    ],
)
@pytest.mark.parametrize("decorator", [databuild_asset, databuild_multi_asset])
def test_a_callable_that_is_no_function_is_refused(decorator: Any, function: Any, kind: str) -> None:
    with pytest.raises(
        InvalidAsset, match=rf"Asset 'rates' is given a .*{kind}, which is no function; write a function"
    ):
        decorator(name="rates")(function)


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


def test_further_inputs_are_the_names_that_ins_has_and_the_parameters_have_not() -> None:
    @databuild_asset(name="total", ins={"x": dg.AssetIn("raw_x"), "y": dg.AssetIn("raw_y")})
    def step(spark: SparkSession, x: pd.DataFrame, **inputs: DataFrame) -> DataFrame: ...  # type: ignore[empty-body]

    body = body_of(step)
    assert body is not None
    assert [(parameter.name, parameter.kind) for parameter in body.parameters] == [
        ("spark", ParameterKind.SPARK_SESSION),
        ("x", ParameterKind.PANDAS_FRAME),
        ("y", ParameterKind.SPARK_FRAME),
    ]
    assert {dep.asset_key.to_user_string() for dep in step.specs_by_key[step.key].deps} == {"raw_x", "raw_y"}


def test_further_inputs_without_ins_or_of_another_class_are_refused() -> None:
    def frames(**inputs: DataFrame) -> DataFrame: ...  # type: ignore[empty-body]
    def tools(**inputs: SparkSession) -> DataFrame: ...  # type: ignore[empty-body]

    with refused("Parameter 'inputs' of asset 'total' takes any number of arguments"):
        databuild_asset(name="total")(frames)
    with refused(r"Parameter '\*\*inputs' of asset 'total' is no frame"):
        databuild_asset(name="total", ins={})(tools)


def test_an_input_with_a_default_is_refused() -> None:
    def f(x: pd.DataFrame = None) -> pd.DataFrame: ...  # type: ignore[assignment,empty-body]

    with refused("Parameter 'x' of asset 'f' has a default, but an input is always there; remove `= None`"):
        databuild_asset(f)


def test_an_asset_with_two_decorators_is_refused_in_either_order() -> None:
    def f() -> pd.DataFrame: ...  # type: ignore[empty-body]

    for outer, inner in [(databuild_asset, dg.asset), (dg.asset, databuild_asset), (databuild_asset, databuild_asset)]:
        with refused("Asset 'f' has two decorators of assets; keep @databuild_asset alone"):
            outer(inner(f))  # type: ignore[operator]


def test_a_text_in_place_of_a_function_is_refused_with_the_option() -> None:
    with refused(r"Asset 'orders' has no function; write @databuild_asset\(name='orders'\) above one"):
        databuild_asset("orders")  # type: ignore[call-overload]
