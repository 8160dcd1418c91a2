"""An asset has the signature, the docstring and the types of its function, for editors, type checkers and people."""

import inspect
from typing import assert_type

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import databuild_asset, databuild_multi_asset
from databuild_dagster.bindings.authoring.decorator import DatabuildAsset


@databuild_asset
def doubled(orders: pd.DataFrame) -> pd.DataFrame:
    """Twice of each amount."""
    return orders.assign(amount=orders.amount * 2)


@databuild_asset(group_name="shop")
def grouped(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


@pytest.mark.parametrize("asset", [doubled, grouped], ids=["without options", "with options"])
def test_an_asset_shows_the_signature_of_its_function(asset: DatabuildAsset[[pd.DataFrame], pd.DataFrame]) -> None:
    assert str(inspect.signature(asset)) == "(orders: pandas.core.frame.DataFrame) -> pandas.core.frame.DataFrame"
    assert (asset.__module__, asset.__name__) == (__name__, asset.key.path[-1])
    assert repr(asset) == f"<DatabuildAsset {asset.__name__}>"


def test_an_asset_has_the_docstring_of_its_function() -> None:
    assert doubled.__doc__ == "Twice of each amount."


def test_a_type_checker_knows_what_a_call_of_an_asset_takes_and_returns() -> None:
    orders = pd.DataFrame({"amount": [1.0]})

    assert_type(doubled(orders), pd.DataFrame)
    assert_type(grouped(orders), pd.DataFrame)
    with pytest.raises(AttributeError):
        doubled(1)
    with pytest.raises(TypeError):
        doubled()  # type: ignore[call-arg]


def test_a_type_checker_knows_the_dict_of_a_multi_asset() -> None:
    @databuild_multi_asset(outs={"low": dg.AssetSpec("low")})
    def split(orders: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {"low": orders}

    assert_type(split(pd.DataFrame()), dict[str, pd.DataFrame])
