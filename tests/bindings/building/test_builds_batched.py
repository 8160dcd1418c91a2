"""A batched asset: called once for all partitions of a launch, written by one Spark job, split into instances."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pandas as pd
import pyspark.sql.functions as F
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import EMPTY, BuildContext, DatabuildSpark, DepMiss, Transient, databuild_asset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest
from tests.support.cluster import wait_until
from tests.support.spark_servers import server_status
from tests.support.spark_ui import spark_jobs

LIVE, FAILED = InstanceState.LIVE, InstanceState.FAILED

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
weekly = dg.WeeklyPartitionsDefinition(start_date="2013-01-06", end_date="2013-12-29")
colours = dg.StaticPartitionsDefinition(["blue", "red/dark", "yellow=1 %41"])
of_colour_and_day = dg.MultiPartitionsDefinition(
    {"colour": dg.StaticPartitionsDefinition(["blue", "red"]), "day": daily}
)
people = dg.DynamicPartitionsDefinition(name="people")
day_before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
DAYS = [f"2013-01-{day:02}" for day in range(1, 32)]
WEEK = DAYS[:7]
#: No test needs more.
MAX_RETRIES = 5


@databuild_asset(partitions_def=daily, batched=True)
def numbers(context: BuildContext) -> pd.DataFrame:
    """Frames of pandas: a test whose subject is not Spark never opens a session."""
    keys = list(context.partition_keys)
    return pd.DataFrame({"partition_key": keys, "day": keys, "n": [int(key[-2:]) for key in keys]}).astype(
        {"n": "int32"}
    )


@databuild_asset(partitions_def=daily, batched=True)
def doubled(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("partition_key", "day", "n * 2 as n")


def refs(asset: str, keys: list[str]) -> list[str]:
    return [f"{asset}@{key}" for key in keys]


def launches_of(site: Any, asset: str) -> set[str]:
    """Those that became a process: a dep miss that the orchestrator saw itself is none."""
    runs = site.engine.queries.job_runs.newest(most=1000)
    return {run.launch_id for run in runs if run.job == asset and run.started_at is not None}


@pytest.mark.long("only Spark reads and splits a frame of Spark")
def test_a_week_of_days_is_one_launch_and_each_day_has_its_rows_and_inputs(deploy: Any) -> None:
    site = deploy(numbers, doubled)

    site.build(*refs("doubled", WEEK))

    assert [site.rows(f"doubled@{day}") for day in WEEK] == [[{"day": d, "n": 2 * int(d[-2:])}] for d in WEEK]
    assert len(launches_of(site, "doubled")) == len(launches_of(site, "numbers")) == 1
    assert site.materialized("doubled") == WEEK
    sources = site.engine.queries.canonical.of(refs("numbers", WEEK))
    inputs = [site.engine.queries.instances.history(f"doubled@{day}")[-1].inputs for day in WEEK]
    assert inputs == [(sources[f"numbers@{day}"].uuid,) for day in WEEK]
    assert os.listdir(Path(Warehouse(warehouse_of(site.instance)).root, ".staging")) == []


def test_an_asset_that_builds_on_its_own_yesterday_is_not_broken_by_a_batch(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily, batched=True, ins={"running": dg.AssetIn(partition_mapping=day_before)})
    def running(numbers: pd.DataFrame, running: pd.DataFrame) -> pd.DataFrame:
        if "n" not in running.columns:
            return numbers[["partition_key", "n"]]
        both = numbers.merge(running, "left", "partition_key", suffixes=("", "_before"))
        return both.assign(n=both.n + both.n_before.fillna(0).astype("int32"))[["partition_key", "n"]]

    site = deploy(numbers, running)

    site.build(*refs("running", DAYS[:3]))

    assert [site.rows(f"running@{day}")[0]["n"] for day in DAYS[:3]] == [1, 3, 6]


@pytest.mark.long("only Spark reads and splits a frame of Spark")
def test_an_input_that_does_not_follow_the_key_comes_without_keys(deploy: Any) -> None:
    """In a batch of any size, as a frame of Spark or of pandas."""

    def named(asset: str, partitions: Any) -> Any:
        @databuild_asset(name=asset, partitions_def=partitions)
        def names(context: BuildContext) -> pd.DataFrame:
            return pd.DataFrame({"name": [context.partition_key if context.has_partition_key else "only"]})

        return names

    ins = {
        "every": dg.AssetIn(partition_mapping=dg.AllPartitionMapping()),
        "last": dg.AssetIn(partition_mapping=dg.LastPartitionMapping()),
        "some": dg.AssetIn(partition_mapping=dg.SpecificPartitionsPartitionMapping(["blue", "red/dark"])),
    }

    @databuild_asset(partitions_def=daily, batched=True, ins=ins)
    def met(
        numbers: pd.DataFrame, whole: DataFrame, every: DataFrame, last: pd.DataFrame, some: pd.DataFrame
    ) -> pd.DataFrame:
        frames = (whole.toPandas(), every.toPandas(), last, some)
        assert [list(frame.columns) for frame in frames] == [["name"]] * 4
        names = [", ".join(sorted(frame.name)) for frame in frames]
        return numbers[["partition_key"]].assign(names="; ".join(names))

    site = deploy(numbers, named("whole", None), *(named(asset, colours) for asset in ins), met)

    site.build("met@2013-01-01")
    site.build("met@2013-01-02", "met@2013-01-03")

    expected = "only; blue, red/dark, yellow=1 %41; yellow=1 %41; blue, red/dark"
    assert [site.rows(f"met@{day}") for day in DAYS[:3]] == [[{"names": expected}]] * 3


@pytest.mark.parametrize(
    ("upstream", "downstream", "mapping", "expected"),
    [
        (
            daily,
            weekly,
            None,
            {"2013-01-06": DAYS[5:12], "2013-01-13": DAYS[12:19]},
        ),
        (
            colours,
            dg.StaticPartitionsDefinition(["warm", "cold"]),
            dg.StaticPartitionMapping({"blue": "cold", "red/dark": "warm", "yellow=1 %41": {"warm", "cold"}}),
            {"warm": ["red/dark", "yellow=1 %41"], "cold": ["blue", "yellow=1 %41"]},
        ),
        (
            daily,
            of_colour_and_day,
            dg.MultiToSingleDimensionPartitionMapping("day"),
            {"blue|2013-01-01": ["2013-01-01"], "red|2013-01-02": ["2013-01-02"]},
        ),
        (
            of_colour_and_day,
            of_colour_and_day,
            dg.MultiPartitionMapping(
                {
                    "colour": dg.DimensionPartitionMapping("colour", dg.IdentityPartitionMapping()),
                    "day": dg.DimensionPartitionMapping("day", day_before),
                }
            ),
            {
                "blue|2013-01-02": ["blue|2013-01-01"],
                "blue|2013-01-03": ["blue|2013-01-02"],
                "red|2013-01-03": ["red|2013-01-02"],
            },
        ),
        (
            people,
            people,
            None,
            {"Ann é|x": ["Ann é|x"], "Bob": ["Bob"]},
        ),
    ],
    ids=["days of weeks", "static", "one of two dimensions", "each of two dimensions", "dynamic"],
)
def test_a_mapping_sends_the_rows_of_each_input_to_its_outputs(
    deploy: Any, instance: dg.DagsterInstance, upstream: Any, downstream: Any, mapping: Any, expected: Any
) -> None:
    @databuild_asset(partitions_def=upstream, batched=True)
    def source(context: BuildContext) -> pd.DataFrame:
        keys = list(context.partition_keys)
        return pd.DataFrame({"partition_key": keys, "of": keys})

    @databuild_asset(partitions_def=downstream, batched=True, ins={"source": dg.AssetIn(partition_mapping=mapping)})
    def mapped(source: pd.DataFrame) -> pd.DataFrame:
        return source

    instance.add_dynamic_partitions("people", ["Ann é|x", "Bob"])
    site = deploy(source, mapped)

    site.build(*refs("mapped", list(expected)))

    assert {key: sorted(row["of"] for row in site.rows(f"mapped@{key}")) for key in expected} == expected


def test_a_plain_asset_as_input_carries_the_key_of_the_day_that_reads_it(deploy: Any) -> None:
    """The first day has no day before it."""

    @dg.asset(partitions_def=daily)
    def plain(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return pd.DataFrame({"n": [int(context.partition_key[-2:])]})

    @databuild_asset(partitions_def=daily, batched=True)
    def tripled(plain: pd.DataFrame) -> pd.DataFrame:
        return plain.assign(n=plain.n * 3)

    @databuild_asset(partitions_def=daily, batched=True, ins={"plain": dg.AssetIn(partition_mapping=day_before)})
    def of_yesterday(plain: pd.DataFrame) -> pd.DataFrame:
        return plain

    site = deploy(plain, tripled, of_yesterday)

    site.build(*refs("tripled", DAYS[:2]), *refs("of_yesterday", DAYS[:2]))

    assert [site.rows(f"tripled@{day}") for day in DAYS[:2]] == [[{"n": 3}], [{"n": 6}]]
    assert [site.rows(f"of_yesterday@{day}") for day in DAYS[:2]] == [[], [{"n": 1}]]


@pytest.mark.parametrize(
    ("frame", "odd_rows"),
    [
        pytest.param(
            DataFrame,
            lambda numbers: numbers.filter("n % 2 = 1"),
            marks=pytest.mark.long("only Spark writes a frame of Spark by keys"),
            id="Spark",
        ),
        pytest.param(pd.DataFrame, lambda numbers: numbers[numbers.n % 2 == 1], id="pandas"),
    ],
)
def test_a_key_without_rows_is_live_and_empty_with_the_columns_of_the_others(
    deploy: Any, frame: type, odd_rows: Callable[[Any], Any]
) -> None:
    def odd(numbers: Any) -> Any:
        assert list(numbers.columns) == ["day", "n", "partition_key"]
        return odd_rows(numbers)

    odd.__annotations__ = {"numbers": frame, "return": frame}
    site = deploy(numbers, databuild_asset(partitions_def=daily, batched=True)(odd))

    site.build(*refs("odd", DAYS[:3]))

    assert [len(site.rows(ref)) for ref in refs("odd", DAYS[:3])] == [1, 0, 1]
    canonical = site.engine.queries.canonical.of(refs("odd", DAYS[:3]))
    assert [instance.manifest_state for instance in canonical.values()] == ["complete", "empty", "complete"]
    warehouse = Warehouse(warehouse_of(site.instance))
    of_two = read_manifest(warehouse, "odd", canonical["odd@2013-01-02"].uuid)
    assert [column.name for column in of_two.schema.columns] == ["day", "n"]


def test_a_batch_of_nothing_is_live_and_reads_as_no_rows(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily, batched=True)
    def none_of_them(numbers: pd.DataFrame) -> pd.DataFrame:
        return EMPTY if "2013-01-02" in set(numbers.day) else numbers

    site = deploy(numbers, none_of_them)

    site.build("none_of_them@2013-01-01")
    site.build("none_of_them@2013-01-02", "none_of_them@2013-01-03")

    assert site.rows("none_of_them@2013-01-02") == []
    canonical = site.engine.queries.canonical.of(["none_of_them@2013-01-03"])["none_of_them@2013-01-03"]
    assert canonical.manifest_state == "empty"


@pytest.mark.long("only Spark finds a wrong row when it writes")
def test_one_bad_day_of_a_week_fails_alone(deploy: Any) -> None:
    """Its rows are wrong only when Spark writes them."""

    @databuild_asset(partitions_def=daily, batched=True)
    def fragile(numbers: DataFrame) -> DataFrame:
        # Made here: a function of Spark belongs to the kind of session that is open.
        @F.udf("int")
        def checked(n: int) -> int:
            if n == 7:
                raise ValueError("seven is no number")
            return n

        return numbers.withColumn("n", checked("n"))

    site = deploy(numbers, fragile)

    site.build(*refs("fragile", WEEK))

    states = site.engine.queries.canonical.states(refs("fragile", WEEK))
    assert [ref for ref, state in states.items() if state is not LIVE] == ["fragile@2013-01-07"]
    assert "ValueError: seven is no number" in site.failure()
    assert site.red("fragile") == ["2013-01-07"]


def test_a_function_that_raises_for_one_key_of_its_batch_fails_that_key_alone(deploy: Any) -> None:
    calls: list[int] = []

    @databuild_asset(partitions_def=daily, batched=True)
    def picky(context: BuildContext, numbers: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(context.partition_keys))
        if "2013-01-07" in context.partition_keys:
            raise ValueError("not on the 7th")
        return numbers

    site = deploy(numbers, picky)

    site.build(*refs("picky", DAYS[:16]))

    states = site.engine.queries.canonical.states(refs("picky", DAYS[:16]))
    assert [ref for ref, state in states.items() if state is not LIVE] == ["picky@2013-01-07"]
    # Halves: as many calls as it takes to find one of 16.
    assert len(calls) <= 2 * 4 + 1


BAD_COLUMNS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "drops": (lambda frame: frame.drop("partition_key"), "has no column partition_key"),
    "changes": (
        lambda frame: frame.withColumn("partition_key", F.lit(1)),
        "has a column partition_key that is not text",
    ),
    "invents": (
        lambda frame: frame.withColumn("partition_key", F.explode(F.array("partition_key", F.lit("2013-01-20")))),
        "returned rows for '2013-01-20', which is not in its batch of 1",
    ),
    "forgets": (
        lambda frame: frame.withColumn("partition_key", F.lit(None).cast("string")),
        "returned rows for a null key",
    ),
    "duplicates": (
        lambda frame: frame.select("*", F.col("partition_key")),
        "has 2 columns partition_key",
    ),
}


@pytest.mark.long("only Spark knows the columns of its frame")
def test_a_function_that_mistreats_the_partition_key_fails_with_a_sentence(deploy: Any) -> None:
    calls: list[str] = []

    def bad(how: str) -> Any:
        @databuild_asset(name=how, partitions_def=daily, batched=True)
        def mistreats(numbers: DataFrame) -> DataFrame:
            calls.append(how)
            return BAD_COLUMNS[how][0](numbers)

        return mistreats

    site = deploy(numbers, *(bad(how) for how in BAD_COLUMNS))

    for how, (_, sentence) in BAD_COLUMNS.items():
        site.build(f"{how}@2013-01-01", f"{how}@2013-01-02") if how == "drops" else site.build(f"{how}@2013-01-01")

        assert site.state(f"{how}@2013-01-01") is FAILED, how
        assert sentence in site.failure(), how
    assert site.state("drops@2013-01-02") is FAILED, "all of the batch"
    assert calls == list(BAD_COLUMNS), "a mistake is not looked for day by day"
    assert site.state("invents@2013-01-20") is None, "it was not asked for"


def test_a_dep_miss_of_a_key_outside_the_batch_is_a_mistake(deploy: Any) -> None:
    @databuild_asset(partitions_def=daily, batched=True)
    def confused(context: BuildContext) -> pd.DataFrame:
        raise DepMiss({"2013-05-05": ["numbers@2013-05-05"]})

    site = deploy(numbers, confused)

    site.build("confused@2013-01-01")

    assert (
        "confused raised DepMiss for '2013-05-05', which this call does not build: it builds '2013-01-01'."
        in site.failure()
    )


@pytest.mark.parametrize(
    "error",
    [Transient("the service of the 2nd is down"), PySparkException("SESSION_NOT_FOUND")],
    ids=["transient", "lost session"],
)
def test_a_batch_is_halved_by_a_transient_error_only_if_its_retry_fails_too(deploy: Any, error: Exception) -> None:
    calls: list[int] = []

    @databuild_asset(partitions_def=daily, batched=True)
    def of_services(context: BuildContext) -> pd.DataFrame:
        calls.append(len(context.partition_keys))
        if "2013-01-02" in context.partition_keys:
            raise error
        return pd.DataFrame({"partition_key": list(context.partition_keys), "n": 1})

    site = deploy(of_services)
    site.build(*refs("of_services", DAYS[:4]))
    assert {site.state(ref) for ref in refs("of_services", DAYS[:4])} == {InstanceState.UP_FOR_RETRY}
    assert calls == [4]

    built_in_the_end(site, [f"of_services@{day}" for day in (DAYS[0], *DAYS[2:4])])

    assert site.state("of_services@2013-01-02") is not LIVE


def test_a_key_too_long_for_a_folder_is_a_sentence_and_fails_alone(deploy: Any) -> None:
    long = "k" * 300
    keys = dg.StaticPartitionsDefinition(["short", long])

    @databuild_asset(partitions_def=keys, batched=True)
    def named(context: BuildContext) -> pd.DataFrame:
        return pd.DataFrame({"partition_key": list(context.partition_keys), "n": 1})

    site = deploy(named)

    site.build("named@short", f"named@{long}")

    assert site.state("named@short") is LIVE
    assert "bytes as a folder name" in site.failure()


@pytest.mark.long("Spark counts its own jobs")
def test_a_batched_launch_is_one_spark_job_per_asset(deploy: Any, spark_home: str) -> None:
    """Counted by Spark itself. With adaptive execution every shuffle would count as a job of its own."""
    sessions: set[str] = set()

    @databuild_asset(partitions_def=daily, batched=True)
    def counted(numbers: DataFrame, doubled: DataFrame, spark: SparkSession) -> DataFrame:
        sessions.add(cast(Any, spark).session_id)
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        other = doubled.select("partition_key", F.col("n").alias("twice"))
        return numbers.join(other, "partition_key")

    deploy(numbers, doubled).build(*refs("doubled", WEEK))
    own = DatabuildSpark(home=spark_home, app_name="one job")
    site = deploy(numbers, doubled, counted, spark=own)

    site.build(*refs("counted", WEEK))

    assert site.state("counted@2013-01-07") is LIVE
    (session,) = sessions
    status = server_status(spark_home)
    assert status is not None
    url = status.ui_url
    assert url is not None
    # The UI hears of jobs a little late.
    wait_until(lambda: spark_jobs(url, session), "the UI of Spark knows the job that wrote `counted`", 120)
    assert len(spark_jobs(url, session)) == 1
    (link,) = [
        record.dagster_event.event_specific_data.metadata["spark_ui"].value
        for record in site.instance.all_logs(site.runs[-1].run_id)
        if record.dagster_event is not None
        and "spark_ui" in getattr(record.dagster_event.event_specific_data, "metadata", {})
    ]
    assert link.startswith("http://127.0.0.1:")


def built_in_the_end(site: Any, wanted: list[str]) -> None:
    """Build after each backoff until all are live; a halved batch takes a retry for each half."""
    clock = site.engine.clock
    for retry in range(1, MAX_RETRIES + 1):
        site.engine.clock = lambda hours=retry: clock() + 3600 * hours
        site.build()
        if all(site.state(ref) is LIVE for ref in wanted):
            return
    raise AssertionError(f"not live after {MAX_RETRIES} retries: {wanted}")
