"""A check that fails while the table of an asset is behind, executed or reported by a tick (rule 10.10)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import Iceberg, build_table_checks, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME
from databuild_dagster.features.tables.table_publishing import TABLE_CHECK
from databuild_dagster.model.commands import TaintPartitions

LATER_SECONDS = 1_000.0


@databuild_asset(publish=Iceberg(table="shop.sales"))
def sales() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset
def plain() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


def execute(site: Any) -> dict[str, dg.AssetCheckEvaluation]:
    """The checks alone, in a Dagster run, as a person executes them."""
    checks = {dg.AssetCheckKey(dg.AssetKey(asset), TABLE_CHECK) for asset in ("sales", "plain")}
    job = site.repository.get_job(IMPLICIT_ASSET_JOB_NAME)
    job = job.get_subset(asset_selection=frozenset(), asset_check_selection=checks)
    result = job.execute_in_process(instance=site.instance)
    return {check.asset_key.to_user_string(): check for check in result.get_asset_check_evaluations()}


def test_the_check_fails_beyond_its_bound_and_passes_without_a_table(deploy: Any) -> None:
    site = deploy(sales, plain, asset_checks=build_table_checks(assets=[sales, "plain"], max_behind_seconds=900))
    site.build("sales", "plain")
    site.engine.handle(TaintPartitions(refs=("sales",), reason="wrong"))
    young = execute(site)
    clock = site.engine.clock
    site.engine.clock = lambda: clock() + LATER_SECONDS

    old = execute(site)

    assert (young["sales"].passed, old["sales"].passed, old["plain"].passed) == (True, False, True)
    assert old["sales"].severity is dg.AssetCheckSeverity.WARN
    assert old["sales"].metadata["databuild/partitions_behind"].value == 1
    assert str(old["sales"].description).startswith("The table is behind since ")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"assets": []}, "got no assets"), ({"assets": ["sales"], "max_behind_seconds": 0}, "max_behind_seconds is 0")],
)
def test_a_check_without_assets_or_a_bound_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        build_table_checks(**options)
