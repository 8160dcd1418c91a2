"""Inputs known only at run time: `context.read(ref, …)` and `raise DepMiss(ref, …)` (rule 6.3, API)."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame

from databuild_dagster import BuildContext, DepMiss, PartitionRef, databuild_asset
from databuild_dagster.model.states import InstanceState, WantState

from ..module_site import module_site

LIVE, FAILED = InstanceState.LIVE, InstanceState.FAILED

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
tail_numbers = dg.DynamicPartitionsDefinition(name="tail_numbers")
DAYS = ["2013-01-03", "2013-02-14"]


@databuild_asset(partitions_def=daily)
def raw(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key], "n": [int(context.partition_key[-2:])]})


@databuild_asset(partitions_def=daily)
def flights(raw: pd.DataFrame) -> pd.DataFrame:
    return raw.assign(n=raw.n * 10)


def refs(asset: str) -> list[str]:
    return [f"{asset}@{day}" for day in DAYS]


def inputs_of(site: Any, ref: str) -> set[str]:
    return set(site.engine.queries.instances.history(ref)[-1].inputs)


def uuids(site: Any, wanted: list[str]) -> set[str]:
    return {found.uuid for found in site.engine.queries.canonical.of(wanted).values()}


@pytest.fixture
def planes(deploy: Any, instance: dg.DagsterInstance) -> Any:
    """`plane_history` of N1, deployed with what it reads; and the calls of its function."""
    calls: list[str] = []

    @databuild_asset(partitions_def=tail_numbers)
    def plane_history(context: BuildContext) -> DataFrame:
        calls.append(context.partition_key)
        return context.read(*[PartitionRef("flights", day) for day in DAYS])

    instance.add_dynamic_partitions("tail_numbers", ["N1"])
    return deploy(raw, flights, plane_history), calls


@pytest.mark.long("context.read returns a frame of Spark")
def test_what_the_function_reads_is_wanted_by_it_built_and_then_it_is_called_again(planes: Any) -> None:
    site, calls = planes

    site.build("plane_history@N1")

    assert sorted(row["n"] for row in site.rows("plane_history@N1")) == [30, 140]
    assert calls == ["N1", "N1"]
    assert inputs_of(site, "plane_history@N1") == uuids(site, refs("flights"))
    assert site.materialized("flights") == site.materialized("raw") == DAYS
    assert {run.status for run in site.runs} == {dg.DagsterRunStatus.SUCCESS}
    (first, last) = site.engine.queries.instances.history("plane_history@N1")
    for ref in refs("flights"):
        (want,) = site.engine.queries.wants.of_ref(ref)
        assert (want.source, want.source_id, want.state) == ("job run", first.job_run, WantState.SUCCESSFUL)
    assert (first.state, last.state) == (InstanceState.UP_FOR_RETRY, LIVE)


def test_a_batch_reads_what_all_of_it_needs_and_each_says_what_it_misses(deploy: Any) -> None:
    """API: a batched function misses with a mapping; the others of the batch go on."""
    calls: list[tuple[str, ...]] = []

    @databuild_asset(partitions_def=daily, batched=True)
    def report(context: BuildContext) -> pd.DataFrame:
        calls.append(context.partition_keys)
        needed = {key: f"flights@{DAYS[0]}" for key in context.partition_keys if key in DAYS}
        live = context.instance.get_materialized_partitions(dg.AssetKey("flights"))
        if missing := {key: [ref] for key, ref in needed.items() if ref.partition("@")[2] not in live}:
            raise DepMiss(missing)
        keys = list(context.partition_keys)
        return pd.DataFrame({"partition_key": keys, "needs": [key in needed for key in keys]})

    site = deploy(raw, flights, report)
    last = "2013-07-04"
    wanted = [*refs("report"), f"report@{last}"]

    site.build(*wanted)

    assert [site.rows(ref) for ref in wanted] == [[{"needs": True}], [{"needs": True}], [{"needs": False}]]
    assert calls == [(*DAYS, last), (last,), tuple(DAYS)]


# Bad input: each ends with one clear sentence.


def miss(*missing: Any) -> Any:
    def raises(context: BuildContext) -> None:
        raise DepMiss(*missing)

    return raises


def read(*wanted: str) -> Any:
    return lambda context: context.read(*wanted)


@databuild_asset
def other() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


ODD = {
    "a read of itself": (
        read("odd@a read of itself"),
        "a cycle of dep misses: odd@a read of itself → odd@a read of itself",
    ),
    "a miss of an asset that nothing builds": (
        miss("fligths@2013-01-03"),
        "it needs 'fligths@2013-01-03', which nothing can build: no code location has registered an asset 'fligths'. "
        "Did you mean flights? Otherwise load the code location that defines it: `databuild build` registers what it loads.",
    ),
    "a read of a partition that there is not": (
        read("flights@2015-01-01"),
        "it needs 'flights@2015-01-01', which nothing can build: "
        "there is no partition flights@2015-01-01: its partitions end with 2013-12-31.",
    ),
    "a miss by partition key where there is none": (
        miss({"2013-01-03": ["flights@2013-01-03"]}),
        "BadResult: alone raised DepMiss for '2013-01-03', but builds one thing only; "
        "name the missing refs alone, as in DepMiss(ref).",
    ),
    "a read of nothing": (
        read(),
        "ValueError: context.read(…) of odd@a read of nothing was given no refs; give it refs of one asset at a time.",
    ),
    "a read of two assets": (
        read("flights@2013-01-03", "other"),
        "ValueError: context.read(…) of odd@a read of two assets was given refs of flights and other; "
        "give it refs of one asset at a time.",
    ),
}


@pytest.fixture(scope="module")
def reasons(spark_home: str) -> Iterator[dict[str, str]]:
    """What each of them ended with: a partition of one asset for each."""
    alone_does, _ = ODD["a miss by partition key where there is none"]

    @databuild_asset(partitions_def=dg.StaticPartitionsDefinition(list(ODD)))
    def odd(context: BuildContext) -> pd.DataFrame:
        body, _ = ODD[str(context.partition_key)]
        body(context)
        return pd.DataFrame({"n": [1]})

    @databuild_asset
    def alone(context: BuildContext) -> pd.DataFrame:
        alone_does(context)
        return pd.DataFrame({"n": [1]})

    with module_site(spark_home, raw, flights, other, odd, alone) as site:
        refs = {what: f"odd@{what}" for what in ODD} | {"a miss by partition key where there is none": "alone"}
        site.build(*refs.values())
        found = site.engine.queries.canonical.of(refs.values())
        assert {canonical.state for canonical in found.values()} == {FAILED}
        yield {what: str(found[ref].reason) for what, ref in refs.items()}


@pytest.mark.parametrize("what", ODD)
def test_what_makes_no_sense_fails_with_one_sentence(reasons: dict[str, str], what: str) -> None:
    _, sentence = ODD[what]

    assert reasons[what] == sentence
    assert "\n" not in sentence


@pytest.mark.long("context.read returns a frame of Spark")
def test_a_read_of_a_plain_asset_is_built_and_loaded_by_dagster(deploy: Any) -> None:
    """Rule 6.11: lineage has its materialization as its instance."""

    @dg.asset
    def plain() -> pd.DataFrame:
        return pd.DataFrame({"n": [7]})

    @databuild_asset
    def reader(context: BuildContext) -> DataFrame:
        return context.read("plain")

    site = deploy(plain, reader)

    site.build("reader")

    assert site.rows("reader") == [{"n": 7}]
    assert inputs_of(site, "reader") == uuids(site, ["plain"])


@pytest.mark.long("context.read returns a frame of Spark")
def test_a_read_that_misses_may_be_caught_and_named_with_others(deploy: Any) -> None:
    """API: `DepMiss` is an exception like any other; a function may collect what it lacks."""
    calls: list[int] = []

    @databuild_asset
    def careful(context: BuildContext) -> DataFrame:
        calls.append(1)
        missing: list[str] = []
        for ref in refs("flights"):
            try:
                context.read(ref)
            except DepMiss as miss:
                missing += miss.refs
        if missing:
            raise DepMiss(*missing)
        return context.read(*refs("flights"))

    site = deploy(raw, flights, careful)

    site.build("careful")

    assert sorted(row["n"] for row in site.rows("careful")) == [30, 140]
    assert len(calls) == 2
