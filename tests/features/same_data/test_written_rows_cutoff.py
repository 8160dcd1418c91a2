"""A year in which one day is built again with equal rows: nothing downstream is built, by any door (rule 4.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import DATA_VERSION_TAG
from databuild_dagster.engine.why.history import history_of
from databuild_dagster.model import events as e
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.states import InstanceState
from tests.bindings.conftest import Site

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-12-31")
DAY = "2024-03-05"
DAYS = daily.get_partition_keys()
#: What a shop sold on DAY.
SOLD = {"shop": 1}


@databuild_asset(partitions_def=daily, batched=True, same_data="keep")
def orders(context: BuildContext) -> pd.DataFrame:
    sold = [SOLD["shop"] if key == DAY else 1 for key in context.partition_keys]
    return pd.DataFrame({"partition_key": context.partition_keys, "sold": sold})


@databuild_asset(partitions_def=daily, batched=True, subscribe="orders", follow_late=True)
def sums(context: BuildContext, orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["partition_key", "sold"]]


@databuild_asset(partitions_def=daily, batched=True, subscribe="sums", follow_late=True)
def report(context: BuildContext, sums: pd.DataFrame) -> pd.DataFrame:
    return sums[["partition_key", "sold"]]


REFS = [f"{asset}@{day}" for asset in ("orders", "sums", "report") for day in DAYS]


@pytest.fixture
def site(deploy: Any) -> Iterator[Site]:
    site: Site = deploy(orders, sums, report)
    site.build(*REFS)
    assert set(site.engine.queries.canonical.states(REFS).values()) == {InstanceState.LIVE}
    yield site
    SOLD["shop"] = 1


def rebuild(site: Site, sold: int) -> int:
    """Build DAY of `orders` again; the seq before."""
    SOLD["shop"] = sold
    seq = site.engine.queries.events.head().seq
    site.engine.handle(TaintPartitions(refs=(f"orders@{DAY}",), reason="again"))
    site.build(f"orders@{DAY}")
    return seq


def built_since(site: Site, seq: int) -> list[str]:
    facts = [event.fact for event in site.engine.queries.events.named(("JobRunSucceeded",), seq, 1 << 40)]
    return [o.ref for fact in facts if isinstance(fact, e.JobRunSucceeded) for run in fact.runs for o in run.outputs]


def data_version(site: Site, asset: str) -> str:
    records = site.instance.fetch_materializations(
        dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[DAY]), limit=1
    ).records
    materialization = records[0].asset_materialization
    assert materialization is not None
    return (materialization.tags or {})[DATA_VERSION_TAG]


def test_no_door_builds_what_was_built_from_equal_rows(site: Site) -> None:
    version = data_version(site, "orders")

    seq = rebuild(site, 1)
    site.build()
    site.build(*REFS)
    site.launch(["orders", "sums", "report"], [DAY])

    assert built_since(site, seq) == [f"orders@{DAY}"]
    uuids = [known.uuid or "" for known in site.engine.queries.canonical.of(REFS).values()]
    assert site.engine.queries.instances.stale(uuids) == set()
    assert site.engine.queries.instances.live_from_earlier([f"orders@{DAY}"]) == []
    assert data_version(site, "orders") == version
    first, second = history_of(site.engine.queries, f"orders@{DAY}")
    assert (second.why, version) == (f"it has the rows of {first.uuid}", first.uuid)

    seq = rebuild(site, 2)
    site.build()

    assert built_since(site, seq) == [f"{asset}@{DAY}" for asset in ("orders", "sums", "report")], "other rows"
