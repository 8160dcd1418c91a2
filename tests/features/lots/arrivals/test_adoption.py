"""What exists already becomes live where it lies, or is refused and nothing is recorded (rule 4.2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pandas as pd
import pytest

from databuild_dagster import databuild_asset, databuild_boundary
from databuild_dagster.features.lots.arrivals.adoption import Adopter, Adoption, BadFilePattern, IfLive
from databuild_dagster.features.lots.arrivals.recording import (
    CannotRead,
    ColumnsDiffer,
    ListedTwice,
    LiveAlready,
    NoFiles,
    NotAdoptable,
    OwnFiles,
    SaidToBeWrong,
)
from databuild_dagster.model.commands import SucceedJobRuns
from databuild_dagster.model.datasets import TableFormat, TableSpec
from databuild_dagster.model.errors import BeingBuilt, DatabuildError
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.errors import SchemasDiffer
from tests.features.lots.arrivals.outside_files import OutsideFiles
from tests.support.object_store import S3Server

DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]
FIRST, SECOND, THIRD = (f"orders@{day}" for day in DAYS)
PATTERN = "day={partition_key}/*.parquet"

daily = dg.DailyPartitionsDefinition(DAYS[0], end_date="2024-03-01")
hourly = dg.HourlyPartitionsDefinition("2024-01-29-00:00", end_date="2024-01-29-03:00")
by_region = dg.MultiPartitionsDefinition({"day": daily, "region": dg.StaticPartitionsDefinition(["eu", "u/s"])})


@databuild_asset(partitions_def=daily)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"n": [0.0]})


@databuild_asset(partitions_def=by_region)
def sales() -> pd.DataFrame:
    return pd.DataFrame({"n": [0.0]})


@databuild_asset(partitions_def=hourly)
def clicks() -> pd.DataFrame:
    return pd.DataFrame({"n": [0.0]})


@databuild_asset(
    partitions_def=dg.HourlyPartitionsDefinition(
        "2024-10-27-00:00", end_date="2024-10-28-00:00", timezone="Europe/Berlin"
    )
)
def steps() -> pd.DataFrame:
    return pd.DataFrame({"n": [0.0]})


@databuild_asset
def airlines() -> pd.DataFrame:
    return pd.DataFrame({"n": [0.0]})


@dg.asset
def plain() -> None: ...


class Outside(OutsideFiles):
    """Files that `orders`, or another asset, may adopt."""

    def day(self, day: str, *numbers: float, name: str = "a.parquet", **columns: object) -> str:
        return self.write(f"day={day}/{name}", *numbers, **columns)

    def adopt(self, *partitions: str, asset: str = "orders", files: str = PATTERN, **options: Any) -> Adoption:
        adopter = Adopter(self.engine, self.instance, self.datasets[asset], self.warehouse)
        pattern = files if "://" in files else f"{self.folder}/{files}"
        return adopter.adopt(pattern, partitions, **options)

    def refused(self, kind: type[DatabuildError], *partitions: str, **options: Any) -> DatabuildError:
        return self.refusal(kind, self.adopt, *partitions, **options)


@pytest.fixture
def outside(instance: dg.DagsterInstance, tmp_path: Path) -> Iterator[Outside]:
    landed = databuild_boundary("landed", partitions_def=daily)
    assets = (orders, sales, clicks, steps, airlines, plain, landed, dg.AssetSpec("declared"))
    outside = Outside(instance, tmp_path, *assets)
    yield outside
    assert outside.check() == []


def recorded(adoption: Adoption) -> list[str]:
    return [outside.ref for outside in adoption.recorded]


# Partitions


def test_partitions_that_have_files_are_live_by_one_event(outside):
    outside.day(DAYS[0], 1.0, 2.0)
    outside.day(DAYS[1], 3.0)
    outside.day(DAYS[1], 4.0, name="b.parquet")

    adoption = outside.adopt()

    assert outside.arrived() == [[FIRST, SECOND]]
    assert [(found.ref, len(found.files), found.rows) for found in adoption.recorded] == [(FIRST, 1, 2), (SECOND, 2, 2)]
    assert (len(adoption.without_files), adoption.without_files[0]) == (30, THIRD)
    assert (outside.numbers(FIRST), outside.numbers(SECOND)) == ([1.0, 2.0], [3.0, 4.0])


def test_dagster_shows_it_materialized_with_the_instance_as_data_version(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()

    (record,) = outside.instance.fetch_materializations(dg.AssetKey("orders"), limit=5).records

    assert record.partition_key == DAYS[0]
    assert record.asset_materialization.tags["dagster/data_version"] == outside.uuid(FIRST)


def test_a_named_partition_without_files_is_refused(outside):
    outside.day(DAYS[0], 1.0)

    refused = outside.refused(NoFiles, *DAYS)

    pattern = f"{outside.folder}/day={DAYS[1]}/*.parquet"
    assert refused.message == f"No files for {SECOND}, {THIRD}: none match {pattern}."


@pytest.mark.parametrize(
    ("asset", "files", "kind", "why"),
    [
        ("orders", "*.parquet", BadFilePattern, "all partitions would have the same files"),
        ("orders", "{day}.parquet", BadFilePattern, "{day} is neither {partition_key} nor one of its dimensions"),
        ("orders", "{partition_key", BadFilePattern, "expected '}' before end of string"),
        ("orders", "{partition_key!r}", BadFilePattern, "!r means nothing here"),
        ("airlines", "{partition_key}", BadFilePattern, "the asset has no partitions"),
        (
            "sales",
            "{day}/*.parquet",
            BadFilePattern,
            "{region} is not in it. Write it as in --files '/data/flights/day=",
        ),
        ("sales", "{day}/{region:%Y}/*.parquet", BadFilePattern, "only partitions in time have a date"),
        ("plain", "*", NotAdoptable, "plain is a plain Dagster asset"),
        ("declared", "*", NotAdoptable, "declared is declared, and built elsewhere"),
        ("landed", "*", NotAdoptable, "Existing files arrive like new ones: `databuild lot arrive DATASET LOT URI…`."),
        ("orders", "nope://bucket/{partition_key}", DatabuildError, "nope"),
        ("orders", "{partition_key}", NoFiles, f"No files for {FIRST}, {SECOND}, {THIRD} and 29 more: none match "),
    ],
)
def test_a_pattern_or_asset_that_means_nothing_is_refused(outside, asset, files, kind, why):
    assert why in str(outside.refused(kind, asset=asset, files=files))


def test_dimensions_and_keys_stand_for_themselves(outside):
    outside.write("eu/2024-01-29/a.parquet", 1.0)
    outside.write("u/s/2024-01-29/a.parquet", 2.0)

    outside.adopt(asset="sales", files="{region}/{day}/*.parquet")

    assert outside.arrived() == [["sales@2024-01-29|eu", "sales@2024-01-29|u/s"]]
    assert outside.numbers("sales@2024-01-29|u/s") == [2.0]


@pytest.mark.parametrize(
    ("path", "asset", "files", "ref"),
    [
        ("2024/01/29/a.parquet", "orders", "{partition_key:%Y/%m/%d}", FIRST),
        # Spark spells out the colon of an hour in the name of a folder.
        ("hour=2024-01-29-01%3A00/a.parquet", "clicks", "hour={partition_key}", "clicks@2024-01-29-01:00"),
    ],
    ids=["folders of year and month", "Hive's spelling"],
)
def test_a_key_is_found_in_the_spellings_of_other_programs(outside, path, asset, files, ref):
    outside.write(path, 1.0)

    outside.adopt(asset=asset, files=files)

    assert outside.arrived() == [[ref]]


def test_an_asset_without_partitions_takes_all_that_matches_and_no_hidden_files(outside):
    for number, path in enumerate(("air/a.parquet", "air/b.parquet", "air/_temporary/c.parquet")):
        outside.write(path, float(number))
    for name in ("_SUCCESS", ".a.parquet.crc"):
        (outside.folder / "air" / name).touch()

    outside.adopt(asset="airlines", files=f"file://{outside.folder}/air/*")

    assert outside.numbers("airlines") == [0.0, 1.0]


# What is live, wrong, or being built


def test_live_with_other_data_is_refused_until_the_user_says_which_counts(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()
    outside.day(DAYS[0], 2.0, name="late.parquet")
    outside.day(DAYS[1], 5.0)

    refused = outside.refused(LiveAlready)
    kept = outside.adopt(if_live=IfLive.KEEP)
    replaced = outside.adopt(if_live=IfLive.REPLACE)

    assert refused.message == f"{FIRST} is live already with other data."
    assert (kept.kept, recorded(kept)) == ([FIRST], [SECOND])
    assert recorded(replaced) == [FIRST]
    assert (outside.numbers(FIRST), outside.n_instances(FIRST)) == ([1.0, 2.0], 2)


def test_a_partition_built_here_is_replaced_and_adopted_again(outside):
    outside.day(DAYS[0], 7.0)
    outside.adopt()
    outside.taint(FIRST)
    dg.materialize([orders], instance=outside.instance, partition_key=DAYS[0])
    assert outside.numbers(FIRST) == [0.0]

    outside.adopt(if_live=IfLive.REPLACE)

    assert (outside.numbers(FIRST), outside.n_instances(FIRST)) == ([7.0], 3)


def test_files_that_were_said_to_be_wrong_are_not_adopted_again_until_they_change(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()
    outside.taint(FIRST)

    refused = outside.refused(SaidToBeWrong)
    outside.day(DAYS[0], 2.0)
    outside.adopt()

    assert refused.message == f"{FIRST} was adopted from these files, and tainted since."
    assert outside.state(FIRST) is InstanceState.LIVE


def test_a_partition_that_is_being_built_is_refused_naming_the_job_run(outside):
    """Rule 4.4"""
    outside.day(DAYS[0], 1.0)
    job_run = outside.job_run(FIRST)

    refused = outside.refused(BeingBuilt, dry_run=True)

    assert (refused.facts["ref"], refused.facts["job_run"]) == (FIRST, job_run)


def test_a_plain_asset_that_was_live_is_adopted_once_it_is_ours(outside):
    """Its instance names Dagster's event, and no files of ours."""
    output = OutputFact(ref="plain", origin="an event of Dagster")
    outside.handle(SucceedJobRuns(runs=(RunSuccess(outside.job_run("plain"), (output,)),)))

    @databuild_asset(name="plain")
    def ours() -> pd.DataFrame:
        return pd.DataFrame({"n": [0.0]})

    outside.deploy(ours)
    outside.write("plain.parquet", 4.0)

    outside.adopt(asset="plain", files="plain.parquet")

    assert outside.numbers("plain") == [4.0]


