"""The arguments of Dagster's `@asset`: each one works as it does there, or is refused with what to write."""

import re
import warnings
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import InvalidAsset, build_definitions, databuild_asset, databuild_multi_asset

COMMENT = {"team": "sales"}


class Files(dg.ConfigurableResource):  # type: ignore[type-arg]
    folder: str


def numbers() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@pytest.mark.parametrize("is_multi", [False, True])
def test_the_step_has_its_tags_hooks_and_resources(instance: dg.DagsterInstance, is_multi: bool) -> None:
    seen: list[str] = []

    @dg.success_hook(name="note")
    def note(context: dg.HookContext) -> None:
        seen.append(context.op.name)

    options = {"op_tags": COMMENT, "required_resource_keys": {"files"}, "hooks": {note}}
    if is_multi:
        outs = {"numbers": dg.AssetSpec("numbers")}
        asset = databuild_multi_asset(outs=outs, name="split", **options)(  # type: ignore[arg-type]
            lambda: {"numbers": numbers()}
        )
    else:
        asset = databuild_asset(**options)(numbers)  # type: ignore[call-overload]

    result = dg.materialize([asset], instance=instance, resources={"files": Files(folder="here")})

    assert result.success
    assert asset.op.tags == COMMENT
    assert "files" in asset.op.required_resource_keys
    assert seen == [asset.op.name]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("retry_polcy", "Asset 'numbers': there is no argument retry_polcy=; did you mean retry_policy=?"),
        ("zzz", "Asset 'numbers': there is no argument zzz=; leave it out."),
        (
            "io_manager_key",
            "Asset 'numbers': io_manager_key= means nothing here; databuild keeps the frame of each build as files of its own; "
            "a plain @asset may read it and store it elsewhere.",
        ),
    ],
)
def test_an_argument_that_means_nothing_gets_a_sentence(given: str, sentence: str) -> None:
    with pytest.raises(InvalidAsset) as caught:
        databuild_asset(**{given: "x"})(numbers)  # type: ignore[call-overload]

    assert str(caught.value) == sentence


def test_a_multi_asset_by_specs_gets_the_form_by_outs() -> None:
    outs = "give outs={'orders': AssetSpec('orders'), …}, and return a dict with a frame for each name"

    with pytest.raises(InvalidAsset, match="specs= means nothing here") as caught:
        databuild_multi_asset(specs=[dg.AssetSpec("orders")])(numbers)
    with pytest.raises(InvalidAsset, match="Multi-asset 'numbers' has no outs"):
        databuild_multi_asset()(numbers)

    assert outs in str(caught.value)


def test_step_retries_of_a_job_over_our_assets_are_warned_of() -> None:
    """Rule 6.8: the orchestrator retries; findings/first-use.md 4."""
    ours = databuild_asset(numbers)

    @dg.asset
    def plain() -> None: ...

    repeated = dg.define_asset_job("repeated", "*", op_retry_policy=dg.RetryPolicy(max_retries=3))
    of_plain = dg.define_asset_job("of_plain", [plain], op_retry_policy=dg.RetryPolicy(max_retries=3))

    with pytest.warns(UserWarning, match="op_retry_policy of job 'repeated' does not repeat numbers: raise Transient"):
        build_definitions([ours, plain], jobs=[repeated, of_plain])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        build_definitions([ours, plain], jobs=[of_plain])


def checked(frame: pd.DataFrame) -> bool:
    return len(frame) > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"deps": "orders"}, "Asset 'numbers' is given 'orders' as deps=; write deps=[…], a list of assets"),
        ({"deps": dg.AssetKey("orders")}, "is given a AssetKey as deps="),
        ({"deps": [checked]}, "is given a list with a function that is no asset as deps="),
        ({"ins": ["orders"]}, "is given a list as ins=; write ins={'orders': AssetIn('orders')}"),
        ({"ins": {"orders": "orders"}}, "is given a dict as ins="),
        ({"partitions_def": "daily"}, "is given 'daily' as partitions_def=; write a definition such as Daily"),
        ({"blocking_checks": checked}, "is given a function as blocking_checks=; write blocking_checks=[…], a list"),
    ],
)
def test_an_option_of_another_kind_is_refused_with_what_to_write(options: Any, sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=re.escape(sentence)):
        databuild_asset(**options)(numbers)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"outs": ["a", "b"]}, "is given a list as outs=; write outs={'orders': AssetSpec('orders'), …}"),
        (
            {"outs": {"a": dg.AssetSpec("a")}, "blocking_checks": [checked]},
            "is given a list as blocking_checks=; write",
        ),
    ],
)
def test_an_option_of_several_outputs_of_another_kind_is_refused(options: Any, sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=re.escape(sentence)):
        databuild_multi_asset(name="both", **options)(numbers)
