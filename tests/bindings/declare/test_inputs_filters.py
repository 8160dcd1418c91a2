"""Inputs with a filter: the function gets some rows, and files without any of them are not read (rule 9.8)."""

import sys
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import (
    EMPTY,
    BuildContext,
    DatabuildSpark,
    InvalidAsset,
    databuild_asset,
)
from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.states import InstanceState
from tests.support.dagster_files import fresh_instance

from ..conftest import Site, deployed
from ..module_site import module_site

pytestmark = pytest.mark.feature("operations")

FAILED = InstanceState.FAILED
days = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])
DAYS = ["mon", "tue", "wed"]
FILES = 4
FRAMES = pytest.mark.parametrize("frame", [DataFrame, pd.DataFrame], ids=["Spark", "pandas"])
LONG = pytest.mark.long("only Spark writes a table of several files, and makes its index")


def only(where: Any, **options: Any) -> dict[str, dg.AssetIn]:
    return {"numbers": dg.AssetIn(metadata={"where": where}, **options)}


@databuild_asset(partitions_def=days)
def numbers(context: BuildContext, spark: SparkSession) -> DataFrame:
    """Each file has ten numbers of its own: 0 to 39 on Monday, 40 to 79 on Tuesday; there are none on Wednesday."""
    place = DAYS.index(context.partition_key)
    if place == 2:
        return EMPTY  # type: ignore[return-value]
    frame = spark.range(40 * place, 40 * place + 40, numPartitions=FILES)
    return frame.selectExpr("id as n", "concat('k', id % 3) as k")


@databuild_asset(partitions_def=days, ins=only("n between 40 and 49"))
def some(numbers: DataFrame) -> DataFrame:
    return numbers


def build_index(site: Site, asset: str = "numbers") -> None:
    from databuild_dagster.features.operations.coordinator import Coordinator
    from databuild_dagster.features.operations.operations import executor_of, manager_of, operation_resources, run_jobs
    from databuild_dagster.features.operations.provided.build_index import BuildIndexArg

    resources = operation_resources(site.instance, site.deployment, spark=site.deployment.spark)
    manager = manager_of(resources, site.deployment, actor="user")
    id = manager.start("build_index", asset, BuildIndexArg())
    run_jobs(executor_of(manager, resources), id, 100, pause=lambda seconds: None)
    Coordinator(manager).coordinate()
    assert manager.operation(id).failed == {}


@pytest.fixture(scope="module")
def indexed(spark_home: str) -> Iterator[Site]:
    """Numbers of three days, with an index."""
    with module_site(spark_home, numbers) as site:
        site.build(*refs("numbers"))
        build_index(site)
        yield site


@pytest.fixture
def site(indexed: Site, spark_home: str) -> Iterator[Site]:
    """A copy of its home, with the data and the index."""
    with fresh_instance(indexed.instance.root_directory) as instance:
        yield deployed(instance, spark_home, numbers)


def refs(asset: str) -> list[str]:
    return [f"{asset}@{day}" for day in DAYS]


def found(site: Site, ref: str) -> list[int]:
    return sorted(row["n"] for row in site.rows(ref))


def files_read(site: Site, asset: str, key: str | None = None) -> Any:
    """What Dagster shows of it."""
    records = site.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=asset_key(asset), asset_partitions=None if key is None else [key]), limit=1
    ).records
    materialization = records[0].asset_materialization
    assert materialization is not None
    counts = materialization.metadata.get("databuild/files_read")
    return None if counts is None else counts.value


def again(site: Site, *assets: Any) -> Site:
    """The same instance, with other assets beside the numbers."""
    assert isinstance(site.deployment.spark, DatabuildSpark)
    return deployed(site.instance, str(site.deployment.spark.home), numbers, *assets)


# The rows, and the files


