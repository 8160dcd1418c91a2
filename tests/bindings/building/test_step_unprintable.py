"""An exception that Python cannot print fails its own partition, at once and with a sentence (rules 6.1, 6.8)."""

from typing import Any

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.model.states import InstanceState
from tests.support.unprintable import ODD

LIVE, FAILED = InstanceState.LIVE, InstanceState.FAILED

GOOD = ["a", "b", "c"]
keys = dg.StaticPartitionsDefinition([*GOOD, *ODD])


def check(site: Any, *bad: str, state: InstanceState = FAILED) -> None:
    """After one attempt, each named partition is in the state, and every other partition is live."""
    assert site.engine.queries.canonical.states(f"odd@{key}" for key in bad) == {f"odd@{key}": state for key in bad}
    assert [site.state(f"odd@{key}") for key in GOOD] == [LIVE] * 3
    assert all(len(site.engine.queries.instances.history(f"odd@{key}")) == 1 for key in (*GOOD, *bad))
    assert sorted(site.materialized("odd")) == GOOD


def build(site: Any, *bad: str) -> None:
    site.build(*(f"odd@{key}" for key in (*GOOD, *bad)))


def test_an_error_that_cannot_be_printed_fails_its_partition_alone(deploy: Any) -> None:
    @databuild_asset(partitions_def=keys)
    def odd(context: BuildContext) -> pd.DataFrame:
        if (error := ODD.get(context.partition_key)) is not None:
            raise error()
        return pd.DataFrame({"x": [1]})

    site = deploy(odd)

    build(site, *ODD)

    check(site, *ODD)


def test_an_error_that_cannot_be_printed_fails_its_key_of_a_batch_alone(deploy: Any) -> None:
    @databuild_asset(partitions_def=keys, batched=True)
    def odd(context: BuildContext) -> pd.DataFrame:
        for key in context.partition_keys:
            if key in ODD:
                raise ODD[key]()
        return pd.DataFrame({"partition_key": list(context.partition_keys), "x": 1})

    site = deploy(odd)

    build(site, "text", "fields")

    check(site, "text", "fields")
