"""Operations on Dagster: the context of a job, executors as Dagster runs, and the tick that launches them (rules 9.4-9.7)."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, DistributedOperation, OperationContext, RetryJob, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import InMemoryJob, execute_run_iterator
from databuild_dagster.bindings.adapter.run_tags import EXECUTOR_TAG, OPERATION_TAG, OUTCOME_TAG, WORKER_TAG
from databuild_dagster.features.operations.executor_runs import OPERATION_JOB, OperationsTick, operations_tick
from databuild_dagster.features.operations.operations import operation_resources
from databuild_dagster.model.commands import CreateWants, TaintPartitions
from databuild_dagster.model.operations import invokes, records, states
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.warehouse import disk
from tests.bindings.conftest import Site
from tests.bindings.module_site import module_site
from tests.support.checking import check
from tests.support.dagster_files import fresh_instance
from tests.support.dead_process import dead_process
from tests.support.endless import ENDLESS
from tests.support.questions import recorded_questions

from .running import Running, manager_of_site

DAYS = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])
MAX_SECONDS = 120.0


@databuild_asset(partitions_def=DAYS)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key] * 2})


class Rows(DistributedOperation[Any]):
    """Counts rows, through a file of its own; the argument names partitions that are bad."""

    type_name = "rows"

    def start_or_resume_job(self, arg: Any, partition: Any, context: OperationContext) -> None:
        rows = len(context.read(format="pandas"))
        with context.folder() as folder:
            disk.make_dirs(folder)
            (Path(folder) / "rows").write_text(str(rows))
            context.mark_job_complete(
                partition.partition_key not in (arg or ()), {"rows": int((Path(folder) / "rows").read_text())}
            )
        assert not Path(folder).exists()
        context.log.info("counted %s", partition)

    def complete_operation(self, arg: Any, dataset: str, completion: Any) -> Any:
        return sum(mark.detail["rows"] for mark in completion.marks.values())


class Endless(DistributedOperation[Any]):
    """Never ends by itself."""

    type_name = "endless"

    def __init__(self) -> None:
        self.began = threading.Event()
        self.spark: Any = None
        self.rows: list[int] = []
        self.cleaned: list[str] = []

    def start_or_resume_job(self, arg: Any, partition: Any, context: OperationContext) -> None:
        self.spark = context.spark
        self.rows.append(context.read().count())
        self.began.set()
        context.spark.sql(ENDLESS).collect()

    def cancel_job_and_cleanup(self, arg: Any, partition: Any, context: OperationContext) -> None:
        self.cleaned.append(context.partition)


class Helpless(DistributedOperation[Any]):
    """Kept from working by something that is not the data."""

    type_name = "helpless"

    def start_or_resume_job(self, arg: Any, partition: Any, context: OperationContext) -> None:
        if arg == "later" and context.attempt == 1:
            raise RetryJob("not yet")


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture(scope="module")
def given(spark_home: str) -> Iterator[str]:
    """The home of a deployment where the orders are live."""
    with module_site(spark_home, orders) as site:
        site.build("orders@mon", "orders@tue", "orders@wed")
        yield site.instance.root_directory


@pytest.fixture
def instance(given: str) -> Iterator[dg.DagsterInstance]:
    with fresh_instance(given) as instance:
        yield instance


@pytest.fixture
def site(deploy: Any, endless: Endless) -> Site:
    site: Site = deploy(orders, operations=[Rows(), endless, Helpless()])
    return site


@pytest.fixture
def tick(site: Site) -> OperationsTick:
    return operations_tick(site.instance, site.deployment)


def started(site: Site, type_name: str, arg: Any = None) -> OperationId:
    return manager_of_site(site).start(type_name, "orders", arg)


def execute(site: Site, request: dg.RunRequest) -> dg.DagsterRun:
    """As the daemon would, in this process."""
    job = site.repository.get_job(OPERATION_JOB)
    run = create(site, request)
    for _ in execute_run_iterator(InMemoryJob(job), run, site.instance):
        pass
    found = site.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


def create(site: Site, request: dg.RunRequest, **options: Any) -> dg.DagsterRun:
    tags = {**request.tags, "dagster/run_key": str(request.run_key), **options.pop("tags", {})}
    job = site.repository.get_job(OPERATION_JOB)
    return site.instance.create_run_for_job(job, run_config=dict(request.run_config), tags=tags, **options)


def keys(site: Site) -> list[str]:
    stays = ("nextInstanceId", "distOpHistory")
    return [e.key for e in manager_of_site(site).meta.prefix("distOp").entries if not any(s in e.key for s in stays)]


def test_an_executor_is_a_dagster_run_and_the_tick_completes_what_it_has_done(site: Site, tick: OperationsTick) -> None:
    id = started(site, "rows", ["tue"])

    asked = tick().requests
    run = execute(site, asked[0])
    completed = tick().coordination.completed

    view = manager_of_site(site).operation(id)
    assert [request.run_key for request in asked] == [f"{id} executor 1"], "three jobs are work for one"
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.tags[OPERATION_TAG] == str(id)
    assert EXECUTOR_TAG in run.tags
    assert completed == {id: OperationState.FAILED}
    assert (view.done, view.failed, view.report) == (2, {"tue": {"rows": 2}}, 6)
    assert keys(site) == []
    assert list(check(site.engine.store)) == []
    metadata = output_metadata(site, run)
    assert (metadata["done"].value, metadata["total"].value, metadata["failed_here"].value) == (2, 3, 1)
    assert metadata["partitions"].records[0].data["partition"] == "tue", "what failed comes first"
    messages = [entry.message for entry in site.instance.all_logs(run.run_id)]
    assert any("2 of 3 jobs done, 1 failed" in message for message in messages)
    assert any("counted orders@mon" in message for message in messages)


def output_metadata(site: Site, run: dg.DagsterRun) -> dict[str, Any]:
    for entry in site.instance.all_logs(run.run_id):
        event = entry.dagster_event
        if event is not None and event.event_type_value == "STEP_OUTPUT":
            return dict(event.step_output_data.metadata)
    raise AssertionError("there was no output")


def test_a_tick_without_operations_asks_one_question_and_the_next_finds_a_new_one(
    site: Site, tick: OperationsTick, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 11.3"""
    tick()
    site.engine.handle(CreateWants(wants=(("orders@mon",),)))
    head = site.engine.queries.events.head()
    asked = recorded_questions(monkeypatch)

    assert tick().requests == []
    assert len(asked) == 1
    assert site.engine.queries.events.head() == head
    id = started(site, "helpless")
    assert len(tick().requests) == 1
    manager_of_site(site).cancel(id)


