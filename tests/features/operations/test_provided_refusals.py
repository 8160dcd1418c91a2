"""What `validate`, `build_index` and `compact` refuse before anything is started, without Spark (rule 9.3)."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import databuild_asset
from databuild_dagster.constraints import BadConstraint
from databuild_dagster.data.read_plan import NothingLive, NotOurs
from databuild_dagster.features.operations.spark.indexing import CannotIndex
from databuild_dagster.model.errors import DatabuildError, InvalidRequest
from tests.bindings.conftest import Site
from tests.bindings.module_site import module_site

from .running import Running


@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"n": [1, 2]})


@dg.asset
def plain() -> int:
    """Its data is in a place of its own."""
    return 1


@pytest.fixture(scope="module")
def site(spark_home: str) -> Iterator[Site]:
    with module_site(spark_home, orders, plain) as site:
        site.build("orders", "plain")
        yield site


@pytest.mark.parametrize(
    ("type_name", "dataset", "arg", "error", "why"),
    [
        ("validate", "orders", {"constraints": [{"rule": "range", "column": "n"}]}, BadConstraint, "n"),
        ("validate", "orders", {"constraints": []}, InvalidRequest, "there is nothing to check"),
        ("validate", "plain", {"constraints": [{"rule": "not_null", "column": "n"}]}, NothingLive, "plain"),
        ("build_index", "orders", {"columns": ["missing"]}, CannotIndex, "missing"),
        ("build_index", "plain", {}, NothingLive, "plain"),
        ("compact", "orders", {"target_bytes": 0}, InvalidRequest, "at least one byte"),
        ("compact", "orders", {"target_bytes": 10**50}, InvalidRequest, "target_bytes is a number of 51 digits"),
        ("compact", "plain", {}, NotOurs, "plain"),
    ],
)
def test_an_impossible_operation_is_refused_and_not_started(
    site: Site, type_name: str, dataset: str, arg: Any, error: type[DatabuildError], why: str
) -> None:
    seq = site.engine.queries.events.head().seq

    with pytest.raises(error) as caught:
        Running(site, type_name, arg, dataset)

    assert why in caught.value.message
    assert len(caught.value.message.splitlines()) == 1
    assert site.engine.queries.events.head().seq == seq