# Files


def test_times_of_nanoseconds_cannot_be_read(outside):
    outside.day(DAYS[0], 1.0, at=pd.to_datetime([DAYS[0]]).as_unit("ns"))

    refused = outside.refused(CannotRead)

    assert refused.facts["why"].startswith("Column 'at' is timestamp[ns]")


def test_columns_that_differ_among_partitions_are_refused_unless_allowed(outside):
    outside.day(DAYS[0], 1.0, note=["x"])
    other = outside.day(DAYS[1], 1.0)

    refused = outside.refused(ColumnsDiffer)
    outside.adopt(allow_schema_change=True)

    assert refused.message == f"{other}, for {SECOND}, does not fit: it has no column 'note', unlike {FIRST}."
    assert outside.arrived() == [[FIRST, SECOND]]


def test_types_that_cannot_be_read_together_are_refused_all_the_same(outside):
    outside.day(DAYS[0], 1.0, note=["x"])
    outside.day(DAYS[1], 1.0, note=[1])

    refused = outside.refused(SchemasDiffer, allow_schema_change=True)

    assert refused.facts["column"] == "note"


def test_columns_that_differ_within_a_partition_are_refused(outside):
    first = outside.day(DAYS[0], 1.0)
    second = outside.day(DAYS[0], 1.0, name="b.parquet", note=["x"])

    refused = outside.refused(ColumnsDiffer, allow_schema_change=True)

    assert (refused.facts["path"], refused.facts["ref"], refused.facts["other"]) == (second, FIRST, first)
    assert refused.facts["why"].startswith("it has more, or wider, columns")


