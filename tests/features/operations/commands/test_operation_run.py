"""Operations from the command line: started, followed, looked at, canceled (rules 9, 15)."""

import io
import signal
from typing import Any

import pytest
from rich.console import Console

from databuild_dagster.cli.building import Workshop
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.features.operations.commands.operation_progress import Following
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import RetryJob
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.store.store import open_store
from tests.support.catalog import SmallCatalog
from tests.support.project import MAX_SECONDS, Done, Project, wait_for_line, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

DEFINITIONS = '''
import threading
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, DistributedOperation, RetryJob, build_definitions, databuild_asset

HERE = Path(__file__).parent
days = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])


@databuild_asset(partitions_def=days)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key] * 2})


@databuild_asset(partitions_def=days)
def never_built() -> pd.DataFrame:
    raise ValueError


class Rows(DistributedOperation[dict[str, int]]):
    """Counts what its partitions have, each with at least so many."""

    type_name = "rows"
    arg_type = dict[str, int]

    def start_or_resume_job(self, arg, partition, context):
        (HERE / "held-job").touch()
        for _ in range(30_000):
            if not (HERE / "hold-job").exists():
                break
            context.check()
            threading.Event().wait(0.01)
        else:
            raise TimeoutError("hold-job was not removed within 300 s")
        if "busy" in arg and context.attempt == 1:
            raise RetryJob("the service is busy")
        rows = context.manifest.rows
        context.mark_job_complete(rows >= arg.get(context.partition, 0), {"rows": rows})

    def complete_operation(self, arg, dataset, completion):
        if "full" in arg:
            raise OSError("no room")
        if "then" in arg:
            completion.start("counted", dataset)
            completion.start("counted", "nowhere")
        return {"rows": sum(mark.detail["rows"] for mark in completion.marks.values()), "ok": "bad" not in arg}


class Counted(DistributedOperation):
    """The same by Spark."""

    type_name = "counted"
    batched = True

    def start_or_resume_jobs(self, arg, contexts):
        print("from a job")
        rows = contexts[0].spark.range(len(contexts)).count()
        assert rows == len(contexts)


OPERATIONS = [Rows()]
OPERATIONS += [Counted()]
defs = build_definitions([orders, never_built], operations=OPERATIONS, location="operated")
'''


class TwoRows(DistributedOperation[Any]):
    """Each partition has two rows: the jobs of the project's operation, done in the process of the test."""

    type_name = "rows"
    batched = True

    def start_or_resume_jobs(self, arg: Any, contexts: Any) -> None:
        for context in contexts:
            context.mark_job_complete(detail={"rows": 2})


@pytest.fixture(scope="module")
def project(shared_project: Project) -> Project:
    shared_project.define(DEFINITIONS)
    shared_project.build("orders@mon", "orders@tue", "orders@wed")
    return shared_project


def engine_of(project: Project) -> Engine:
    return Engine(open_store(f"sqlite:///{project.home}/databuild.db"), SmallCatalog([]))


def operate(project: Project, *arguments: str) -> Done:
    return project.call("operation", "run", "rows", "orders", "--local", *arguments)


def test_an_operation_runs_in_this_process_to_its_end(project: Project) -> None:
    done = operate(project, "--arg", "{}", "--json")

    answer = done.json
    assert done.code == 0, done
    assert (answer["state"], answer["done"], answer["failed"], answer["total"]) == ("success", 3, 0, 3)
    assert answer["rows"] == 6
    assert f"Started {answer['operation']} over 3 partitions." in done.err
    assert project.ask("operation", "list") == []
    assert answer["operation"] in [operation["id"] for operation in project.ask("operation", "list", "--all")]
    assert project.ask("operation", "show", answer["operation"])["state"] == "success"
    assert project.is_sound()


@pytest.mark.extended
def test_what_follows_an_operation_is_shown(project: Project) -> None:
    """Rule 9.6"""
    done = project.ask("operation", "run", "rows", "orders", "--arg", '{"then": 1}', "--local")

    (started, refused) = done["follow_ups"]
    id = started["operation"]
    assert (started["type"], started["refused"], refused["operation"]) == ("counted", "", None)
    shown = project.call("operation", "show", done["operation"]).out
    assert f"It started {id}: `databuild operation watch {id}` shows it." in shown
    assert "It could not start counted on nowhere: No code location has registered an asset 'nowhere'." in shown
    listed = project.call("operation", "list", "--all").out
    assert f"{done['operation']} is followed by {id}, counted on nowhere (1 refused)." in listed
    assert project.call("operation", "cancel", id).code == 0


