"""Dagster's pages during a step and after it: in progress, green, red, or nothing; and what it says of the data."""

import threading
import time
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from databuild_dagster import BuildContext, DepMiss, databuild_asset
from databuild_dagster.bindings.display import materialization as describing
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.warehouse.layout import Warehouse

daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
DAYS = [f"2013-01-0{day}" for day in range(1, 5)]
ONE, TWO, THREE, FOUR = DAYS
MONTH_SECONDS = 30 * 86_400
#: A twentieth of a second each.
MAX_LOOKS = 600
REFS = [f"numbers@{day}" for day in DAYS]


class Watched:
    """Numbers of days, whose function writes down what Dagster shows while it is called."""

    def __init__(self, *, bad: str = "", misses: str = "") -> None:
        self.bad, self.misses = bad, misses
        self.site: Any = None
        self.seen: dict[str, dict[str, str]] = {}
        #: What the last day waits to see: the step tells of the days before while this one is called.
        self.awaited: dict[str, str] | None = None

        @databuild_asset(partitions_def=daily)
        def numbers(context: BuildContext) -> pd.DataFrame:
            assert context.partition_key is not None
            self.seen[context.partition_key] = self._look(context.partition_key)
            if context.partition_key == self.misses:
                raise DepMiss("elsewhere@x")
            if context.partition_key == self.bad:
                raise ValueError("a bad day")
            return pd.DataFrame({"day": [context.partition_key], "note": ["a|b\nc ![](x)"]})

        self.asset = numbers

    def _look(self, key: str) -> dict[str, str]:
        pause = threading.Event()
        for _ in range(MAX_LOOKS):
            colours: dict[str, str] = self.site.colours("numbers")
            if key != FOUR or self.awaited in (None, colours):
                break
            pause.wait(0.05)
        return colours


@pytest.fixture
def deploy_watched(deploy: Any) -> Any:
    def deploy_(watched: Watched) -> Any:
        elsewhere = dg.AssetSpec("elsewhere", partitions_def=dg.StaticPartitionsDefinition(["x"]))
        watched.site = deploy(watched.asset, elsewhere, threads=1)
        return watched.site

    return deploy_


def test_partitions_are_in_progress_until_each_is_live_failed_or_waits(deploy_watched: Any) -> None:
    """Rule 6.1: one Dagster run, whose partitions succeed, miss and fail independently."""
    watched = Watched(bad=THREE, misses=TWO)
    watched.awaited = {ONE: "green", THREE: "in progress", FOUR: "in progress"}
    site = deploy_watched(watched)

    site.build(*REFS)

    assert list(watched.seen) == DAYS
    assert watched.seen[ONE] == dict.fromkeys(DAYS, "in progress")
    assert watched.seen[FOUR] == watched.awaited
    assert site.colours("numbers") == {ONE: "green", THREE: "red", FOUR: "green"}


def test_a_persons_run_shows_live_partitions_green_and_the_rest_in_progress(deploy_watched: Any) -> None:
    watched = Watched()
    site = deploy_watched(watched)
    site.build(REFS[1])
    watched.seen.clear()

    site.launch(["numbers"], DAYS)

    assert watched.seen[ONE] == {TWO: "green", ONE: "in progress", THREE: "in progress", FOUR: "in progress"}
    assert site.colours("numbers") == dict.fromkeys(DAYS, "green")