def test_a_file_that_two_partitions_would_have_is_refused(outside):
    path = outside.write("orders.parquet", 1.0)

    refused = outside.refused(ListedTwice, files="{partition_key:o}rders.parquet")

    assert refused.message == f"{path} would belong to {FIRST} and to {SECOND}."


def test_a_file_of_an_hour_that_the_clocks_show_twice_is_not_guessed(outside):
    first, second = "steps@2024-10-27-02:00", "steps@2024-10-27-02:00+0100"
    path = outside.write("2024-10-27-02.parquet", 1.0)
    outside.write("2024-10-27-03.parquet", 1.0)
    outside.write("2024-10-27-02+0100.parquet", 1.0)
    by_hour = "{partition_key:%Y-%m-%d-%H}.parquet"

    for one, other in ((first, second), (second, first)):
        refused = outside.refused(ListedTwice, one.partition("@")[2], asset="steps", files=by_hour)
        assert refused.facts == {"path": path, "one": one, "other": other}

    assert recorded(outside.adopt("2024-10-27-03:00", asset="steps", files=by_hour)) == ["steps@2024-10-27-03:00"]
    with_offset = by_hour.replace("%H", "%H%z")
    assert recorded(outside.adopt("2024-10-27-02:00+0100", asset="steps", files=with_offset)) == [second]