def test_spark_is_the_server_of_the_home(project: Project) -> None:
    try:
        done = project.run("operation", "run", "counted", "orders", "--local", "--json")

        assert (done.code, done.json["done"]) == (0, 3), done
        assert (len(done.out.splitlines()), "from a job" in done.err) == (1, True), "what jobs print is not the answer"
        assert len(project.ask("spark", "status")) == 1
    finally:
        project.call("spark", "stop")


def test_an_operation_takes_partitions_named_by_key_range_or_ref(project: Project) -> None:
    answer = operate(project, "--arg", "{}", "--partitions", "tue..wed,orders@wed", "--json").json

    assert (answer["total"], answer["rows"]) == (2, 4)


def test_failed_jobs_are_shown_with_the_reason_and_exit_code_1(project: Project) -> None:
    done = operate(project, "--arg", '{"tue": 3}')

    assert done.code == 1
    assert 'tue        {"rows":2}' in done.out
    assert "failed; 2 of 3 jobs done, 1 failed." in done.out.splitlines()[-1]


def test_a_report_that_finds_something_wrong_is_exit_code_1(project: Project) -> None:
    done = operate(project, "--arg", '{"bad": 1}', "--json")

    assert (done.code, done.json["state"], done.json["ok"]) == (1, "success", False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("operation", "run", "unheard", "orders"), "No operation of type 'unheard' is known here, only "),
        (("operation", "run", "rows", "orders", "--arg", "{bad"), "--arg is '{bad', which is no JSON"),
        (("operation", "run", "rows", "orders", "--arg", '{"tue": "x"}'), "its argument is wrong"),
        (("operation", "run", "rows", "never_built", "--arg", "{}"), "it has no live partition"),
        (("operation", "run", "rows", "order", "--arg", "{}"), "No code location has registered an asset 'order'"),
        (("operation", "run", "rows", "orders", "--arg", "{}", "--partitions", "mon,sun"), "not live: sun"),
        (
            ("operation", "run", "rows", "orders", "--arg", "{}", "--partitions", "other@mon"),
            "it is no partition of orders",
        ),
        (
            ("operation", "run", "rows", "orders", "--arg", "{}", "--partitions", "orders@"),
            "the partition key after '@' is empty",
        ),
        (
            ("operation", "run", "rows", "orders", "--arg", "{}", "--local", "--no-wait"),
            "with --local, this process runs the jobs",
        ),
        (
            ("operation", "run", "rows", "orders", "--arg", "{}", "--local", "--timeout", "5s"),
            "--local and --timeout exclude each other",
        ),
        (("operation", "show", "orders.rows.99"), "There is no operation 'orders.rows.99'"),
        (("operation", "watch", "nonsense"), "There is no operation 'nonsense'"),
        (("operation", "cancel", "orders.rows.99"), "There is no operation 'orders.rows.99'"),
    ],
)
def test_an_operation_that_cannot_start_is_one_sentence(
    project: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    done = project.call(*arguments)

    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1
    assert project.ask("operation", "list") == []


def test_a_started_one_is_listed_shown_and_canceled(project: Project) -> None:
    started = project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]

    (listed,) = project.ask("operation", "list", "orders")
    assert [listed] == [
        {
            "id": started,
            "type": "rows",
            "dataset": "orders",
            "state": "running",
            "done": 0,
            "failed": 0,
            "total": 3,
            "problem": None,
            "started_at": listed["started_at"],
            "ended_at": None,
            "completion": None,
            "follow_ups": [],
        }
    ]
    refused = project.call("operation", "run", "rows", "orders", "--arg", "{}")
    assert (refused.code, "only one of its type may at a time" in refused.err) == (2, True)
    assert project.call("operation", "cancel", started, "--reason", "not needed").out == f"Canceled {started}.\n"
    assert "canceled (not needed)" in project.call("operation", "show", started).out
    assert project.call("operation", "cancel", started).out == f"{started} had ended before: canceled.\n"
    assert project.call("operation", "watch", started).code == 1
    assert project.ask("operation", "list") == []


def test_the_live_table_has_a_row_for_each_partition_in_work(project: Project) -> None:
    class Rows(DistributedOperation[Any]):
        type_name = "rows"

    started = OperationId.parse(
        project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    )
    engine = engine_of(project)
    manager = DistributedOperationManager(engine, [Rows()])
    first, second = Executor(manager).take(started, 2)
    out = io.StringIO()

    Console(file=out, width=120).print(Following(manager, started).render())

    lines = [line.split() for line in out.getvalue().splitlines()]
    assert " ".join(lines[0]).startswith(f"{started}: 0 of 3 jobs done, 0 failed")
    assert [line[:2] for line in lines[2:4]] == [[job.context.partition, "running"] for job in (first, second)]
    assert lines[-1] == ["1", "job", "waiting"]
    manager.cancel(started)


