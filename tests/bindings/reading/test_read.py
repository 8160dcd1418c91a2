"""`read` and `table` give what readers see, now or then, to any Python (rules 3.2, 4.1, 10.3)."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

import databuild_dagster
from databuild_dagster import EMPTY, BuildContext, PartitionRef, databuild_asset, read, table
from databuild_dagster.bindings.reading.lookups import NothingBuilt
from databuild_dagster.data.home import BadHome
from databuild_dagster.data.read_plan import (
    BeforeAnything,
    DataRemoved,
    InvalidAsOf,
    NothingLive,
    NotLive,
    NotOurs,
    TaintedRef,
)
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.errors import InvalidRef, InvalidRequest, UnknownAsset, UnknownPartition
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.errors import KeyColumnTaken
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import file_paths, read_manifest

from ..conftest import Site
from ..module_site import module_site

of_spark = pytest.mark.long("only Spark makes a frame of Spark")

DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]
daily = dg.DailyPartitionsDefinition(DAYS[0], end_date="2024-02-01")

#: What `orders` answers, by day; a test may change it and build again.
AMOUNTS: dict[str, float] = {}


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    day = context.partition_key
    if AMOUNTS[day] < 0:
        raise ValueError("no such amount")
    return pd.DataFrame({"id": [1, 2], "amount": [AMOUNTS[day], 0.5]})


@databuild_asset
def shops() -> pd.DataFrame:
    return pd.DataFrame({"shop": ["a", "b"]})


@databuild_asset(partitions_def=daily)
def closed(context: BuildContext) -> pd.DataFrame:
    return EMPTY  # type: ignore[return-value]


@databuild_asset(partitions_def=daily)
def own_key(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"Partition_Key": ["mine"]})


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["a b/c=%2F", "süß|*", "*"]))
def odd(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"said": [context.partition_key]})


@dg.asset
def plain() -> int:
    return 1


ASSETS = (orders, shops, closed, own_key, odd, plain)


@pytest.fixture
def site(deploy: Callable[..., Site]) -> Site:
    """Where nothing is built yet."""
    AMOUNTS.update(dict.fromkeys(DAYS, 1.0))
    return deploy(*ASSETS)


@pytest.fixture
def home(site: Site) -> str:
    return site.instance.root_directory


@pytest.fixture(scope="module")
def built_site(spark_home: str) -> Iterator[Site]:
    """Where everything but the orders of the last day is live, which are tainted."""
    AMOUNTS.update(dict.fromkeys(DAYS, 1.0))
    keys = {"closed": DAYS[:1], "own_key": DAYS[:1], "odd": ["a b/c=%2F", "süß|*", "*"]}
    with module_site(spark_home, *ASSETS) as site:
        site.build("shops", "plain", *(f"{asset}@{key}" for asset, found in keys.items() for key in found))
        site.build(*(f"orders@{day}" for day in DAYS))
        taint(site, f"orders@{DAYS[-1]}")
        yield site


@pytest.fixture
def built(built_site: Site) -> str:
    """The home of that."""
    return str(built_site.instance.root_directory)


@pytest.fixture(scope="module")
def spark(spark_home: str) -> Iterator[Any]:
    spark = open_session(SparkSettings(home=spark_home))
    yield spark
    spark.stop()


def taint(site: Site, *refs: str) -> None:
    site.engine.handle(TaintPartitions(refs=refs, reason="the till was broken"))


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.to_dict("records")


# Reading


def test_a_ref_is_read(built: str) -> None:
    expected = [{"id": 1, "amount": 1.0}, {"id": 2, "amount": 0.5}]

    assert rows(read("orders@2024-01-29", format="pandas", home=built)) == expected
    assert rows(read(PartitionRef("orders", "2024-01-29"), format="pandas", home=built)) == expected


def test_a_dataset_is_all_its_live_partitions_with_their_keys(built: str) -> None:
    orders_, shops_ = (table(name, format="pandas", home=built) for name in ("orders", "shops"))

    assert list(orders_.columns) == ["id", "amount", "partition_key"]
    assert sorted(orders_.partition_key) == [DAYS[0], DAYS[0], DAYS[1], DAYS[1]]
    assert rows(shops_) == [{"shop": "a"}, {"shop": "b"}]


def test_keys_of_any_letters_come_as_they_are(built: str) -> None:
    frame = table("odd", format="pandas", home=built)

    assert len(frame) == 3
    assert list(frame.said) == list(frame.partition_key)


READINGS = {
    "a ref": partial(read, PartitionRef("orders", "2024-01-29")),
    "a tainted ref": partial(read, "orders@2024-01-31", allow_tainted=True),
    "a ref without rows": partial(read, "closed@2024-01-29"),
    "a dataset": partial(table, "orders"),
    "a dataset without partitions": partial(table, "shops"),
    "a dataset without rows": partial(table, "closed"),
    "keys of any letters": partial(table, "odd"),
    "another name of the key column": partial(table, "own_key", key_column="day"),
    "no key column": partial(table, "own_key", key_column=None),
}


@of_spark
@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_a_frame_of_spark_has_the_columns_and_rows_of_pandas(built: str, spark: Any, reading: Any) -> None:
    of_pandas = reading(format="pandas", home=built)

    frame = reading(spark=spark, home=built)

    assert frame.columns == list(of_pandas.columns)
    assert sorted(map(tuple, frame.collect())) == sorted(of_pandas.itertuples(index=False, name=None))


@of_spark
def test_a_view_is_there_for_sql_and_a_filter_on_its_key_reads_those_files_alone(
    built: str, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table("orders", view="all_orders", spark=spark, home=built)

    found = frame.sparkSession.sql("SELECT sum(amount) AS total FROM all_orders WHERE partition_key > '2024-01-29'")
    assert found.collect()[0].total == 1.5
    found.explain()
    assert "PartitionFilters: [isnotnull(partition_key" in capsys.readouterr().out


def test_the_key_column_has_another_name_or_is_left_out(built: str) -> None:
    with pytest.raises(KeyColumnTaken, match="key_column="):
        table("own_key", format="pandas", home=built)

    named, without = (table("own_key", key_column=name, format="pandas", home=built) for name in ("day", None))
    assert rows(named) == [{"Partition_Key": "mine", "day": "2024-01-29"}]
    assert rows(without) == [{"Partition_Key": "mine"}]


@pytest.mark.parametrize(("format", "rows"), [("polars", "to_dicts"), ("arrow", "to_pylist")])
def test_polars_and_arrow_have_the_rows_of_pandas(format: Any, rows: str, built: str) -> None:
    of_pandas = read("orders@2024-01-29", format="pandas", home=built).to_dict("records")
    whole = table("orders", format="pandas", home=built).to_dict("records")

    assert getattr(read("orders@2024-01-29", format=format, home=built), rows)() == of_pandas
    assert getattr(table("orders", format=format, home=built), rows)() == whole
    assert len(read("orders@2024-01-29", format=format, where="amount < 0", home=built)) == 0


def test_what_is_empty_on_purpose_reads_as_no_rows(built: str) -> None:
    """Rule 10.3"""
    assert len(read("closed@2024-01-29", format="pandas", home=built)) == 0
    assert table("closed", format="pandas", home=built).columns.tolist() == ["partition_key"]


def test_an_asset_of_the_same_home_can_be_read_by_its_instance(built_site: Site) -> None:
    assert len(read("shops", format="pandas", instance=built_site.instance)) == 2


# Then


def test_a_time_or_a_seq_reads_what_readers_saw_then(site: Site, home: str) -> None:
    """Rule 3.2: though there is another instance by now."""
    site.build("orders@2024-01-29")
    seq = site.engine.queries.events.head().seq
    at = datetime.fromtimestamp(site.engine.queries.events.head().at, UTC)
    AMOUNTS["2024-01-29"] = 7.0
    taint(site, "orders@2024-01-29")
    site.build("orders@2024-01-29", "orders@2024-01-30")

    for as_of in (seq, at, at.astimezone(timezone(timedelta(hours=5))), at.isoformat(), pd.Timestamp(at)):
        assert read("orders@2024-01-29", as_of=as_of, format="pandas", home=home).amount.max() == 1.0
        assert set(table("orders", as_of=as_of, format="pandas", home=home).partition_key) == {"2024-01-29"}
    assert read("orders@2024-01-29", format="pandas", home=home).amount.max() == 7.0


def test_what_was_not_live_then_is_refused_though_it_is_live_now(site: Site, home: str) -> None:
    site.build("shops")
    then = site.engine.queries.events.head().seq
    site.build("orders@2024-01-29")

    with pytest.raises(NotLive, match=rf"orders@2024-01-29 was missing as of seq {then}, .*databuild history"):
        read("orders@2024-01-29", as_of=then, format="pandas", home=home)
    with pytest.raises(NothingLive, match=f"No partition of orders was live as of seq {then}"):
        table("orders", as_of=then, format="pandas", home=home)


@pytest.mark.parametrize(
    ("as_of", "why"),
    [
        (datetime(2024, 1, 1), "does not say in which time zone"),
        ("2024-01-01T00:00:00", "does not say in which time zone"),
        ("2024-01-01", "does not say in which time zone"),
        ("yesterday", "that is no time"),
        (date(2024, 1, 1), "a day is no moment"),
        (True, "neither a time nor a seq"),
        (1.5, "neither a time nor a seq"),
        (datetime(9999, 1, 1, tzinfo=UTC), "in the future"),
        (10**9, "the log ends at seq"),
    ],
    ids=str,
)
def test_what_is_no_moment_of_the_past_is_refused(built: str, as_of: Any, why: str) -> None:
    with pytest.raises(InvalidAsOf, match=why):
        read("shops", as_of=as_of, format="pandas", home=built)


@pytest.mark.parametrize("as_of", [datetime(1999, 1, 1, tzinfo=UTC), 0, -3], ids=str)
def test_before_anything_was_recorded_there_is_nothing_to_read(built: str, as_of: Any) -> None:
    with pytest.raises(BeforeAnything, match="the log begins with seq 1 at 20"):
        read("shops", as_of=as_of, format="pandas", home=built)


# Refusals


def test_a_tainted_ref_is_refused_with_who_said_what_unless_it_is_asked_for(built: str) -> None:
    with pytest.raises(TaintedRef, match=r"tainted since 20.* \(the till was broken\).*allow_tainted=True"):
        read("orders@2024-01-31", format="pandas", home=built)

    assert len(read("orders@2024-01-31", allow_tainted=True, format="pandas", home=built)) == 2


def test_what_failed_and_was_tainted_holds_nothing_even_if_asked_for(site: Site, home: str) -> None:
    AMOUNTS["2024-01-29"] = -1.0
    site.build("orders@2024-01-29")

    with pytest.raises(NotLive, match=r"orders@2024-01-29 is failed since 20.*no such amount.*databuild retry"):
        read("orders@2024-01-29", format="pandas", home=home)

    taint(site, "orders@2024-01-29")
    with pytest.raises(NotLive, match="is tainted since"):
        read("orders@2024-01-29", allow_tainted=True, format="pandas", home=home)


def test_a_missing_ref_differs_from_an_impossible_one(site: Site, home: str) -> None:
    with pytest.raises(NotLive, match=r"orders@2024-01-29 is missing, .*`databuild build orders@2024-01-29`"):
        read("orders@2024-01-29", format="pandas", home=home)
    with pytest.raises(UnknownPartition, match="orders@2024-01-32"):
        read("orders@2024-01-32", format="pandas", home=home)
    with pytest.raises(UnknownPartition, match="a partition key has to follow"):
        read("orders", format="pandas", home=home)


@pytest.mark.parametrize(
    "look_up",
    [
        databuild_dagster.get_canonical_partition,
        databuild_dagster.get_canonical_partition_uuid,
        databuild_dagster.get_latest_partition_status,
        databuild_dagster.get_wants_for_partition,
        databuild_dagster.get_build_request_for_available_partition,
        databuild_dagster.get_active_builds_for_partition,
        lambda ref, home: databuild_dagster.check_build_coordination([ref], home=home),
    ],
)
def test_every_look_up_refuses_a_malformed_ref(built: str, look_up: Any) -> None:
    """Decision 0030"""
    with pytest.raises(InvalidRef):
        look_up("a//b", home=built)


def test_unknown_names_and_bad_words_are_refused_in_one_sentence(built_site: Site, built: str) -> None:
    for reader in (read, table):
        with pytest.raises(UnknownAsset):
            reader("order", format="pandas", home=built)
        with pytest.raises(InvalidRef):
            reader("a//b", format="pandas", home=built)
    with pytest.raises(InvalidRequest, match="names one partition"):
        table("orders@2024-01-29", format="pandas", home=built)
    with pytest.raises(InvalidRequest, match="spark, pandas"):
        read("shops", format="duckdb", home=built)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="only a Spark frame"):
        table("shops", format="pandas", view="shops", home=built)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="no quotes"):
        table("shops", view="my shops", home=built)
    with pytest.raises(InvalidRequest, match="give one of them"):
        read("shops", format="pandas", home=built, instance=built_site.instance)


def test_a_plain_assets_data_is_not_ours_to_read(built_site: Site, built: str) -> None:
    assert built_site.state("plain") is InstanceState.LIVE

    with pytest.raises(NotOurs, match="plain Dagster asset"):
        read("plain", format="pandas", home=built)


def test_data_that_is_gone_is_said_to_be(site: Site, home: str) -> None:
    site.build("shops")
    uuid = site.engine.queries.canonical.of(["shops"])["shops"].uuid
    assert uuid is not None
    warehouse = Warehouse(f"{home}/warehouse")
    manifest = read_manifest(warehouse, "shops", uuid)

    os.unlink(file_paths(warehouse, manifest)[0])
    with pytest.raises(
        DataRemoved, match=f"instance {uuid}, but its data is gone: .* `databuild build --rebuild shops`"
    ):
        read("shops", format="pandas", home=home)

    os.unlink(warehouse.manifest_path("shops", uuid))
    with pytest.raises(DataRemoved, match="there is no .*manifest.json"):
        table("shops", format="pandas", home=home)


# The home


def test_the_home_is_found_from_below_the_project_and_nothing_is_made(
    built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebooks = tmp_path / "project" / "notebooks"
    notebooks.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    monkeypatch.chdir(notebooks)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)

    with pytest.raises(BadHome, match="no Dagster home .*project/.dagster_home"):
        read("shops", format="pandas")
    assert not (tmp_path / "project" / ".dagster_home").exists()

    (tmp_path / "project" / ".dagster_home").mkdir()
    with pytest.raises(NothingBuilt, match="Nothing was ever built in"):
        read("shops", format="pandas")
    assert not any((tmp_path / "project" / ".dagster_home").iterdir())

    (tmp_path / "project" / ".dagster_home").rmdir()
    (tmp_path / "project" / ".dagster_home").symlink_to(built)
    assert len(read("shops", format="pandas")) == 2
    assert "DAGSTER_HOME" not in os.environ

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(BadHome, match="no directory"):
        read("shops", format="pandas")
    assert len(read("shops", format="pandas", home=built)) == 2


@pytest.mark.long("only a new process shows what is imported")
def test_pandas_needs_neither_dagster_nor_a_spark_session(built: str) -> None:
    """And an import of the lookups not even pandas."""
    code = f"""
import sys, databuild_dagster.data.home, databuild_dagster.bindings.reading.lookups
assert not {{"dagster", "pyspark", "pandas"}} & set(sys.modules)
from databuild_dagster import read, table
assert len(read("orders@2024-01-29", format="pandas", home={built!r})) == 2
assert len(table("orders", format="pandas", home={built!r})) == 4
print({{"dagster", "grpc"}} & set(sys.modules) or "neither")
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)

    assert done.stdout.strip() == "neither"
    assert not (Path(built) / "spark").exists()