def test_a_reused_partition_is_linked_to_the_run_that_built_it(deploy_watched: Any) -> None:
    site = deploy_watched(Watched())
    site.build(REFS[0])
    (builder,) = site.runs

    delegated = site.launch(["numbers"], [ONE])

    (record,) = site.instance.all_logs(delegated.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
    observed = record.dagster_event.asset_observation_data.asset_observation
    assert observed.metadata["databuild/served_by"] == dg.MetadataValue.dagster_run(builder.run_id)
    assert observed.metadata["databuild/instance"].value == site.engine.queries.canonical.of(REFS[:1])[REFS[0]].uuid
    assert site.instance.get_run_by_id(delegated.run_id).tags["databuild/delegated"] == "true"


def test_a_materialization_says_what_was_written_for_whom_and_shows_some_of_it(deploy: Any) -> None:
    watched = Watched()
    site = watched.site = deploy(watched.asset, sample_rows=5)

    site.build(REFS[0])

    metadata = _materializations(site, "numbers")[0].metadata
    canonical = site.engine.queries.canonical.of(REFS[:1])[REFS[0]]
    (want,) = site.engine.queries.wants.newest()
    assert metadata["dagster/row_count"].value == 1
    assert metadata["databuild/files"].value == 1
    assert metadata["databuild/bytes"].value == canonical.bytes
    assert metadata["databuild/instance"].value == canonical.uuid
    assert metadata["databuild/job_run"].value == canonical.job_run
    assert metadata["databuild/wants"].value == [want.id]
    manifest = Warehouse(warehouse_of(site.instance)).manifest_path("numbers", canonical.uuid)
    assert metadata["databuild/manifest"] == dg.MetadataValue.path(manifest)
    assert metadata["databuild/seconds"].value > 0
    assert [column.name for column in metadata["dagster/column_schema"].schema.columns] == ["day", "note"]
    assert metadata["databuild/sample"].value.splitlines() == [
        "| day | note |",
        "| --- | --- |",
        r"| 2013-01-01 | a\|b c \!\[\](x) |",
    ]


def test_of_a_large_launch_some_partitions_and_the_last_one_show_columns_and_rows(
    deploy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describing, "MAX_DETAILED", 3)

    @databuild_asset(partitions_def=daily, batched=True)
    def many(context: BuildContext) -> pd.DataFrame:
        return pd.DataFrame({"partition_key": list(context.partition_keys), "n": 1})

    site = deploy(many, sample_rows=5)
    keys = daily.get_partition_keys()[:8]

    site.build(*(f"many@{key}" for key in keys))

    newest, *others = _materializations(site, "many")
    assert len(others) == len(keys) - 1
    assert {"dagster/column_schema", "databuild/sample"} <= newest.metadata.keys()
    assert sum("dagster/column_schema" in event.metadata for event in others) == 3
    assert all(event.metadata["dagster/row_count"].value == 1 for event in others)


def test_dagster_keeps_no_rows_unless_a_deployment_asks_for_a_sample(deploy_watched: Any) -> None:
    """Rule 3.9: Dagster's event log outlives `taint`, `gc` and `clean`."""
    site = deploy_watched(Watched())

    site.build(REFS[0])

    assert "databuild/sample" not in _materializations(site, "numbers")[0].metadata


@databuild_asset(partitions_def=daily, name="numbers")
def days(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


def test_an_instance_of_an_older_input_is_stale_until_it_is_rebuilt(deploy: Any) -> None:
    @databuild_asset
    def shops() -> pd.DataFrame:
        return pd.DataFrame({"shop": ["here"]})

    @databuild_asset(partitions_def=daily)
    def report(numbers: pd.DataFrame, shops: pd.DataFrame) -> pd.DataFrame:
        return numbers

    site = deploy(days, shops, report)
    site.build(f"report@{ONE}", f"report@{TWO}")
    assert (_stale(site, "report", ONE), _stale(site, "report", TWO)) == ("FRESH", "FRESH")

    site.launch(["numbers"], [ONE], tags={"databuild/rebuild": "true"})
    assert (_stale(site, "report", ONE), _stale(site, "report", TWO)) == ("STALE", "FRESH")

    site.launch(["report"], [ONE], tags={"databuild/rebuild": "true"})
    assert (_stale(site, "report", ONE), _stale(site, "report", TWO)) == ("FRESH", "FRESH")

    site.launch(["shops"], tags={"databuild/rebuild": "true"})
    assert (_stale(site, "report", ONE), _stale(site, "report", TWO)) == ("STALE", "STALE")


def test_an_instance_of_a_plain_asset_is_stale_once_that_is_materialized_again(deploy: Any) -> None:
    @dg.asset
    def rates() -> pd.DataFrame:
        return pd.DataFrame({"rate": [2.0]})

    @databuild_asset
    def prices(rates: pd.DataFrame) -> pd.DataFrame:
        return rates

    site = deploy(rates, prices)
    site.build("prices")
    assert _stale(site, "prices") == "FRESH"

    site.launch(["rates"])
    assert _stale(site, "prices") == "STALE"


def test_telling_dagster_once_more_of_the_same_instance_makes_nothing_stale(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily)
    def report(numbers: pd.DataFrame) -> pd.DataFrame:
        return numbers

    site = deploy(days, report)
    site.build(f"report@{ONE}")

    # A backfill gets a materialization of what was live already.
    site.launch(["numbers"], [ONE], tags={"dagster/backfill": "some"})

    assert len(_materializations(site, "numbers")) == 2
    assert _stale(site, "report", ONE) == "FRESH"


def test_a_taint_that_the_runs_own_person_answers_leaves_the_partition_in_progress(deploy_watched: Any) -> None:
    """Painted by a tick between the making of the run and its beginning."""
    watched = Watched()
    site = deploy_watched(watched)
    site.build(REFS[0])
    # So long afterwards that no want brings the rebuild.
    site.engine.clock = lambda: time.time() + MONTH_SECONDS
    site.engine.handle(TaintPartitions(refs=(REFS[0],), reason="wrong"))
    site.build()
    assert site.colours("numbers") == {ONE: "red"}

    site.launch(["numbers"], [ONE])

    assert watched.seen[ONE] == {ONE: "in progress"}
    assert site.colours("numbers") == {ONE: "green"}


def _materializations(site: Any, asset: str) -> list[Any]:
    records = site.instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
    return [record.asset_materialization for record in records]


def _stale(site: Any, asset: str, partition_key: str | None = None) -> str:
    context = LoadingContextForTest(site.instance)
    resolver = CachingStaleStatusResolver(site.instance, site.repository.asset_graph, context)
    return str(resolver.get_status(dg.AssetKey(asset), partition_key).value)