@LONG
@FRAMES
def test_the_function_gets_the_rows_that_match_from_the_files_that_may_have_some(site: Site, frame: type) -> None:
    """The lineage has the whole instance."""

    def small(numbers: Any) -> Any:
        assert isinstance(numbers, frame)
        return numbers

    small.__annotations__ = {"numbers": frame, "return": frame}
    site = again(site, databuild_asset(partitions_def=days, ins=only("n between 40 and 49 and k = 'k1'"))(small))

    site.build("small@mon", "small@tue")

    assert found(site, "small@tue") == [40, 43, 46, 49]
    assert files_read(site, "small", "tue") == {"numbers": "1 of 4"}
    assert found(site, "small@mon") == [], "there is none on Monday"
    assert files_read(site, "small", "mon") == {"numbers": "0 of 4"}
    messages = [entry.message for entry in site.instance.all_logs(site.runs[-1].run_id)]
    assert any("1 of 4 files of numbers are read where n between 40 and 49 and" in message for message in messages)
    whole = site.engine.queries.canonical.of(["numbers@mon"])["numbers@mon"].uuid
    assert site.engine.queries.instances.history("small@mon")[-1].inputs == (whole,)


@LONG
def test_without_an_index_all_files_are_read_and_the_rows_are_the_same(deploy: Any) -> None:
    """Days that were always empty have no columns to ask for."""
    site = deploy(numbers, some)

    site.build("some@wed")
    site.build("some@tue")

    assert (found(site, "some@wed"), found(site, "some@tue")) == ([], list(range(40, 50)))
    assert files_read(site, "some", "tue") == {"numbers": "4 of 4"}