def test_files_of_our_own_warehouse_are_refused(outside):
    outside.folder = Path(outside.warehouse.root)
    path = outside.write("airlines/data/a/part-0.parquet", 1.0)

    refused = outside.refused(OwnFiles, asset="airlines", files="airlines/data/*/*.parquet")

    assert refused.message == f"{path} lies in the warehouse {outside.warehouse.root}, whose files are databuild's own."


@pytest.mark.parametrize("name", ["a#b.parquet", "a?b.parquet", "a\tb.parquet"])
def test_a_name_that_readers_of_an_iceberg_table_do_not_open_is_refused(outside, name):
    path = outside.day(DAYS[0], 1.0, name=name)
    orders_as_table = msgspec.structs.replace(outside.datasets["orders"], table=TableSpec(format=TableFormat.ICEBERG))
    adopter = Adopter(outside.engine, outside.instance, orders_as_table, outside.warehouse)

    refused = outside.refusal(CannotRead, adopter.adopt, f"{outside.folder}/{PATTERN}")

    assert refused.facts["path"] == path
    assert refused.facts["why"] == "readers of its Iceberg table open no name with #, ? or a control character"
    outside.adopt()
    assert outside.numbers(FIRST) == [1.0]


@pytest.mark.parametrize("name", ["a\tb.parquet", "x//a.parquet", "./a.parquet"])
def test_an_object_that_not_each_spark_opens_is_refused(outside, s3: S3Server, bucket: str, name):
    path = outside.day(DAYS[0], 1.0)
    s3.client().upload_file(path, bucket, f"landing/{name}")
    recorder = Adopter(outside.engine, outside.instance, outside.datasets["orders"], outside.warehouse)
    url = f"s3://{bucket}/landing/{name}"

    with pytest.raises(CannotRead, match="Sail opens no object") as refused:
        recorder.described({FIRST: [(url, os.path.getsize(path))]}, lambda ref, files: "origin")

    assert refused.value.facts["path"] == url


def test_files_without_rows_are_empty_and_have_their_columns(outside):
    """Rule 10.3"""
    outside.day(DAYS[0])

    outside.adopt()

    assert outside.state(FIRST) is InstanceState.LIVE
    assert outside.numbers(FIRST) == []
