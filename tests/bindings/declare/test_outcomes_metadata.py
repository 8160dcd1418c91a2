"""Metadata that Dagster cannot store fail the call that gives them, before anything is recorded (rules 6.1, 6.8)."""

from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.building.direct_call import build_context
from databuild_dagster.bindings.declare.outcomes import MAX_NUMBERS, InvalidMetadata, numbers_of, storable
from databuild_dagster.model.states import InstanceState

LIVE, FAILED = InstanceState.LIVE, InstanceState.FAILED
KEYS = ["a", "bad", "c", "d"]
keys = dg.StaticPartitionsDefinition(KEYS)
FRAME = pd.DataFrame({"x": [1]})
RING: dict[str, Any] = {}
RING["ring"] = RING

#: Of these, Dagster itself refuses some when it makes an event, some when it writes it, and some when it shows it.
REFUSED = {
    "an object": object(),
    "an object in a dict": {"a": [object()]},
    "a value in itself": RING,
    "a key that is no text": {("a", 1): 1},
    "a number of numpy": np.int64(1),
    "a float of numpy": np.float64(1.5),
    "a date of pandas": pd.Timestamp("2024-01-01"),
    "a long number": 10**5_000,
    "half of a surrogate pair": "\ud800",
    "half of a surrogate pair in a list": ["\udfff"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_dagster_cannot_store_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidMetadata) as refused:
        storable({"good": 1, "mean": REFUSED[name]}, "odd@a")

    assert refused.value.facts["name"] == "mean"


def test_the_refusal_of_a_value_says_where_it_is_and_what_to_give() -> None:
    with pytest.raises(InvalidMetadata) as refused:
        storable({"mean": np.float64(1.5)}, "odd@a")

    assert str(refused.value) == (
        "Dagster cannot store the metadata 'mean' of odd@a: the value is a numpy.float64. Give a text in UTF-8, a number of Python, "
        "a list or dict of these, or a dagster.MetadataValue; convert another value, as in float(value) or str(value)."
    )


def test_values_of_dagster_and_of_python_are_stored() -> None:
    values = {"t": "ü😀", "n": 1, "f": 1.5, "b": True, "j": [{"a": None}], "p": Path("/a"), "none": None}
    md = dg.MetadataValue.md("*a*")

    assert {name: found.value for name, found in storable(values, "odd@a").items()} == {**values, "p": "/a"}
    assert storable(storable({"md": md}, "odd@a"), "odd@a") == {"md": md}


def test_the_finite_numbers_of_metadata_are_recorded_and_nothing_else() -> None:
    values = {
        "n": 3,
        "f": -1.5,
        "b": True,
        "t": "4",
        "j": {"a": 1},
        "none": None,
        "nan": float("nan"),
        "inf": float("inf"),
    }
    others = {"huge": 10**400, "databuild/seconds": 1.5, "x" * 101: 1}
    many = {f"{place:03}": place for place in range(MAX_NUMBERS + 1)}

    assert numbers_of(storable({**values, **others}, "odd@a")) == {"n": 3.0, "f": -1.5}
    assert len(numbers_of(storable(many, "odd@a"))) == MAX_NUMBERS


def test_the_numbers_that_a_function_adds_are_recorded_with_its_output(deploy: Any) -> None:
    @databuild_asset(partitions_def=keys)
    def odd(context: BuildContext) -> dg.MaterializeResult[pd.DataFrame]:
        context.add_output_metadata({"tills": len(context.partition_key), "source": "shop"})
        return dg.MaterializeResult(value=FRAME, metadata={"mean": 1.5})

    site = deploy(odd)
    site.build("odd@a", "odd@bad")

    canonical = site.engine.queries.canonical
    assert canonical.recorded_numbers("odd") == ["mean", "tills"]
    assert canonical.numbers("odd", "tills") == {"odd@a": 1.0, "odd@bad": 3.0}


def test_the_call_that_adds_them_raises() -> None:
    context = build_context()

    with pytest.raises(InvalidMetadata):
        context.add_output_metadata({"good": 1, "mean": np.float64(1.5)})

    assert context.output_metadata("asset") == {}


def added(context: BuildContext, value: Any) -> pd.DataFrame:
    context.add_output_metadata({"o": value})
    return FRAME


def changed_later(context: BuildContext, value: Any) -> pd.DataFrame:
    metadata: dict[str, Any] = {}
    context.add_output_metadata({"o": metadata})
    metadata["o"] = object()
    return FRAME


def of_a_result(context: BuildContext, value: Any) -> Any:
    return dg.MaterializeResult(value=FRAME, metadata={"o": value})


def of_an_output(context: BuildContext, value: Any) -> Any:
    return dg.Output(FRAME, metadata={"o": value})


def of_a_failure(context: BuildContext, value: Any) -> Any:
    raise dg.Failure("no", metadata={"o": value})


def check_alone(site: Any) -> None:
    site.build(*(f"odd@{key}" for key in KEYS))

    assert [site.state(f"odd@{key}") for key in KEYS] == [LIVE, FAILED, LIVE, LIVE]
    assert len(site.engine.queries.instances.history("odd@bad")) == 1
    assert sorted(site.materialized("odd")) == ["a", "c", "d"]
    assert site.failure().startswith("1 of 4 partitions failed: bad. First: ")


@pytest.mark.parametrize("way", [added, changed_later, of_a_result, of_an_output, of_a_failure])
def test_metadata_that_cannot_be_stored_fail_their_partition_alone(deploy: Any, way: Any) -> None:
    @databuild_asset(partitions_def=keys)
    def odd(context: BuildContext) -> pd.DataFrame:
        return way(context, np.float64(1.5)) if context.partition_key == "bad" else FRAME  # type: ignore[no-any-return]

    check_alone(deploy(odd))


def test_metadata_that_cannot_be_stored_fail_their_key_of_a_batch_alone(deploy: Any) -> None:
    @databuild_asset(partitions_def=keys, batched=True)
    def odd(context: BuildContext) -> pd.DataFrame:
        if "bad" in context.partition_keys:
            context.add_output_metadata({"o": object()}, partition_key="bad")
        return pd.DataFrame({"partition_key": list(context.partition_keys), "x": 1})

    check_alone(deploy(odd))


def test_metadata_of_a_check_that_cannot_be_stored_close_its_gate_alone(deploy: Any) -> None:
    def is_good(rows: pd.DataFrame, context: BuildContext) -> dg.AssetCheckResult:
        value = np.float64(1.5) if context.partition_key == "bad" else 1.5
        return dg.AssetCheckResult(passed=True, metadata={"mean": value})

    @databuild_asset(partitions_def=keys, blocking_checks=[is_good])
    def odd() -> pd.DataFrame:
        return FRAME

    check_alone(deploy(odd))