def test_the_live_table_says_why_a_job_is_tried_again(project: Project) -> None:
    class Rows(DistributedOperation[Any]):
        type_name = "rows"

        def start_or_resume_job(self, arg: Any, partition: Any, context: Any) -> None:
            raise RetryJob("the service is busy")

    started = project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    manager = DistributedOperationManager(engine_of(project), [Rows()])
    id = OperationId.parse(started)
    Executor(manager).step(id, 1)
    out = io.StringIO()

    Console(file=out, width=120).print(Following(manager, id).render())
    shown = project.call("operation", "show", started).out
    (answer,) = project.ask("operation", "show", started)["retrying"].values()
    manager.cancel(id)

    (row,) = [line for line in out.getvalue().splitlines() if "retrying" in line]
    assert "after attempt 1: RetryJob: the service is busy" in row
    assert "after attempt 1: RetryJob: the service is busy" in shown
    assert (answer["error"], answer["attempts"]) == ("RetryJob: the service is busy", 1)


def test_a_retry_is_reported_by_its_executor_and_shown_to_others(project: Project) -> None:
    """Rules 9.5, 9.6"""
    arguments = ("--arg", '{"busy": 1, "full": 1}', "--partitions", "mon", "--local")
    process = project.start("operation", "run", "rows", "orders", *arguments)
    answer = wait_for_line(process, "its completion raised")
    (running,) = project.ask("operation", "list")
    listed, shown = project.call("operation", "list").out, project.call("operation", "show", running["id"]).out
    project.call("operation", "cancel", running["id"])
    process.communicate(timeout=MAX_SECONDS)

    assert any("orders@mon is tried again in" in line and "RetryJob: the service is busy" in line for line in answer), (
        answer
    )
    assert (running["done"], running["problem"]) == (1, "its completion raised OSError: no room")
    assert f"{running['id']} is tried again " in listed
    assert ": its completion raised OSError: no room" in listed
    assert ": its completion raised OSError: no room" in shown
    assert process.returncode == 1


def test_records_of_newer_code_are_named_and_stop_nothing(project: Project) -> None:
    """Bad input of issue 7"""
    ended = project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    project.call("operation", "cancel", ended)
    running = OperationId.parse(
        project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    )
    meta = DistributedOperationManager(engine_of(project)).meta
    meta.put(OperationId.parse(ended).history, b'{"format":7}')
    meta.put(running.arg, b'{"format":7}')

    listed = project.call("operation", "list", "--all")
    shown = [project.call("operation", "show", item) for item in (ended, str(running))]
    ticked = project.call("tick")
    canceled = project.call("operation", "cancel", str(running))
    meta.remove(OperationId.parse(ended).history)

    assert [done.code for done in (listed, *shown, canceled)] == [0, 0, 0, 0], (listed, shown)
    assert f"Operation {running} is of newer code" in ticked.out + ticked.err
    assert f"{ended} cannot be read here: Operation {ended} is of newer code" in listed.out
    assert "unreadable; 0 of 0 jobs done" in shown[0].out
    assert f"{running}: running; 0 of 3 jobs done" in shown[1].out, "and no time, because no code here can read it"


def test_a_tick_says_whose_jobs_wait_and_which_operation_it_completed(project: Project) -> None:
    """Rule 11.1"""
    started = project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    waiting = project.call("tick").out
    engine = engine_of(project)
    assert Executor(DistributedOperationManager(engine, [TwoRows()])).step(OperationId.parse(started), 3)

    ended = project.ask("tick")

    assert waiting == f"3 jobs of {started} without an executor.\n"
    assert (ended["operations"], ended["stuck_operations"]) == ({started: "success"}, {})
    assert project.ask("operation", "show", started)["rows"] == 6
    assert project.call("tick").out == "Nothing is due.\n"


def test_ticks_until_idle_exit_with_1_for_an_operation_that_failed(project: Project) -> None:
    class Rows(DistributedOperation[Any]):
        type_name = "rows"

        def start_or_resume_job(self, arg: Any, partition: Any, context: Any) -> None:
            context.mark_job_complete(False, {"rows": 0})

    started = project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    Executor(DistributedOperationManager(engine_of(project), [Rows()])).step(OperationId.parse(started), 1)

    done = project.call("tick", "--until-idle", "--json")

    assert (done.code, done.json["operations"], done.json["failed"]) == (1, {started: "failed"}, 0)


def test_ticks_until_idle_exit_with_1_for_an_operation_whose_completion_raised(project: Project) -> None:
    """The pass that raised is not the last one: the next waits for the backoff."""
    started = project.ask("operation", "run", "rows", "orders", "--arg", '{"full": 1}', "--no-wait")["operation"]
    Executor(DistributedOperationManager(engine_of(project), [TwoRows()])).step(OperationId.parse(started), 3)

    done = project.call("tick", "--until-idle")

    project.call("operation", "cancel", started)
    assert (done.code, done.out) == (
        1,
        f"Nothing is due.\n{started} cannot continue: its completion raised OSError: no room\n",
    )


