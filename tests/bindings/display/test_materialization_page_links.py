"""The links from Dagster's pages to the page of an instance (decision 0051)."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.display.materialization import PAGE, page_of
from databuild_dagster.engine.orchestrator_notes import note_pages

ONE, TWO = "2013-01-01", "2013-01-02"


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01"))
def numbers(context: BuildContext) -> pd.DataFrame:
    if context.partition_key == TWO:
        raise ValueError("the till was closed")
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture
def site(deploy: Any) -> Any:
    return deploy(numbers)


def test_a_materialization_and_an_observation_link_to_the_page_of_the_instance(site: Any) -> None:
    note_pages(site.engine, "/team/databuild")

    site.launch(["numbers"], [ONE])
    site.launch(["numbers"], [ONE])

    ref = f"numbers@{ONE}"
    uuid = site.engine.queries.canonical.of([ref])[ref].uuid
    link = f"/team/databuild/partition?ref=numbers%402013-01-01&instance={uuid}"
    (built,) = site.instance.fetch_materializations(dg.AssetKey("numbers"), limit=5).records
    (reused,) = site.instance.fetch_observations(dg.AssetKey("numbers"), limit=5).records
    assert built.asset_materialization.metadata[PAGE] == dg.MetadataValue.url(link)
    assert reused.event_log_entry.asset_observation.metadata[PAGE] == dg.MetadataValue.url(link)


def test_a_link_escapes_what_a_partition_key_may_have() -> None:
    assert page_of("/databuild", "numbers@a&instance=b c", "u") == (
        "/databuild/partition?ref=numbers%40a%26instance%3Db%20c&instance=u"
    )
