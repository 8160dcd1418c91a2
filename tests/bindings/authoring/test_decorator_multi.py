"""A multi-asset: one function, several outputs per partition key, planned output by output (rule 6.2)."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame

from databuild_dagster import EMPTY, BuildContext, DepMiss, InvalidAsset, databuild_asset, databuild_multi_asset
from databuild_dagster.model.commands import TaintPartitions
from databuild_dagster.model.states import InstanceState

LIVE, FAILED, WAITING = InstanceState.LIVE, InstanceState.FAILED, InstanceState.UPSTREAM_BUILDING
SUCCESS = dg.DagsterRunStatus.SUCCESS

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAYS = [f"2013-01-0{day}" for day in range(1, 6)]
OUTS = {"low": dg.AssetSpec("small"), "high": dg.AssetSpec(["big", "numbers"])}


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": range(10)})


@databuild_multi_asset(outs=OUTS, partitions_def=daily)
def halves(numbers: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Two sides of one table."""
    return {"low": numbers[numbers.n < 5], "high": numbers[numbers.n >= 5]}


@databuild_multi_asset(outs=OUTS, partitions_def=daily, batched=True)
def batched_halves(numbers: DataFrame) -> dict[str, DataFrame]:
    """The same by Spark."""
    return {"low": numbers.filter("n < 5"), "high": numbers.filter("n >= 5")}


BY_SPARK = pytest.param(batched_halves, id="batched", marks=pytest.mark.long("only Spark splits a frame of Spark"))


def job_runs_of(site: Any, job: str) -> list[Any]:
    return [run for run in site.engine.queries.job_runs.newest() if run.job == job and run.started_at is not None]


@pytest.mark.parametrize("multi", [pytest.param(halves, id="per partition"), BY_SPARK])
def test_one_call_builds_every_output_and_a_rebuild_of_one_leaves_its_sibling(deploy: Any, multi: Any) -> None:
    site = deploy(numbers, multi)

    site.build(*(f"{asset}@{day}" for asset in ("small", "big/numbers") for day in DAYS[:2]))

    assert [row["n"] for row in site.rows("small@2013-01-01")] == [0, 1, 2, 3, 4]
    assert [row["n"] for row in site.rows("big/numbers@2013-01-02")] == [5, 6, 7, 8, 9]
    assert len(job_runs_of(site, multi.node_def.name)) == 2
    assert site.materialized("small") == site.materialized("big/numbers") == DAYS[:2]

    before = site.engine.queries.canonical.of(["big/numbers@2013-01-01"])
    site.engine.handle(TaintPartitions(refs=("small@2013-01-01",), reason="wrong"))
    site.build()

    assert site.engine.queries.canonical.of(["big/numbers@2013-01-01"]) == before
    assert site.state("small@2013-01-01") is LIVE
    small, big = (site.engine.queries.instances.history(ref) for ref in ("small@2013-01-01", "big/numbers@2013-01-01"))
    assert len(small) == len(big) + 1


def test_a_dagster_run_builds_the_outputs_that_it_selects_as_one_job_run_per_key(deploy: Any) -> None:
    site = deploy(numbers, halves)
    site.build("numbers@2013-01-01", "numbers@2013-01-02", "numbers@2013-01-03")

    run = site.launch(["big/numbers"], ["2013-01-01"])

    assert run.status is SUCCESS
    assert site.state("big/numbers@2013-01-01") is LIVE
    assert site.state("small@2013-01-01") is None

    run = site.launch(["small", "big/numbers"], DAYS[1:3])

    assert run.status is SUCCESS
    assert sorted(len(run.refs) for run in job_runs_of(site, "halves")) == [1, 2, 2]


@pytest.mark.parametrize("is_launched", [False, True], ids=["wanted", "launched by a person"])
def test_an_output_whose_own_input_is_missing_waits_and_the_rest_is_built(deploy: Any, is_launched: bool) -> None:
    source = dg.AssetSpec("elsewhere", partitions_def=daily)
    outs = {"free": dg.AssetSpec("free"), "bound": dg.AssetSpec("bound", deps=["elsewhere"])}

    @databuild_multi_asset(outs=outs, partitions_def=daily)
    def two(numbers: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {"free": numbers, "bound": numbers}

    site = deploy(numbers, source, two)

    if is_launched:
        site.build("numbers@2013-01-01")
        assert site.launch(["free", "bound"], ["2013-01-01"]).status is SUCCESS
    else:
        site.build("free@2013-01-01", "bound@2013-01-01")

    assert site.state("free@2013-01-01") is LIVE
    assert site.state("bound@2013-01-01") is WAITING


def test_a_dep_miss_of_one_output_sends_the_other_back_to_be_tried_again(deploy: Any) -> None:
    calls = []

    @databuild_multi_asset(outs={"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b")}, partitions_def=daily)
    def two(context: BuildContext) -> dict[str, pd.DataFrame]:
        calls.append(context.refs)
        frame = pd.DataFrame({"n": [1]})
        if any(ref.asset == "b" for ref in context.refs):
            try:
                context.read("numbers@2013-01-01")
            except DepMiss as miss:
                raise DepMiss({"b": miss.refs}) from miss
        return {"a": frame, "b": frame}

    site = deploy(numbers, two)

    site.build("a@2013-01-01", "b@2013-01-01")

    assert site.state("a@2013-01-01") is site.state("b@2013-01-01") is LIVE
    assert len(calls) >= 2


