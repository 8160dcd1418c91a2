"""Blocking checks run on a new instance before it is live; what does not pass never becomes live."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import numpy
import pandas as pd
import pytest
from pyspark.sql import DataFrame

from databuild_dagster import EMPTY, BuildContext, InvalidAsset, Transient, databuild_asset, databuild_multi_asset
from databuild_dagster.bindings.declare.gates import Verdict, gates_of, verdict_of
from databuild_dagster.bindings.declare.outcomes import BadResult
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse

LIVE, FAILED = InstanceState.LIVE, InstanceState.FAILED
SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE

daily = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAYS = [f"2013-01-0{day}" for day in range(1, 6)]


def no_sevens(rows: DataFrame) -> DataFrame:
    """Seven brings bad luck."""
    return rows.filter("n = 3")


def has_rows(rows: pd.DataFrame) -> bool:
    return len(rows) > 0


def refs(asset: str) -> list[str]:
    return [f"{asset}@{day}" for day in DAYS]


def asset_with(*checks: Any, batched: bool) -> Any:
    if batched:

        @databuild_asset(partitions_def=daily, blocking_checks=checks, batched=True)
        def numbers(context: BuildContext) -> pd.DataFrame:
            keys = list(context.partition_keys)
            return pd.DataFrame({"partition_key": keys, "n": [int(key[-2:]) for key in keys]})
    else:

        @databuild_asset(partitions_def=daily, blocking_checks=checks)
        def numbers(context: BuildContext) -> pd.DataFrame:
            return pd.DataFrame({"n": [int(context.partition_key[-2:])]})

    return numbers


BOTH = pytest.mark.parametrize("batched", [False, True], ids=["per partition", "batched"])


@pytest.mark.long("only Spark shows a check the rows of a frame of Spark")
@BOTH
def test_the_day_with_wrong_rows_fails_alone_under_a_partial_manifest(deploy: Any, batched: bool) -> None:
    """Dagster shows each verdict as that of any check."""
    site = deploy(asset_with(no_sevens, has_rows, batched=batched))

    site.build(*refs("numbers"))

    states = site.engine.queries.canonical.states(refs("numbers"))
    assert {ref: state for ref, state in states.items() if state is not LIVE} == {"numbers@2013-01-03": FAILED}
    assert "Check no_sevens of numbers@2013-01-03: 1 row is wrong." in site.failure()
    assert site.red("numbers") == ["2013-01-03"]

    (run,) = [run for run in site.engine.queries.job_runs.newest() if run.refs == ("numbers@2013-01-03",)]
    warehouse = Warehouse(warehouse_of(site.instance))
    uuid = derive_partition_uuid(run.id, "numbers@2013-01-03")
    manifest = Path(warehouse.manifest_path("numbers", uuid))
    said = json.loads(manifest.read_text())
    assert (said["state"], said["comment"]) == ("partial", "check no_sevens of numbers@2013-01-03: 1 row is wrong")
    (file,) = said["files"]
    assert pd.read_parquet(manifest.parent / file["uri"]).n.tolist() == [3]

    found = {
        event.asset_check_evaluation_data.check_name: event.asset_check_evaluation_data
        for record in site.instance.all_logs(site.runs[-1].run_id)
        if (event := record.dagster_event) is not None and event.event_type_value == "ASSET_CHECK_EVALUATION"
    }
    assert {name: data.passed for name, data in found.items()} == {
        "no_sevens": False,
        "has_rows": True,
        "no_tainted_partitions": True,
    }
    assert found["no_sevens"].metadata["databuild/refs"].value == 5
    assert found["no_sevens"].description == "1 of 5 did not pass. First: 1 row is wrong"


def small(rows: pd.DataFrame, context: BuildContext) -> bool:
    return bool((rows.n < 4).all())


def warning(rows: pd.DataFrame) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description="odd numbers")


def broken(rows: pd.DataFrame) -> bool:
    raise KeyError("no such thing")


def mangles(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(partition_key=None)


def flaky(rows: pd.DataFrame) -> bool:
    raise Transient("the catalogue is down")


@BOTH
@pytest.mark.parametrize(
    ("check", "states"),
    [
        (small, [LIVE, LIVE, LIVE, FAILED, FAILED]),
        (warning, [LIVE] * 5),
        (broken, [FAILED] * 5),
        (mangles, [FAILED] * 5),
        (flaky, [InstanceState.UP_FOR_RETRY] * 5),
    ],
)
def test_a_check_decides_on_the_rows_it_was_shown(deploy: Any, check: Any, states: list[Any], batched: bool) -> None:
    site = deploy(asset_with(check, batched=batched))

    site.build(*refs("numbers"))

    assert [site.state(ref) for ref in refs("numbers")] == states
    assert (site.runs[-1].status is SUCCESS) is (check is warning)
    if check is broken:
        assert "it raised KeyError: 'no such thing'" in site.failure()
    if check is mangles:
        assert batched is ("returned wrong rows of None, a partition that it does not check" in site.failure())


@pytest.mark.parametrize(("answer", "passed"), [(numpy.True_, True), (numpy.False_, False)])
def test_numpys_own_bool_is_a_bool(answer: Any, passed: bool) -> None:
    (gate,) = gates_of("numbers", [has_rows], {})

    verdict = verdict_of(gate, answer, [DAYS[0]], is_batched=False)

    assert isinstance(verdict, Verdict)
    assert verdict.passed is passed


def test_a_check_without_an_answer_is_refused_with_what_to_return() -> None:
    (gate,) = gates_of("numbers", [has_rows], {})

    with pytest.raises(
        BadResult, match=r"'has_rows' returned nothing \(None\); return a bool, an AssetCheckResult, or"
    ):
        verdict_of(gate, None, [DAYS[0]], is_batched=False)


@pytest.mark.parametrize(
    ("answer", "state"),
    [(pd.DataFrame({"n": pd.Series([], dtype="int64")}), FAILED), (EMPTY, LIVE)],
    ids=["columns", "no columns ever"],
)
def test_the_gates_see_zero_rows_of_columns_that_are_known(deploy: Any, answer: Any, state: InstanceState) -> None:
    @databuild_asset(partitions_def=daily, blocking_checks=[has_rows])
    def hollow(context: BuildContext) -> pd.DataFrame:
        return answer

    site = deploy(hollow)

    site.build("hollow@2013-01-01")

    assert site.state("hollow@2013-01-01") is state


def test_one_output_that_does_not_pass_fails_its_job_run_with_all_outputs(deploy: Any) -> None:
    outs = {"a": dg.AssetSpec("a"), "b": dg.AssetSpec("b")}

    @databuild_multi_asset(outs=outs, partitions_def=daily, blocking_checks={"b": [has_rows]})
    def two() -> dict[str, pd.DataFrame]:
        return {"a": pd.DataFrame({"n": [1]}), "b": pd.DataFrame({"n": pd.Series([], dtype="int64")})}

    site = deploy(two)

    site.build("a@2013-01-01", "b@2013-01-01")

    assert site.state("a@2013-01-01") is site.state("b@2013-01-01") is FAILED
    assert "Check has_rows of b@2013-01-01" in site.failure()


def test_a_check_that_cannot_work_is_refused_at_import() -> None:
    def two_frames(one: DataFrame, other: DataFrame) -> bool:
        return True

    def no_frame(context: BuildContext) -> bool:
        return True

    def wants_config(rows: DataFrame, config: dg.Config) -> bool:
        return True

    def says(text: str, *checks: Any) -> None:
        with pytest.raises(InvalidAsset, match=text):
            asset_with(*checks, batched=False)

    says("must have exactly one DataFrame parameter: the new rows", two_frames)
    says("must have exactly one DataFrame parameter: the new rows", no_frame)
    says("a blocking check takes the new rows as one DataFrame", wants_config)
    says("has two blocking checks called 'has_rows'", has_rows, has_rows)
    says("which is not a function", "has_rows")


# Columns


def column_asset(frames: dict[str, pd.DataFrame], **options: Any) -> Any:
    @databuild_asset(partitions_def=daily, **options)
    def table(context: BuildContext) -> pd.DataFrame:
        return frames[context.partition_key]

    return table


#: Day to the columns that it must not have, and why.
INCOMPATIBLE = {
    DAYS[1]: (pd.DataFrame({"a": [1]}), "it has no column 'b'"),
    DAYS[2]: (
        pd.DataFrame({"a": pd.Series([1], dtype="int32"), "b": ["x"]}),
        "column 'a' is int, not bigint",
    ),
    DAYS[3]: (pd.DataFrame({"a": ["1"], "b": ["x"]}), "column 'a' is string, not bigint"),
}


def test_columns_that_do_not_fit_the_instance_before_are_a_clear_error(deploy: Any) -> None:
    frames = {day: frame for day, (frame, _) in INCOMPATIBLE.items()}
    site = deploy(column_asset({DAYS[0]: pd.DataFrame({"a": [1], "b": ["x"]}), **frames}))
    site.build(f"table@{DAYS[0]}")

    site.build(*(f"table@{day}" for day in frames))

    found = site.engine.queries.canonical.of([f"table@{day}" for day in frames])
    for day, (_, why) in INCOMPATIBLE.items():
        instance = found[f"table@{day}"]
        assert instance.state is FAILED
        assert f"table@{day} cannot become live: {why}, unlike table@{DAYS[0]}" in str(instance.reason)
        assert "or set allow_schema_change=True on the asset" in str(instance.reason)


@pytest.mark.parametrize(
    ("before", "after", "options"),
    [
        (pd.DataFrame({"a": pd.Series([1], dtype="int32")}), pd.DataFrame({"a": [1], "b": ["x"]}), {}),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": ["x"]}), {"allow_schema_change": True}),
    ],
    ids=["new and wider", "any, if the asset allows it"],
)
def test_columns_that_may_change_fit(deploy: Any, before: Any, after: Any, options: dict[str, Any]) -> None:
    site = deploy(column_asset({DAYS[0]: before, DAYS[1]: after}, **options))

    site.build(f"table@{DAYS[0]}")
    site.build(f"table@{DAYS[1]}")

    assert site.state(f"table@{DAYS[1]}") is LIVE


def test_a_name_that_differs_by_case_is_refused_however_freely_columns_change(deploy: Any) -> None:
    frames = {DAYS[0]: pd.DataFrame({"Amount": [1]}), DAYS[1]: pd.DataFrame({"amount": [1]})}
    site = deploy(column_asset(frames, allow_schema_change=True))
    site.build(f"table@{DAYS[0]}")

    site.build(f"table@{DAYS[1]}")

    refused = site.engine.queries.canonical.of([f"table@{DAYS[1]}"])[f"table@{DAYS[1]}"]
    assert refused.state is FAILED
    assert f"Spark takes its column 'amount' for 'Amount' of table@{DAYS[0]}" in str(refused.reason)


def test_a_lost_manifest_of_one_day_does_not_hold_up_another(deploy: Any) -> None:
    site = deploy(column_asset({DAYS[0]: pd.DataFrame({"a": [1]}), DAYS[1]: pd.DataFrame({"a": [2]})}))
    site.build(f"table@{DAYS[0]}")
    shutil.rmtree(Path(warehouse_of(site.instance)) / "table")

    site.build(f"table@{DAYS[1]}")

    assert site.state(f"table@{DAYS[1]}") is LIVE


def test_first_days_that_are_built_together_must_fit_each_other(deploy: Any) -> None:
    frames = {day: pd.DataFrame({"a": [1] if day == DAYS[0] else ["x"]}) for day in DAYS[:2]}
    site = deploy(column_asset(frames))

    site.build(f"table@{DAYS[0]}", f"table@{DAYS[1]}")

    assert {site.state(f"table@{day}") for day in DAYS[:2]} == {LIVE, FAILED}


def described_so(rows: pd.DataFrame) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, description="a file \udcff is odd")


def raising_so(rows: pd.DataFrame) -> bool:
    raise ValueError("a file \udcff is odd")


@pytest.mark.parametrize("check", [described_so, raising_so])
def test_the_reason_of_a_gate_keeps_its_words_if_utf8_cannot_hold_one(deploy: Any, check: Any) -> None:
    @databuild_asset(blocking_checks=[check])
    def odd() -> pd.DataFrame:
        return pd.DataFrame({"x": [1]})

    site = deploy(odd)

    site.build("odd")

    assert site.state("odd") is FAILED
    assert "a file \\udcff is odd" in site.failure()