@pytest.mark.parametrize("is_stuck", [False, True], ids=["its jobs wait", "it is stuck"])
def test_ticks_until_idle_report_no_operation_that_was_canceled(
    project: Project, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    started = project.ask("operation", "run", "rows", "orders", "--arg", '{"full": 1}', "--no-wait")["operation"]
    id, manager = OperationId.parse(started), DistributedOperationManager(engine_of(project), [TwoRows()])
    if is_stuck:
        Executor(manager).step(id, 3)
    tick, troubles = Workshop.tick, []

    def tick_before_it_is_canceled(workshop: Workshop, seen: Any) -> TickReport:
        report = tick(workshop, seen)
        troubles.append([*seen.stuck] if is_stuck else [*seen.waiting_jobs])
        if len(troubles) == 1:
            manager.cancel(id)
        return report

    monkeypatch.setattr(Workshop, "tick", tick_before_it_is_canceled)

    done = project.call("tick", "--until-idle", "--json")

    assert (troubles[0], troubles[-1]) == ([started], [])
    assert (done.json["jobs_without_executor"], done.json["stuck_operations"]) == ({}, {})


def test_an_operation_whose_code_is_gone_says_so_and_can_be_canceled(project: Project) -> None:
    started = project.ask("operation", "run", "rows", "orders", "--arg", "{}", "--no-wait")["operation"]
    try:
        project.define(DEFINITIONS.replace("OPERATIONS = [Rows()]", "OPERATIONS = []"))

        listed = project.call("operation", "list")
        shown = project.call("operation", "show", started)
        canceled = project.call("operation", "cancel", started)
    finally:
        project.define(DEFINITIONS)

    assert f"{started} cannot continue here: No operation of type 'rows' is known here" in listed.out
    assert "It cannot continue here: No operation of type 'rows'" in shown.out
    assert canceled.code == 0
    assert project.ask("operation", "list") == []


@pytest.mark.parametrize(
    ("operations", "sentence"),
    [
        ("[Rows]", "is no DistributedOperation; make an object of it: Rows()"),
        ("[Rows(), Rows()]", "gives an operation 'rows', which build_definitions(operations=…) gives already"),
    ],
)
def test_types_that_cannot_be_registered_are_refused_as_the_definitions_load(
    project: Project, operations: str, sentence: str
) -> None:
    try:
        project.define(DEFINITIONS.replace("OPERATIONS = [Rows()]", f"OPERATIONS = {operations}"))

        done = project.call("operation", "run", "rows", "orders")
    finally:
        project.define(DEFINITIONS)

    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_a_missing_orchestrator_is_reported_and_ctrl_c_detaches(project: Project) -> None:
    """Another command runs the jobs then."""
    process = project.start("operation", "run", "rows", "orders", "--arg", "{}", "--json")
    wait_for_line(process, "no orchestrator of location")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=MAX_SECONDS)

    (running,) = project.ask("operation", "list")
    assert process.returncode == 130
    assert f"It continues: `databuild operation watch {running['id']}`" in err
    done = project.call("operation", "watch", running["id"], "--local", "--json")
    assert (done.code, done.json["state"], done.json["done"]) == (0, "success", 3)


def test_a_wait_ends_after_its_timeout_and_the_operation_continues(project: Project) -> None:
    done = project.call("operation", "run", "rows", "orders", "--arg", "{}", "--timeout", "1s")

    (running,) = project.ask("operation", "list")
    assert done.code == 1
    assert f"{running['id']} has not ended after 1 s. It continues: `databuild operation watch" in done.err
    assert project.call("operation", "watch", running["id"], "--timeout", "1s").code == 1
    project.call("operation", "cancel", running["id"])


def test_ctrl_c_gives_the_jobs_of_this_process_back_and_another_goes_on(project: Project) -> None:
    project.hold("job")
    (project.folder / "held-job").unlink(missing_ok=True)
    process = project.start("operation", "run", "rows", "orders", "--arg", "{}", "--local")
    try:
        wait_until(lambda: (project.folder / "held-job").exists(), "a job runs")

        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=MAX_SECONDS)
    finally:
        project.release("job")

    (running,) = project.ask("operation", "list")
    assert process.returncode == 130
    assert "The jobs of this process are free for others." in err
    assert project.ask("operation", "show", running["id"])["running"] == {}
    done = project.call("operation", "watch", running["id"], "--local", "--json")
    assert (done.code, done.json["done"]) == (0, 3)
    assert project.is_sound()
