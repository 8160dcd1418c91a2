"""A lot in parts: each call gets its part, a failing one fails alone, and the retry calls for it alone (rule 10.4)."""

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyspark.sql.functions as F
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import (
    EMPTY,
    BuildContext,
    ByFile,
    ByKey,
    DepMiss,
    InvalidAsset,
    Transient,
    databuild_asset,
    databuild_boundary,
    table,
)
from databuild_dagster import databuild_multi_asset as multi_asset
from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.data.lost_run_output import WarehouseRemains, attempts_before
from databuild_dagster.data.ownership import take_over
from databuild_dagster.engine import launch_heartbeat as heartbeat
from databuild_dagster.features.lots.arrivals.arrival import Arriver
from databuild_dagster.model.commands import CancelJobRuns, TaintPartitions
from databuild_dagster.model.states import InstanceState
from databuild_dagster.spark.server import server_statuses
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, read_manifest
from tests.bindings.conftest import deployed
from tests.bindings.module_site import module_site
from tests.support.cluster import wait_until
from tests.support.dagster_files import fresh_instance
from tests.support.endless import ENDLESS
from tests.support.spark_ui import nothing_runs

LIVE, FAILED, WAITING = InstanceState.LIVE, InstanceState.FAILED, InstanceState.UPSTREAM_BUILDING
RETRY = InstanceState.UP_FOR_RETRY
daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAY = "2013-01-01"
REF, LOT = f"doubled@{DAY}", "20130101P1D000"


#: A home in which no Spark server can start.
NO_SPARK = "/dev/null"
SPARK = "only Spark splits, reads and writes its frames"

#: Four files of ten rows each.
numbers = databuild_boundary("numbers", partitions_def=daily)


@databuild_asset
def factor() -> pd.DataFrame:
    return pd.DataFrame({"factor": [10]})


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The home of a deployment where the inputs are live."""
    landing = tmp_path_factory.mktemp("landing")
    for number in range(4):
        n = range(number * 10, number * 10 + 10)
        pd.DataFrame({"n": n, "k": [f"k{each % 3}" for each in n]}).to_parquet(landing / f"{number}.parquet")
    with module_site(NO_SPARK, numbers, factor) as site:
        site.build("factor")
        dataset = site.engine.queries.datasets.known("numbers")
        arriver = Arriver(site.engine, site.instance, dataset, Warehouse(warehouse_of(site.instance)))
        arriver.arrive(DAY, [str(landing)])
        yield site.instance.root_directory


@pytest.fixture
def instance(given: str) -> Iterator[dg.DagsterInstance]:
    """A copy, which owns the warehouses that it builds into (rule 3.11)."""
    with fresh_instance(given) as instance:
        take_over(engine_for(instance).store, ())
        yield instance


@pytest.fixture
def deploy(instance: dg.DagsterInstance) -> Any:
    """Deploy assets that need no Spark."""
    return partial(deployed, instance, NO_SPARK)


@pytest.fixture
def deploy_with_spark(instance: dg.DagsterInstance, spark_home: str) -> Any:
    return partial(deployed, instance, spark_home)


class Calls:
    """What a function was called with, and which of its calls are to fail."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.bad: set[Any] = set()
        self.error: Callable[[Any], BaseException] = lambda key: ValueError(f"{key} is bad")
        self._lock = threading.Lock()

    def __call__(self, *rows: Any) -> None:
        with self._lock:
            self.seen.append(rows)
        if found := self.bad & set(rows):
            raise self.error(found.pop())

    def taken(self) -> list[tuple[Any, ...]]:
        """The calls since the last time."""
        seen, self.seen = sorted(self.seen), []
        return seen


@pytest.fixture
def calls() -> Calls:
    return Calls()