def test_metadata_may_be_given_to_one_output_and_one_key(deploy: Any) -> None:
    @databuild_multi_asset(outs={"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b")}, partitions_def=daily, batched=True)
    def two(context: BuildContext) -> dict[str, pd.DataFrame]:
        context.add_output_metadata({"both": 1})
        context.add_output_metadata({"only": "b"}, output_name="b", partition_key="2013-01-02")
        with pytest.raises(ValueError, match="names 'c', which this call does not build"):
            context.add_output_metadata({}, output_name="c")
        frame = pd.DataFrame({"partition_key": list(context.partition_keys)})
        return {"a": frame.assign(n=1), "b": EMPTY}  # type: ignore[dict-item]

    site = deploy(two)

    site.build(*(f"{asset}@{day}" for asset in "ab" for day in DAYS[:2]))

    assert {(key, tuple(found)) for key, found in metadata_of(site, "b").items()} == {
        ("2013-01-01", ("both",)),
        ("2013-01-02", ("both", "only")),
    }
    assert set(metadata_of(site, "a")["2013-01-02"]) == {"both"}


def metadata_of(site: Any, asset: str) -> dict[str, dict[str, Any]]:
    found = {}
    for record in site.instance.fetch_materializations(dg.AssetKey(asset), limit=100).records:
        metadata = record.asset_materialization.metadata
        own = {key: value for key, value in sorted(metadata.items()) if "/" not in key}
        found.setdefault(record.partition_key, own)
    return found


WRONG_ANSWERS = {
    "a frame": (lambda frame: frame, "two returned a pandas.core.frame.DataFrame; return a dict with a DataFrame"),
    "nothing": (lambda frame: None, "two returned nothing (None); return a dict"),
    "one output": (
        lambda frame: {"a": frame},
        "two returned nothing for its output 'b'; return EMPTY if it has no rows",
    ),
    "another output": (
        lambda frame: {"a": frame, "b": frame, "c": frame},
        "two returned 'c', which is none of its outputs 'a', 'b'",
    ),
    "no frame": (lambda frame: {"a": frame, "b": 3}, "b returned a builtins.int; return a frame"),
}


def test_an_answer_that_is_no_dict_of_frames_fails_with_a_sentence(deploy: Any) -> None:
    outs = {"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b")}

    @databuild_multi_asset(outs=outs, partitions_def=dg.StaticPartitionsDefinition(list(WRONG_ANSWERS)))
    def two(context: BuildContext) -> dict[str, pd.DataFrame]:
        answer, _ = WRONG_ANSWERS[str(context.partition_key)]
        return answer(pd.DataFrame({"n": [1]}))

    site = deploy(two)

    site.build(*(f"{out}@{key}" for out in outs for key in WRONG_ANSWERS))

    found = site.engine.queries.canonical.of([f"{out}@{key}" for out in outs for key in WRONG_ANSWERS])
    assert {run.state for run in found.values()} == {FAILED}
    for key, (_, said) in WRONG_ANSWERS.items():
        assert said in str(found[f"a@{key}"].reason)


def test_an_impossible_declaration_is_refused_at_import() -> None:
    def two() -> dict[str, pd.DataFrame]:
        return {}

    def says(text: str, **options: Any) -> None:
        options.setdefault("outs", {"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b")})
        with pytest.raises(InvalidAsset, match=text):
            databuild_multi_asset(**options)(two)

    says("has no outs", outs={})
    says("'b' of multi-asset .* is no AssetSpec but AssetOut; write", outs={"a": dg.AssetSpec("a"), "b": dg.AssetOut()})
    says("gives two outputs the same asset key", outs={"a": dg.AssetSpec("a"), "b": dg.AssetSpec("a")})
    says(
        "depends on 'a', which the same function builds",
        outs={"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b", deps=["a"])},
    )
    says(
        "maps 'numbers' once more",
        outs={"a": dg.AssetSpec("a", deps=[dg.AssetDep("numbers", partition_mapping=dg.AllPartitionMapping())])},
        deps=["numbers"],
    )
    says("has partitions of its own", outs={"a": dg.AssetSpec("a", partitions_def=daily)})
    says(
        "gives its outputs several code versions",
        outs={"a": dg.AssetSpec("a", code_version="1"), "b": dg.AssetSpec("b", code_version="2")},
    )
    says("names 'c', which is none of its outs", blocking_checks={"c": []})

    def one() -> pd.DataFrame:
        return pd.DataFrame()

    with pytest.raises(InvalidAsset, match="it must return a dict, from each output's name to its DataFrame"):
        databuild_multi_asset(outs={"a": dg.AssetSpec("a")})(one)


def test_calling_a_multi_asset_calls_the_function() -> None:
    frame = pd.DataFrame({"n": [1, 7]})

    @databuild_multi_asset(outs={"low": dg.AssetSpec("low")})
    def low(numbers: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {"low": numbers[numbers.n < 5]}

    assert low(frame)["low"].n.tolist() == [1]


def test_a_dep_miss_of_an_output_that_is_not_being_built_is_no_circle(deploy: Any) -> None:
    calls = []

    @databuild_multi_asset(outs={"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b")}, partitions_def=daily)
    def two(context: BuildContext) -> dict[str, pd.DataFrame]:
        calls.append(context.refs)
        raise DepMiss({"b": "numbers@2013-01-01"})

    site = deploy(numbers, two)

    site.build("a@2013-01-01")

    assert len(calls) == 1
    assert site.state("a@2013-01-01") is FAILED
    assert "'b'" in site.failure()