def test_executors_are_asked_for_by_the_same_keys_until_they_are_there_and_not_again(
    site: Site, tick: OperationsTick
) -> None:
    id = started(site, "helpless")

    first, lost = tick().requests, tick().requests
    create(site, first[0], status=dg.DagsterRunStatus.STARTING)
    second = tick().requests

    assert [request.run_key for request in first] == [request.run_key for request in lost]
    assert [request.run_key for request in second] == [], "not more than its jobs can occupy"
    assert len(first) == 1
    manager_of_site(site).cancel(id)


def test_an_executor_whose_process_is_gone_is_ended_in_dagster_and_has_a_successor(
    site: Site, tick: OperationsTick
) -> None:
    id = started(site, "helpless")
    (first,) = tick().requests
    run = create(site, first, status=dg.DagsterRunStatus.STARTED, tags={WORKER_TAG: dead_process()})

    (second,) = tick().requests

    ended = site.instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE
    assert ended.tags[OUTCOME_TAG] == "lost"
    assert second.run_key == f"{id} executor 2"
    execute(site, second)
    assert tick().coordination.completed == {id: OperationState.SUCCESS}


def test_after_an_executor_that_failed_by_itself_the_next_one_waits_a_moment(site: Site, tick: OperationsTick) -> None:
    id = started(site, "helpless")
    (first,) = tick().requests
    site.instance.report_run_failed(create(site, first, status=dg.DagsterRunStatus.STARTED), "no Spark anywhere")

    assert tick().requests == []
    manager_of_site(site).cancel(id)


def test_after_an_executor_that_had_got_on_with_it_the_next_one_comes_at_once(site: Site, tick: OperationsTick) -> None:
    """Many are killed while a long operation runs; each of them would double how long the next one waits."""
    id = started(site, "helpless")
    (first,) = tick().requests
    run = create(site, first, status=dg.DagsterRunStatus.STARTED)
    lease = records.Lease(token="of it", executor="it", holder="somewhere", at=0.0)
    done = invokes.mark(id, "mon", lease, records.Mark(states.JobState.SUCCESS, None))
    manager_of_site(site).meta.invoke_all([invokes.take(id, "mon", None, lease), done])
    site.instance.report_run_failed(run, "its process was killed")

    (second,) = tick().requests

    assert second.run_key == f"{id} executor 2"
    manager_of_site(site).cancel(id)


def test_a_job_is_retried_by_the_same_executor(
    site: Site, tick: OperationsTick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("databuild_dagster.features.operations.job.BACKOFF_SECONDS", 0.1)
    id = started(site, "helpless", "later")

    run = execute(site, tick().requests[0])
    tick()

    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert manager_of_site(site).operation(id).state is OperationState.SUCCESS
    said = [line.message for line in site.instance.all_logs(run.run_id) if "is tried again" in line.message]
    assert sorted(said) == [
        f"orders@{day} is tried again in 0 s, after attempt 1: RetryJob: not yet" for day in ("mon", "tue", "wed")
    ]


@pytest.mark.long("only Spark runs work that can be interrupted")
def test_canceling_interrupts_what_a_job_runs_in_spark(site: Site, endless: Endless) -> None:
    """Rule 9.7"""
    running = Running(site, "endless")

    with ThreadPoolExecutor(1) as elsewhere:
        working = elsewhere.submit(running.run_jobs, 1)
        try:
            assert endless.began.wait(MAX_SECONDS), f"no job of the operation began within {MAX_SECONDS:.0f} s"
            running.manager.cancel(running.id, "enough")
            # A TimeoutError says that the operation was canceled and its job goes on.
            working.result(MAX_SECONDS)
        finally:
            if not working.done():
                running.manager.cancel(running.id, "the test failed")
                if endless.spark is not None:
                    endless.spark.interruptAll()

    assert manager_of_site(site).operation(running.id).state is OperationState.CANCELED
    assert (endless.rows, len(endless.cleaned)) == ([2], 1)
    assert keys(site) == []


def test_data_that_is_gone_is_the_failure_of_its_job(site: Site, tick: OperationsTick) -> None:
    site.engine.handle(TaintPartitions(refs=("orders@tue",), reason="wrong"))
    site.build("orders@tue")
    id = started(site, "rows")
    uuid = site.engine.queries.canonical.of(["orders@tue"])["orders@tue"].uuid
    assert uuid is not None
    operation_resources(site.instance, site.deployment).warehouse.remove_instance("orders", uuid)

    execute(site, tick().requests[0])

    failed = manager_of_site(site).operation(id).failed
    assert list(failed) == ["tue"]
    assert failed["tue"]["error"].startswith("DataRemoved: orders@tue ")
    manager_of_site(site).cancel(id)
