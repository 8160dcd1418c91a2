"""Functions as people write them for Dagster's `@asset`: its contexts, its results and its errors."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._cli.utils import get_possibly_temporary_instance_for_cli

from databuild_dagster import BuildContext, InvalidAsset, NotBuilt, databuild_asset, databuild_multi_asset, read
from databuild_dagster.bindings.adapter.dagster_private import (
    IMPLICIT_ASSET_JOB_NAME,
    InMemoryJob,
    execute_run_iterator,
)
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.model.states import InstanceState

daily = dg.DailyPartitionsDefinition("2024-01-29")
DAY = "2024-01-29"
FRAME = pd.DataFrame({"n": [1]})


def built(instance: dg.DagsterInstance, function: Callable[..., Any]) -> dg.ExecuteInProcessResult:
    """Build the one partition of an asset `a` with this function, in a Dagster run of its own."""
    asset = databuild_asset(name="a", partitions_def=daily)(function)
    return dg.materialize([asset], instance=instance, partition_key=DAY, raise_on_error=False)


def error_of(result: dg.ExecuteInProcessResult) -> Any:
    """The data of the failed step."""
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    return failure.event_specific_data


@pytest.mark.parametrize("wrapper", [dg.Output, dg.MaterializeResult])
def test_a_wrapped_frame_is_built_and_its_metadata_kept(instance: dg.DagsterInstance, wrapper: Any) -> None:
    run = built(instance, lambda: wrapper(value=FRAME, metadata={"source": "shop"}))

    (materialization,) = run.asset_materializations_for_node("a")
    assert materialization.metadata["source"].value == "shop"
    assert read(f"a@{DAY}", instance=instance, format="pandas").n.tolist() == [1]


def test_each_output_of_a_multi_asset_may_be_wrapped(instance: dg.DagsterInstance) -> None:
    @databuild_multi_asset(outs={"low": dg.AssetSpec("low"), "high": dg.AssetSpec("high")})
    def split() -> dict:  # type: ignore[type-arg]
        return {"low": dg.Output(FRAME, metadata={"rows": 1}), "high": FRAME}

    run = dg.materialize([split], instance=instance)

    of_key = {event.asset_key: event for event in run.asset_materializations_for_node("split")}
    assert of_key[dg.AssetKey("low")].metadata["rows"].value == 1
    assert "rows" not in of_key[dg.AssetKey("high")].metadata


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            lambda: dg.MaterializeResult(metadata={"n": 1}),
            "a returned dagster.MaterializeResult without a value; give it the frame",
        ),
        (
            lambda: dg.Output(FRAME, data_version=dg.DataVersion("1")),
            "a returned dagster.Output with data_version=; databuild gives",
        ),
        (
            lambda: dg.Output(FRAME, tags={"x": "y"}),
            "a returned dagster.Output with tags=; give tags= to the decorator",
        ),
        (
            lambda: dg.MaterializeResult(value=FRAME, check_results=[dg.AssetCheckResult(passed=True, check_name="c")]),
            "a returned dagster.MaterializeResult with check_results=; write a separate @asset_check",
        ),
        (
            lambda: None,
            "a returned nothing (None); return a frame of Spark, pandas, Polars or Arrow, or EMPTY, or raise DepMiss or "
            "Transient. A function that stores its data itself stays a plain @asset",
        ),
        (lambda: [1, 2], "a returned a builtins.list; return a frame"),
    ],
    ids=["no value", "data version", "tags", "checks", "None", "list"],
)
def test_a_result_that_is_no_frame_gets_the_form_to_write(
    instance: dg.DagsterInstance, result: Callable[[], Any], sentence: str
) -> None:
    run = built(instance, result)

    assert not run.success
    assert sentence in error_of(run).error.message


def test_a_function_may_be_annotated_with_dagsters_results_of_frames_alone() -> None:
    def wrapped() -> dg.Output[pd.DataFrame]: ...  # type: ignore[empty-body]
    def bare() -> dg.MaterializeResult: ...  # type: ignore[empty-body, type-arg]
    def number() -> dg.Output[int]: ...  # type: ignore[empty-body]
    def stored() -> None: ...

    databuild_asset(wrapped)
    databuild_asset(bare)
    with pytest.raises(InvalidAsset, match="annotated to return"):
        databuild_asset(number)
    with pytest.raises(InvalidAsset, match="stays a plain @asset"):
        databuild_asset(stored)


@pytest.mark.parametrize("annotation", [None, dg.AssetExecutionContext, dg.OpExecutionContext, BuildContext])
def test_the_context_of_a_function_for_dagster_is_one_of_ours(instance: dg.DagsterInstance, annotation: Any) -> None:
    seen: list[Any] = []

    def function(context):  # type: ignore[no-untyped-def]
        seen.append(
            (type(context), context.partition_key, context.run_id, context.job_name, context.dagster_context.run_id)
        )
        return FRAME

    function.__annotations__.update({} if annotation is None else {"context": annotation})
    run = built(instance, function)

    assert seen == [(BuildContext, DAY, run.run_id, run.dagster_run.job_name, run.run_id)]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("retry_number", "of the whole run it is context.dagster_context.retry_number."),
        ("partiton_key", "BuildContext has no attribute 'partiton_key'."),
    ],
)
def test_a_name_that_only_dagsters_context_has_is_refused_with_its_place(
    instance: dg.DagsterInstance, name: str, sentence: str
) -> None:
    def function(context: dg.AssetExecutionContext) -> pd.DataFrame:
        return getattr(context, name)  # type: ignore[no-any-return]

    run = built(instance, function)

    assert sentence in error_of(run).error.message


def test_the_error_of_the_function_is_the_cause_of_the_steps_failure(instance: dg.DagsterInstance) -> None:
    """findings/first-use.md 6"""

    def breaks() -> pd.DataFrame:
        raise ValueError("boom")

    run = built(instance, breaks)
    with pytest.raises(NotBuilt, match="ValueError: boom") as caught:
        dg.materialize([databuild_asset(name="b")(breaks)], instance=instance)

    cause = error_of(run).error.cause
    assert (cause.cls_name, cause.message.strip()) == ("ValueError", "ValueError: boom")
    assert "in breaks" in "".join(cause.stack)
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_metadata_of_dagsters_failure_are_those_of_the_step(instance: dg.DagsterInstance) -> None:
    """findings/first-use.md 4"""

    def refuses() -> pd.DataFrame:
        raise dg.Failure("the shop is closed", metadata={"hours": "9 to 5"})

    run = built(instance, refuses)

    assert error_of(run).user_failure_data.metadata["hours"].value == "9 to 5"
    assert "the shop is closed" in error_of(run).user_failure_data.description


@pytest.mark.parametrize("cause", [None, ConnectionError("the shop does not answer")])
def test_dagsters_request_for_a_retry_is_a_transient_failure(
    instance: dg.DagsterInstance, cause: BaseException | None
) -> None:
    """Rule 6.8: the engine counts the attempts; findings/first-use.md 4."""

    def busy() -> pd.DataFrame:
        raise dg.RetryRequested(max_retries=1) from cause

    run = built(instance, busy)

    queries = engine_for(instance).queries
    (job_run,) = queries.job_runs.newest()
    assert not run.success
    assert queries.canonical.states([job_run.refs[0]]) == {f"a@{DAY}": InstanceState.UP_FOR_RETRY}
    assert job_run.error == (
        "RetryRequested: no message" if cause is None else "ConnectionError: the shop does not answer"
    )


def test_an_asset_that_no_code_location_has_warns_in_the_run(instance: dg.DagsterInstance) -> None:
    """findings/first-use.md 18"""
    asset = databuild_asset(name="alone")(lambda: FRAME)
    job = dg.Definitions(assets=[asset]).get_repository_def().get_job(IMPLICIT_ASSET_JOB_NAME)
    run = instance.create_run_for_job(job, run_config={"execution": {"config": {"in_process": {}}}})

    list(execute_run_iterator(InMemoryJob(job), run, instance))

    warned = [entry.user_message for entry in instance.all_logs(run.run_id) if entry.level == logging.WARNING]
    assert [text for text in warned if "alone is not given to build_definitions" in text]


def test_a_run_in_a_home_that_its_command_removes_warns_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `dg launch` and `dagster asset materialize` make one without DAGSTER_HOME, in the working directory."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    asset = databuild_asset(name="alone")(lambda: FRAME)

    with get_possibly_temporary_instance_for_cli() as instance:
        run = dg.materialize([asset], instance=instance)
        warned = [entry.user_message for entry in instance.all_logs(run.run_id) if entry.level == logging.WARNING]

    assert [text for text in warned if "neither `databuild` nor a later run sees what it builds" in text], warned