@LONG
def test_without_sqlglot_spark_frames_get_the_same_rows_from_all_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 9.8"""
    monkeypatch.setitem(sys.modules, "sqlglot", None)

    @databuild_asset(partitions_def=days, ins=only("n between 40 and 49"))
    def some(numbers: DataFrame) -> DataFrame:
        return numbers

    site = again(site, some)
    site.build("some@tue")

    assert found(site, "some@tue") == list(range(40, 50))
    assert files_read(site, "some", "tue") == {"numbers": "4 of 4"}


def test_without_sqlglot_a_filter_of_other_frames_is_refused_when_the_definitions_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small(numbers: pd.DataFrame) -> pd.DataFrame:
        return numbers

    monkeypatch.setitem(sys.modules, "sqlglot", None)

    with pytest.raises(InvalidAsset, match="input 'numbers'"):
        databuild_asset(partitions_def=days, ins=only("n = 40"))(small)


@LONG
@FRAMES
def test_a_batch_gets_the_matching_rows_of_each_key_and_says_what_it_read(site: Site, frame: type) -> None:
    def taken(numbers: Any) -> Any:
        return numbers

    taken.__annotations__ = {"numbers": frame, "return": frame}
    asset = databuild_asset(partitions_def=days, batched=True, ins=only("n >= 35 and n < 50"))(taken)
    site = again(site, asset)

    site.build(*refs("taken"))

    assert [found(site, ref) for ref in refs("taken")] == [list(range(35, 40)), list(range(40, 50)), []]
    counts = [files_read(site, "taken", day) for day in DAYS]
    assert counts == [{"numbers": "1 of 4"}, {"numbers": "1 of 4"}, {"numbers": "0 of 0"}]


@databuild_asset(partitions_def=days)
def grown(context: BuildContext) -> pd.DataFrame:
    """Has another column from Tuesday on."""
    more = {} if context.partition_key == "mon" else {"extra": [5, 6]}
    return pd.DataFrame({"n": [1, 2], **more})


@LONG
@FRAMES
def test_a_column_that_earlier_partitions_do_not_have_is_null_in_them(deploy: Any, frame: type) -> None:
    def whole(grown: Any) -> Any:
        return grown[["n"]]

    def by_day(grown: Any) -> Any:
        return grown[["n", "partition_key"]]

    whole.__annotations__ = by_day.__annotations__ = {"grown": frame, "return": frame}
    metadata = {"where": "extra is null or extra = 6"}
    every_day = {"grown": dg.AssetIn(metadata=metadata, partition_mapping=dg.AllPartitionMapping())}
    site = deploy(
        grown,
        databuild_asset(ins=every_day)(whole),
        databuild_asset(partitions_def=days, batched=True, ins={"grown": dg.AssetIn(metadata=metadata)})(by_day),
    )
    site.build("grown@mon")
    site.build("grown@tue", "grown@wed")
    build_index(site, "grown")

    site.build("whole", *refs("by_day"))

    assert [found(site, f"by_day@{day}") for day in DAYS] == [[1, 2], [2], [2]]
    assert found(site, "whole") == [1, 2, 2, 2]


# Parts


@LONG
@pytest.mark.feature("lots")
def test_parts_by_key_are_of_the_matching_rows_and_differ_by_filter(site: Site) -> None:
    """What an earlier attempt kept was made of other rows."""
    from databuild_dagster import ByKey

    fail = {"k1"}

    def parted_where(where: str) -> Any:
        @databuild_asset(
            partitions_def=days, parts=ByKey("numbers", "k"), ins=only(where), code_version="never changes"
        )
        def parted(numbers: DataFrame) -> DataFrame:
            if numbers.first().k in fail:  # type: ignore[union-attr]
                raise ValueError("no such key")
            return numbers

        return parted

    site = again(site, parted_where("k <> 'k2' and n < 20"))
    site.build("parted@mon")
    assert site.state("parted@mon") is FAILED, "k0 is kept"
    fail.clear()

    site.engine.handle(TaintPartitions(refs=("parted@mon",), reason="once more"))
    site = again(site, parted_where("k <> 'k2' and n < 10"))
    site.build("parted@mon")

    assert found(site, "parted@mon") == [0, 1, 3, 4, 6, 7, 9]


# What cannot be asked


@LONG
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@FRAMES
def test_a_filter_on_a_missing_column_fails_the_build_without_a_call(site: Site, frame: type, batched: bool) -> None:
    called: list[Any] = []

    def taken(numbers: Any) -> Any:
        called.append(numbers)
        return numbers

    taken.__annotations__ = {"numbers": frame, "return": frame}
    site = again(site, databuild_asset(partitions_def=days, batched=batched, ins=only("carrier = 'AA'"))(taken))

    site.build(*refs("taken"))

    assert [site.state(ref) for ref in refs("taken")] == [FAILED] * 3
    why = next(run.error for run in site.engine.queries.job_runs.newest() if run.refs == ("taken@wed",))
    assert "carrier = 'AA'" in str(why)
    assert "\n" not in str(why)
    assert called == []


@pytest.mark.parametrize("where", ["carrier =", "", "n > 1 group by n", 3, None])
def test_what_is_no_condition_is_refused_when_the_definitions_load(where: Any) -> None:
    with pytest.raises(InvalidAsset, match=r"ins of asset 'taken'.*'numbers'"):

        @databuild_asset(ins=only(where))
        def taken(numbers: DataFrame) -> DataFrame:
            return numbers


# Others' data, and no build at all


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(DataFrame, marks=pytest.mark.long("only Spark filters a frame of Spark"), id="Spark"),
        pytest.param(pd.DataFrame, id="pandas"),
    ],
)
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_a_plain_assets_frame_is_filtered_once_it_is_loaded(deploy: Any, frame: type, batched: bool) -> None:
    @dg.asset(partitions_def=days)
    def plain() -> pd.DataFrame:
        return pd.DataFrame({"n": [1, 2, 3], "x": [0.5, None, 2.5]}, index=[7, 8, 9])

    def taken(plain: Any) -> Any:
        return plain

    taken.__annotations__ = {"plain": frame, "return": frame}
    where = dg.AssetIn(metadata={"where": "n > 1 and x is not null"})
    site = deploy(plain, databuild_asset(partitions_def=days, batched=batched, ins={"plain": where})(taken))

    site.build("taken@mon", "taken@tue")

    assert (found(site, "taken@mon"), found(site, "taken@tue")) == ([3], [3])
    assert files_read(site, "taken", "mon") is None, "whose files are whose, Dagster does not say"


def test_called_directly_it_is_the_function_and_nothing_is_filtered() -> None:
    @databuild_asset(ins=only("n > 1"))
    def taken(numbers: pd.DataFrame) -> pd.DataFrame:
        return numbers

    assert list(taken(pd.DataFrame({"n": [1, 2]})).n) == [1, 2]