def by_file(calls: Calls, *, split: Any = None, **options: Any) -> Any:
    """Ten times the numbers, a file of them in each part unless `split` says otherwise."""

    @databuild_asset(partitions_def=daily, parts=split or ByFile("numbers", parts=4), **{"code_version": "1"} | options)
    def doubled(numbers: pd.DataFrame, factor: pd.DataFrame) -> pd.DataFrame:
        calls(*sorted(set(numbers.n // 10)))
        return pd.DataFrame({"n": numbers.n * int(factor.factor[0]), "k": numbers.k})

    return doubled


def manifest_of(site: Any, uuid: str, asset: str = "doubled") -> Manifest:
    return read_manifest(Warehouse(warehouse_of(site.instance)), asset, uuid)


def folder_of(site: Any, uuid: str, asset: str = "doubled") -> Path:
    return Path(Warehouse(warehouse_of(site.instance)).instance_dir(asset, uuid))


def uuids(site: Any, ref: str) -> list[str]:
    return [instance.uuid for instance in site.engine.queries.instances.history(ref)]


def fail(site: Any, calls: Calls, *bad: int, ref: str = REF) -> None:
    """A first attempt, in which parts fail; the calls of the next one are good."""
    calls.bad = set(bad)
    site.build(ref)
    calls.bad = set()


def build_again(site: Any, ref: str = REF) -> None:
    site.engine.handle(TaintPartitions(refs=(ref,), reason="mended"))
    site.build(ref)


def unlisted(site: Any, uuid: str) -> set[str]:
    """Files in an instance's folder that its manifest does not name."""
    manifest = manifest_of(site, uuid)
    named = {"manifest.json", *manifest.children, *(file.uri for file in manifest.files)}
    return {path.name for path in folder_of(site, uuid).iterdir()} ^ named


# Splitting


@pytest.mark.long(SPARK)
def test_by_file_every_part_gets_some_of_the_files_and_other_inputs_whole(deploy_with_spark: Any, calls: Calls) -> None:
    @databuild_asset(partitions_def=daily)
    def built(spark: SparkSession) -> DataFrame:
        return spark.range(40, numPartitions=4).selectExpr("id as n")

    @databuild_asset(partitions_def=daily, parts=ByFile("built", parts=2))
    def doubled(built: DataFrame, factor: pd.DataFrame) -> DataFrame:
        calls(*sorted(row.n // 10 for row in built.filter("n % 10 = 0").collect()))
        return built.select((F.col("n") * int(factor.factor[0])).alias("n"))

    site = deploy_with_spark(numbers, factor, built, doubled)

    site.build(REF)

    called = calls.taken()
    assert [len(part) for part in called] == [2, 2]
    assert sorted(n for part in called for n in part) == list(range(4))
    assert sorted(row["n"] for row in site.rows(REF)) == list(range(0, 400, 10))
    uuid = uuids(site, REF)[-1]
    manifest = manifest_of(site, uuid)
    assert manifest.state is ManifestState.COMPLETE
    assert manifest.children == tuple(f"manifest.part-000{number}.json" for number in range(2))
    assert unlisted(site, uuid) == set()
    event = site.instance.get_latest_materialization_event(dg.AssetKey("doubled"))
    assert event.asset_materialization.metadata["databuild/parts"].value == 2
    assert event.asset_materialization.metadata["databuild/parts_reused"].value == 0


def test_with_fewer_files_there_are_fewer_parts(deploy: Any, calls: Calls) -> None:
    site = deploy(numbers, factor, by_file(calls, split=ByFile("numbers", parts=100, at_once=3)))

    site.build(REF)

    assert calls.taken() == [(n,) for n in range(4)]


@pytest.mark.long(SPARK)
def test_by_key_every_part_has_one_value_null_among_them(deploy_with_spark: Any, calls: Calls) -> None:
    @databuild_asset(partitions_def=daily)
    def flights(spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([("EWR", 1), ("JFK", 2), (None, 3), ("JFK", 4)], "origin string, n int")

    @databuild_asset(partitions_def=daily, parts=ByKey("flights", "origin"))
    def counted(flights: DataFrame) -> DataFrame:
        rows = flights.collect()
        calls(*sorted(row.n for row in rows))
        return flights.groupBy("origin").count()

    site = deploy_with_spark(numbers, flights, counted)

    site.build(f"counted@{DAY}")

    assert calls.taken() == [(1,), (2, 4), (3,)]
    assert sorted((row["origin"] or "", row["count"]) for row in site.rows(f"counted@{DAY}")) == [
        ("", 1),
        ("EWR", 1),
        ("JFK", 2),
    ]


def test_by_key_of_a_pandas_frame_without_spark_and_by_the_values_given(deploy: Any, calls: Calls) -> None:
    @databuild_asset(partitions_def=daily)
    def flights() -> pd.DataFrame:
        return pd.DataFrame({"origin": ["EWR", "JFK", None, "JFK"], "n": [1, 2, 3, 4]})

    @databuild_asset(partitions_def=daily, parts=ByKey("flights", "origin"))
    def counted(flights: pd.DataFrame) -> pd.DataFrame:
        calls(*flights.n)
        return flights

    @databuild_asset(partitions_def=daily, parts=ByKey("flights", "origin", ["JFK", "LGA"]))
    def chosen(flights: pd.DataFrame) -> pd.DataFrame:
        calls(*flights.n)
        return flights if len(flights) else EMPTY  # type: ignore[return-value]

    site = deploy(numbers, flights, counted, chosen)

    site.build(f"counted@{DAY}")
    assert calls.taken() == [(1,), (2, 4), (3,)]

    site.build(f"chosen@{DAY}")
    assert calls.taken() == [(), (2, 4)]
    assert [row["n"] for row in site.rows(f"chosen@{DAY}")] == [2, 4]


def test_by_key_a_plain_asset_can_be_split_too(deploy: Any, calls: Calls) -> None:
    @dg.asset(partitions_def=daily)
    def plain() -> pd.DataFrame:
        return pd.DataFrame({"n": [1, 2, 2]})

    @databuild_asset(partitions_def=daily, parts=ByKey("plain", "n"))
    def counted(plain: pd.DataFrame) -> pd.DataFrame:
        calls(*plain.n)
        return plain

    site = deploy(numbers, plain, counted)
    site.launch(["plain"], [DAY])

    site.build(f"counted@{DAY}")

    assert calls.taken() == [(1,), (2, 2)]
    assert [row["n"] for row in site.rows(f"counted@{DAY}")] == [1, 2, 2]


@pytest.mark.long(SPARK)
def test_a_lot_whose_parts_are_all_empty_is_empty_and_so_is_one_of_an_empty_input(
    deploy_with_spark: Any, calls: Calls
) -> None:
    @databuild_asset(partitions_def=daily)
    def nothing(numbers: pd.DataFrame) -> pd.DataFrame:
        return numbers[numbers.n < 0]

    @databuild_asset(partitions_def=daily, parts=ByFile("numbers", parts=2))
    def none_of_it(numbers: pd.DataFrame) -> pd.DataFrame:
        return EMPTY  # type: ignore[return-value]

    @databuild_asset(partitions_def=daily, parts=ByFile("nothing", parts=2))
    def by_no_file(nothing: DataFrame) -> DataFrame:
        calls(nothing.count())
        return nothing

    @databuild_asset(partitions_def=daily, parts=ByKey("nothing", "k"))
    def by_no_key(nothing: DataFrame) -> DataFrame:
        calls(nothing.count())
        return nothing

    site = deploy_with_spark(numbers, nothing, none_of_it, by_no_file, by_no_key)
    assets = ("none_of_it", "by_no_file", "by_no_key")

    site.build(*(f"{asset}@{DAY}" for asset in assets))

    for asset in assets:
        uuid = uuids(site, f"{asset}@{DAY}")[-1]
        assert site.state(f"{asset}@{DAY}") is LIVE
        assert manifest_of(site, uuid, asset).state is ManifestState.EMPTY
    assert calls.taken() == [(0,), (0,)]


@pytest.mark.long("parts share one session of Spark")
def test_parts_run_at_the_same_time_in_one_spark_session_and_no_more_than_are_said(deploy_with_spark: Any) -> None:
    together = threading.Barrier(2, timeout=240)
    sessions = set()
    running, counting = Counter[str](), threading.Lock()
    most = []

    @databuild_asset(partitions_def=daily, parts=ByFile("numbers", parts=4, at_once=2))
    def met(numbers: pd.DataFrame, spark: SparkSession) -> pd.DataFrame:
        with counting:
            running["now"] += 1
        together.wait()  # Broken, unless two of them meet here.
        most.append(running["now"])
        sessions.add(spark.session_id)  # type: ignore[attr-defined]
        together.wait()
        with counting:
            running["now"] -= 1
        return numbers

    site = deploy_with_spark(numbers, met)

    site.build(f"met@{DAY}")

    assert site.state(f"met@{DAY}") is LIVE
    assert max(most) == 2
    assert len(sessions) == 1


def test_a_blocking_check_sees_the_whole_lot(deploy: Any, calls: Calls) -> None:
    seen = []

    def all_there(rows: pd.DataFrame) -> bool:
        seen.append(len(rows))
        return seen[-1] < 40

    site = deploy(numbers, factor, by_file(calls, blocking_checks=[all_there]))

    site.build(REF)
    build_again(site)

    assert seen == [40, 40]
    assert site.state(REF) is FAILED
    assert len(calls.taken()) == 8, "what was good part by part and failed as a whole is not used again"


# Failing


def test_a_failing_part_fails_the_lot_and_the_retry_calls_for_it_alone(deploy: Any, calls: Calls) -> None:
    site = deploy(numbers, factor, by_file(calls))

    fail(site, calls, 3)

    (failed,) = uuids(site, REF)
    assert site.state(REF) is FAILED
    assert "1 of 4 parts failed: " in site.failure()
    assert "First: ValueError: 3 is bad" in site.failure()
    assert calls.taken() == [(n,) for n in range(4)]
    partial = manifest_of(site, failed)
    assert (partial.state, len(partial.files), len(partial.children)) == (ManifestState.PARTIAL, 3, 3)
    of_parts = [json.loads((folder_of(site, failed) / child).read_text()) for child in partial.children]
    assert {partial.lot_id, *(part["lot_id"] for part in of_parts)} == {LOT}, "each can be read alone"
    assert "1 of 4 parts failed" in partial.comment
    assert unlisted(site, failed) == set()

    build_again(site)

    assert calls.taken() == [(3,)]
    assert site.state(REF) is LIVE
    assert sorted(row["n"] for row in site.rows(REF)) == list(range(0, 400, 10))
    live = uuids(site, REF)[-1]
    final = manifest_of(site, live)
    assert (final.state, len(final.children)) == (ManifestState.COMPLETE, 4)
    assert {file.uri for file in partial.files} < {file.uri for file in final.files}
    assert unlisted(site, live) == set()
    assert not folder_of(site, failed).exists(), "no file of a failed attempt remains"
    assert Warehouse(warehouse_of(site.instance)).staging_dirs() == {}
    event = site.instance.get_latest_materialization_event(dg.AssetKey("doubled"))
    assert event.asset_materialization.metadata["databuild/parts_reused"].value == 3


def test_what_was_kept_twice_is_there_once(deploy: Any, calls: Calls) -> None:
    site = deploy(numbers, factor, by_file(calls))
    fail(site, calls, 1, 3)
    calls.taken()

    calls.bad = {3}
    build_again(site)

    assert calls.taken() == [(1,), (3,)]
    first, second = uuids(site, REF)
    assert not folder_of(site, first).exists()
    assert len(manifest_of(site, second).children) == 3

    calls.bad = set()
    build_again(site)

    assert calls.taken() == [(3,)]
    assert sorted(row["n"] for row in site.rows(REF)) == list(range(0, 400, 10))
    assert not folder_of(site, second).exists()


def test_what_may_pass_is_tried_again_by_itself_part_by_part(deploy: Any, calls: Calls) -> None:
    calls.error = lambda key: Transient("the service is down")
    site = deploy(numbers, factor, by_file(calls))
    fail(site, calls, 3)
    assert site.state(REF) is RETRY
    calls.taken()

    now = site.engine.clock() + timedelta(days=1).total_seconds()
    site.engine.clock = lambda: now
    site.build()

    assert calls.taken() == [(3,)]
    assert site.state(REF) is LIVE


@pytest.mark.parametrize("changed", [{"code_version": "2"}, {"split": ByFile("numbers", parts=3)}, {}], ids=str)
def test_new_code_another_split_or_input_has_every_part_called_for(deploy: Any, calls: Calls, changed: Any) -> None:
    before = {"split": ByFile("numbers", parts=4), "code_version": "1"}
    site = deploy(numbers, factor, by_file(calls, **before))
    fail(site, calls, 3)
    calls.taken()

    if not changed:
        build_again(site, "factor")
    again = deploy(numbers, factor, by_file(calls, **{**before, **changed}))
    build_again(again)

    assert sorted(n for part in calls.taken() for n in part) == list(range(4))
    assert again.state(REF) is LIVE
    assert not folder_of(again, uuids(again, REF)[0]).exists()


@pytest.mark.long("a read at run time is a frame of Spark")
def test_what_a_part_read_at_run_time_must_be_the_same_too(deploy_with_spark: Any, calls: Calls) -> None:
    ref = f"joined@{DAY}"

    @databuild_asset(partitions_def=daily, parts=ByFile("numbers", parts=4), code_version="1")
    def joined(numbers: pd.DataFrame, context: BuildContext) -> pd.DataFrame:
        factors = context.read("factor").collect()
        calls(numbers.n[0] // 10)
        return pd.DataFrame({"n": numbers.n * factors[0].factor})

    site = deploy_with_spark(numbers, factor, joined)
    fail(site, calls, 3, ref=ref)
    calls.taken()
    calls.bad = {3}
    build_again(site, ref)
    assert calls.taken() == [(3,)], "nothing has changed"

    calls.bad = set()
    build_again(site, "factor")
    build_again(site, ref)

    assert len(calls.taken()) == 4
    (used,) = [instance for instance in site.engine.queries.instances.history(ref) if instance.state is LIVE]
    assert uuids(site, "factor")[-1] in used.inputs


def test_a_part_that_misses_something_holds_up_the_lot_and_the_others_are_kept(deploy: Any, calls: Calls) -> None:
    calls.bad, calls.error = {3}, lambda key: DepMiss("more")

    @databuild_asset
    def more() -> pd.DataFrame:
        calls.bad = set()
        return pd.DataFrame({"n": [1]})

    site = deploy(numbers, factor, more, by_file(calls))

    site.build(REF)

    assert site.state(REF) is LIVE
    assert Counter(calls.taken()) == {**{(n,): 1 for n in range(4)}, (3,): 2}


def test_a_failure_weighs_more_than_a_miss(deploy: Any, calls: Calls) -> None:
    calls.bad = {2, 3}
    calls.error = lambda key: DepMiss("numbers@2013-01-02") if key == 2 else ValueError("three is bad")
    site = deploy(numbers, factor, by_file(calls))

    site.build(REF)

    assert site.state(REF) is FAILED
    assert len(manifest_of(site, uuids(site, REF)[0]).children) == 2


def test_parts_with_different_columns_are_an_error_that_says_which(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily, parts=ByKey("numbers", "k"))
    def mixed(numbers: pd.DataFrame) -> pd.DataFrame:
        is_odd_one = numbers.k.iloc[0] == "k1"
        return numbers[["n"]].astype(str) if is_odd_one else numbers[["n"]]

    site = deploy(numbers, mixed)

    site.build(f"mixed@{DAY}")

    assert site.state(f"mixed@{DAY}") is FAILED
    assert "does not go together with the others: its column 'n' is " in site.failure()
    assert "return the same columns for every part" in site.failure()


def test_parts_without_a_value_and_with_decimals_of_other_widths_are_one_lot(deploy: Any) -> None:
    values = {"EWR": (None, Decimal("9.9"), 1.5), "JFK": ("a", Decimal("12.25"), None)}

    @databuild_asset(partitions_def=daily)
    def flights() -> pd.DataFrame:
        return pd.DataFrame({"origin": list(values)})

    @databuild_asset(partitions_def=daily, parts=ByKey("flights", "origin"))
    def priced(flights: pd.DataFrame) -> pd.DataFrame:
        note, price, fee = values[flights.origin.iloc[0]]
        return pd.DataFrame({"origin": flights.origin, "note": [note], "price": [price], "fee": [fee]})

    site = deploy(numbers, flights, priced)

    site.build(f"priced@{DAY}")

    frame = table("priced", format="arrow", instance=site.instance)
    found = {row["origin"]: (row["note"], row["price"], row["fee"]) for row in frame.to_pylist()}
    assert found == values
    assert [str(frame.schema.field(name).type) for name in ("note", "price", "fee")] == [
        "string",
        "decimal128(4, 2)",
        "double",
    ]


def test_when_every_part_fails_nothing_is_left(deploy: Any, calls: Calls) -> None:
    site = deploy(numbers, factor, by_file(calls))

    fail(site, calls, *range(4))

    assert site.state(REF) is FAILED
    assert not folder_of(site, uuids(site, REF)[0]).exists()


def test_a_lot_that_is_ended_from_outside_leaves_nothing(deploy: Any, calls: Calls) -> None:
    halfway = threading.Event()
    site = deploy(numbers, factor, by_file(calls, split=ByFile("numbers", parts=4, at_once=1)))

    def cancel(key: Any) -> BaseException:
        (run,) = [run for run in site.engine.queries.job_runs.newest(open_only=True) if REF in run.refs]
        site.engine.handle(CancelJobRuns(job_run_ids=(run.id,), reason="enough", keep_wants=False))
        halfway.set()
        return Transient("over")

    calls.error = cancel
    fail(site, calls, 3)

    assert halfway.is_set()
    assert not any(folder_of(site, uuid).exists() for uuid in uuids(site, REF))


@pytest.mark.long("only Spark says what runs in it")
def test_ended_from_outside_the_spark_work_of_every_part_stops(
    deploy_with_spark: Any, spark_home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an operation that Spark has just begun: it would never free the cores."""
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 0.2)
    ref = f"endless@{DAY}"
    numbers_of_parts = itertools.count(1)
    begun: list[int] = []
    tags: list[str] = []

    @databuild_asset(partitions_def=daily, parts=ByKey("numbers", "k", at_once=2))
    def endless(numbers: DataFrame) -> DataFrame:
        number = next(numbers_of_parts)
        begun.append(number)
        if number == 2:
            (running,) = [run for run in site.engine.queries.job_runs.newest(open_only=True) if ref in run.refs]
            tags.append(running.id)
            site.engine.handle(CancelJobRuns(job_run_ids=(running.id,), reason="enough"))
        return numbers.sparkSession.sql(ENDLESS)

    site = deploy_with_spark(numbers, endless)

    site.build(ref)

    assert site.state(ref) is RETRY
    assert sorted(begun) == [1, 2]
    assert site.runs[-1].tags[OUTCOME_TAG] == "stopped"
    (server,) = server_statuses(spark_home)
    assert server.ui_url is not None
    url = server.ui_url
    wait_until(lambda: nothing_runs(url, tags[0]), "the Spark UI says that nothing of the job run runs", 120)


def test_the_end_of_a_retry_is_finished_by_others_if_its_process_dies(
    deploy: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the event and the removal of what the failed attempt had kept."""
    from databuild_dagster.bindings.building.call import Leftovers
    from databuild_dagster.data import lost_run_output as remains

    site = deploy(numbers, factor, by_file(calls))
    fail(site, calls, 3)
    with monkeypatch.context() as patched:
        patched.setattr(Leftovers, "settle", lambda self, run: None)
        build_again(site)
    failed, live = uuids(site, REF)
    warehouse = warehouse_of(site.instance)
    assert folder_of(site, failed).exists()
    assert len(Warehouse(warehouse).staging_dirs()) == 1
    monkeypatch.setattr(remains, "surely_gone", lambda holder: True)

    WarehouseRemains(site.engine, warehouse).clear()

    assert attempts_before(site.engine.queries, REF, live) == [failed]
    assert not folder_of(site, failed).exists()
    assert folder_of(site, live).exists()
    assert Warehouse(warehouse).staging_dirs() == {}
    assert len(site.rows(REF)) == 40


def test_in_a_bucket_kept_parts_are_copied_and_then_removed(deploy: Any, calls: Calls, s3: Any, bucket: str) -> None:
    site = deploy(numbers, factor, by_file(calls), warehouse=f"s3://{bucket}/warehouse")
    fail(site, calls, 3)
    calls.taken()

    build_again(site)

    assert len(calls.taken()) == 1
    assert sorted(row["n"] for row in site.rows(REF)) == list(range(0, 400, 10))
    failed, live = uuids(site, REF)
    assert [key for key in s3.keys(bucket) if failed in key] == []
    assert len([key for key in s3.keys(bucket) if live in key and key.endswith(".json")]) == 5


# Declaring


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (ByFile("flights", parts=0), "parts in parts= of asset 'counted' is 0; give a whole number from 1 to 1,000."),
        (ByFile("flights", parts=1001), "is 1001; give a whole number"),
        (ByFile("flights", parts=2.5), "is 2.5; give a whole number"),  # type: ignore[arg-type]
        (ByFile("flights", parts=True), "is True; give a whole number"),
        (ByFile("flights", parts=2, at_once=0), "at_once in parts= of asset 'counted' is 0"),
        (ByFile("planes", parts=2), "names 'planes', which is not a DataFrame parameter of it"),
        (ByFile("spark", parts=2), "names 'spark', which is not a DataFrame parameter of it"),
        (ByKey("planes", "k"), "names 'planes', which is not a DataFrame parameter of it"),
        (ByKey("flights", ""), "splits by ''; name a column of 'flights'"),
        (ByKey("flights", "k", []), r"gives the values \[\]; list at least one"),
        (ByKey("flights", "k", "EWR"), "gives the values 'EWR'; list at least one"),
        (ByKey("flights", "k", ["EWR", "EWR"]), "gives the value 'EWR' twice"),
        (ByKey("flights", "k", [0, 0]), "gives the value 0 twice"),
        (ByKey("flights", "k", [1, "1"]), "gives values of several types"),
        (ByKey("flights", "k", [1.5]), "gives the value 1.5: floats are not keys of parts"),
        (ByKey("flights", "k", [datetime(2024, 1, 1, tzinfo=UTC)]), "datetimes are not keys of parts"),
        (ByKey("flights", "k", range(1001)), "gives 1,001 values; there may be 1,000 parts"),
        (8, "is 8; give ByFile"),
    ],
    ids=str,
)
def test_a_split_that_cannot_work_is_refused_at_import(parts: Any, why: str) -> None:
    with pytest.raises(InvalidAsset, match=why):

        @databuild_asset(partitions_def=daily, parts=parts)
        def counted(flights: DataFrame, spark: SparkSession) -> DataFrame:
            return flights


def test_parts_of_what_has_no_calls_of_its_own_are_refused_at_import() -> None:
    with pytest.raises(TypeError, match="parts"):
        databuild_boundary("raw", partitions_def=daily, parts=ByFile("flights", parts=2))  # type: ignore[call-arg]

    with pytest.raises(InvalidAsset, match="batched=True, which takes many together; leave one of them out"):

        @databuild_asset(partitions_def=daily, batched=True, parts=ByFile("flights", parts=2))
        def counted(flights: DataFrame) -> DataFrame:
            return flights

    parts = ByFile("flights", parts=2)
    for of_several in (parts, {"a": parts}):
        with pytest.raises(InvalidAsset, match="which only an asset alone may have"):

            @multi_asset(outs={"a": dg.AssetSpec("a")}, parts=of_several)  # type: ignore[arg-type]
            def several(flights: DataFrame) -> dict[str, DataFrame]:
                return {"a": flights}


WRONG_SPLITS = {
    "no_column": (ByKey("many", "x"), "cannot be split by 'x': it has no such column"),
    "a_float": (ByKey("many", "half"), "cannot be split by 'half': floats are not keys of parts"),
    "many_values": (ByKey("many", "n"), "has more than 1,000 values of 'n'"),
    "a_plain_asset": (ByFile("plain", parts=2), "plain is a plain Dagster asset, whose files only Dagster knows"),
}


@pytest.mark.parametrize(
    ("deploying", "frame"),
    [("deploy", pd.DataFrame), pytest.param("deploy_with_spark", DataFrame, marks=pytest.mark.long(SPARK))],
    ids=["pandas", "spark"],
)
def test_a_split_that_turns_out_not_to_work_fails_with_what_to_do(
    request: pytest.FixtureRequest, deploying: str, frame: Any
) -> None:
    deploy = request.getfixturevalue(deploying)

    @databuild_asset
    def many() -> pd.DataFrame:
        return pd.DataFrame({"n": range(1001), "half": 0.5})

    @dg.asset
    def plain() -> pd.DataFrame:
        return pd.DataFrame({"n": [1]})

    def split(name: str, parts: Any) -> Any:
        @databuild_asset(name=name, parts=parts)
        def split(many: frame, plain: pd.DataFrame) -> frame:
            raise AssertionError("never called")

        return split

    site = deploy(numbers, many, plain, *(split(name, parts) for name, (parts, _) in WRONG_SPLITS.items()))

    site.build(*WRONG_SPLITS)

    for name, found in site.engine.queries.canonical.of(WRONG_SPLITS).items():
        assert found.state is FAILED
        assert WRONG_SPLITS[name][1] in str(found.reason)


def test_an_asset_in_parts_that_is_called_is_its_plain_function(calls: Calls) -> None:
    @databuild_asset(parts=ByFile("flights", parts=2))
    def counted(flights: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(flights)]})

    assert counted(pd.DataFrame({"k": [1, 2, 3]})).n.tolist() == [3]
