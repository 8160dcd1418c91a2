"""Operations from the command line: started, followed, looked at, canceled (rules 9, 15)."""

import signal
from typing import Any

import pytest

from databuild_dagster.bindings.local.building import Workshop
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import RetryJob
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.store.store import open_store
from tests.support.catalog import SmallCatalog
from tests.support.project import MAX_SECONDS, Done, Project, wait_until

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
        if "until its end" in arg and context.partition != "mon":
            for _ in range(30_000):
                context.check()
                threading.Event().wait(0.01)
        rows = context.manifest.rows
        context.mark_job_complete(rows >= arg.get(context.partition, 0), {"rows": rows})

    def complete_operation(self, arg, dataset, completion):
        if "full once" in arg and not (HERE / "was-full").exists():
            (HERE / "was-full").touch()
            raise OSError("no room")
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
defs = build_definitions([orders], operations=OPERATIONS, location="operated")
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


def start(project: Project, arg: str = "{}") -> OperationId:
    """An operation whose jobs wait for an executor."""
    answer = project.ask("operation", "run", "rows", "orders", "--arg", arg, "--no-wait")
    return OperationId.parse(answer["operation"])


def manager_of(project: Project, operation: DistributedOperation[Any] | None = None) -> DistributedOperationManager:
    return DistributedOperationManager(engine_of(project), [operation or TwoRows()])


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


def test_fail_fast_ends_an_operation_before_its_other_jobs(project: Project) -> None:
    """Rule 9.6"""
    arg = '{"mon": 5, "until its end": 1}'

    done = project.call("operation", "run", "rows", "orders", "--arg", arg, "--local", "--fail-fast", "--json")

    assert (done.code, done.json["state"], done.json["done"], done.json["failed"]) == (1, "failed", 0, 1)


def test_what_follows_an_operation_is_shown(project: Project) -> None:
    """Rule 9.6"""
    done = project.ask("operation", "run", "rows", "orders", "--arg", '{"then": 1}', "--local")

    (started, refused) = done["follow_ups"]
    id = started["operation"]
    assert (started["type"], started["refused"], refused["operation"]) == ("counted", "", None)
    shown = project.call("operation", "show", done["operation"]).out
    assert f"It started {id}: `databuild operation show --watch {id}` shows it." in shown
    assert "It could not start counted on nowhere: No code location has registered an asset 'nowhere'." in shown
    listed = project.call("operation", "list", "--all").out
    assert f"{done['operation']} is followed by {id}, counted on nowhere (1 refused)." in listed
    assert project.call("operation", "cancel", id).code == 0


@pytest.mark.long("a process starts the Spark server of its home, and prints what its jobs print")
def test_spark_is_the_server_of_the_home(project: Project) -> None:
    try:
        done = project.run("operation", "run", "counted", "orders", "--local", "--json")

        assert (done.code, done.json["done"]) == (0, 3), done
        assert (len(done.out.splitlines()), "from a job" in done.err) == (1, True), "what jobs print is not the answer"
        assert len(project.ask("spark")) == 1
    finally:
        project.call("spark", "--stop")


def test_an_operation_takes_partitions_named_by_key_range_or_ref(project: Project) -> None:
    answer = operate(project, "--arg", "{}", "--partitions", "tue..wed,orders@wed", "--json").json

    assert (answer["total"], answer["rows"]) == (2, 4)


def test_failed_jobs_are_shown_with_the_reason_and_exit_code_1(project: Project) -> None:
    done = operate(project, "--arg", '{"tue": 3}')

    assert done.code == 1
    assert 'tue        {"rows":2}' in done.out
    assert "failed; 2 of 3 jobs done, 1 failed." in done.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("run", "unheard", "orders"), "UnknownOperationType"),
        (("run", "rows", "order"), "UnknownAsset"),
        (("show", "orders.rows.99"), "NotFound"),
        (("show", "--watch", "nonsense"), "NotFound"),
        (("cancel", "orders.rows.99"), "NotFound"),
    ],
)
def test_an_impossible_command_is_exit_code_2_and_starts_nothing(
    project: Project, arguments: tuple[str, ...], kind: str
) -> None:
    with project.recording_nothing():
        done = project.call("operation", *arguments, "--json")

    assert (done.code, done.json["error"]["type"]) == (2, kind)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--arg", "{bad"), "--arg is '{bad', which is no JSON"),
        (("--partitions", "other@mon"), "it is no partition of orders"),
        (("--local", "--no-wait"), "with --local, this process runs the jobs"),
        (("--local", "--timeout", "5s"), "--local and --timeout exclude each other"),
        (("--parallel", "2"), "--parallel needs --local"),
    ],
)
def test_impossible_options_are_one_sentence(project: Project, options: tuple[str, ...], sentence: str) -> None:
    with project.recording_nothing():
        done = project.call("operation", "run", "rows", "orders", *options)

    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_a_started_one_is_listed_shown_and_canceled(project: Project) -> None:
    started = str(start(project))

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
    refused = project.call("operation", "run", "rows", "orders", "--arg", "{}", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (2, "IncompatibleOperation")
    assert project.call("operation", "cancel", started, "--reason", "not needed").out == f"Canceled {started}.\n"
    assert "canceled (not needed)" in project.call("operation", "show", started).out
    assert project.call("operation", "cancel", started).out == f"{started} had ended before: canceled.\n"
    assert project.call("operation", "show", "--watch", started).code == 1
    assert project.ask("operation", "list") == []


def test_a_retried_job_is_shown_with_its_error(project: Project) -> None:
    class Rows(TwoRows):
        def start_or_resume_jobs(self, arg: Any, contexts: Any) -> None:
            raise RetryJob("the service is busy")

    id, manager = start(project), manager_of(project, Rows())
    Executor(manager).step(id, 1)

    shown = project.call("operation", "show", str(id)).out
    (answer,) = project.ask("operation", "show", str(id))["retrying"].values()

    manager.cancel(id)
    assert "after attempt 1: RetryJob: the service is busy" in shown
    assert (answer["error"], answer["attempts"]) == ("RetryJob: the service is busy", 1)


def test_retries_are_reported_by_the_command_that_runs_the_jobs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 9.5, 9.6"""
    monkeypatch.setattr("databuild_dagster.features.operations.job.BACKOFF_SECONDS", 0.1)

    done = operate(project, "--arg", '{"busy": 1, "full once": 1}', "--partitions", "mon")

    of_the_job, of_the_completion = [line for line in done.err.splitlines() if "is tried again" in line]
    assert done.code == 0
    assert "orders@mon is tried again" in of_the_job
    assert "RetryJob: the service is busy" in of_the_job
    assert "its completion raised OSError: no room" in of_the_completion


def test_records_of_newer_code_are_named_and_stop_nothing(project: Project) -> None:
    """Bad input of issue 7"""
    manager, ended = manager_of(project), start(project)
    manager.cancel(ended)
    running = start(project)
    manager.meta.put(ended.history, b'{"format":7}')
    manager.meta.put(running.arg, b'{"format":7}')

    listed = project.call("operation", "list", "--all")
    shown = [project.call("operation", "show", item) for item in (str(ended), str(running))]
    ticked = project.call("admin", "tick")
    canceled = project.call("operation", "cancel", str(running))
    manager.meta.remove(ended.history)

    assert [done.code for done in (listed, *shown, canceled)] == [0, 0, 0, 0], (listed, shown)
    assert f"Operation {running} " in ticked.out + ticked.err
    assert f"{ended} cannot be read here: Operation {ended} " in listed.out
    assert "unreadable; 0 of 0 jobs done" in shown[0].out
    assert f"{running}: running; 0 of 3 jobs done" in shown[1].out, "and no time, because no code here can read it"


def test_a_tick_says_whose_jobs_wait_and_which_operation_it_completed(project: Project) -> None:
    """Rule 11.1"""
    id = start(project)
    waiting = project.call("admin", "tick").out
    assert Executor(manager_of(project)).step(id, 3)

    ended = project.ask("admin", "tick")

    assert waiting == f"3 jobs of {id} without an executor.\n"
    assert (ended["operations"], ended["stuck_operations"]) == ({str(id): "success"}, {})
    assert project.ask("operation", "show", str(id))["rows"] == 6
    assert project.call("admin", "tick").out == "Nothing is due.\n"


def test_ticks_until_idle_exit_with_1_for_an_operation_that_failed(project: Project) -> None:
    class Rows(TwoRows):
        def start_or_resume_jobs(self, arg: Any, contexts: Any) -> None:
            for context in contexts:
                context.mark_job_complete(context.partition != "mon", {"rows": 0})

    id = start(project)
    Executor(manager_of(project, Rows())).step(id, 3)

    done = project.call("admin", "tick", "--until-idle", "--json")

    assert (done.code, done.json["operations"], done.json["failed"]) == (1, {str(id): "failed"}, 0)


def test_a_completion_that_raised_is_exit_code_1_of_ticks_and_shown_to_others(project: Project) -> None:
    """Rule 9.6: the pass that raised is not the last one; the next waits for the backoff."""
    id, problem = start(project, '{"full": 1}'), "its completion raised OSError: no room"
    Executor(manager_of(project)).step(id, 3)

    done = project.call("admin", "tick", "--until-idle")
    (running,) = project.ask("operation", "list")
    listed, shown = (project.call("operation", *words).out for words in (["list"], ["show", str(id)]))

    manager_of(project).cancel(id)
    assert (done.code, done.out) == (1, f"Nothing is due.\n{id} cannot continue: {problem}\n")
    assert (running["done"], running["problem"]) == (3, problem)
    assert f"{id} is tried again " in listed
    assert f": {problem}" in listed
    assert f": {problem}" in shown


@pytest.mark.parametrize("is_stuck", [False, True], ids=["its jobs wait", "it is stuck"])
def test_ticks_until_idle_report_no_operation_that_was_canceled(
    project: Project, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    id, manager = start(project, '{"full": 1}'), manager_of(project)
    if is_stuck:
        Executor(manager).step(id, 3)
    tick, troubles = Workshop.tick, []

    def tick_before_it_is_canceled(workshop: Workshop, seen: Any) -> TickReport:
        report = tick(workshop, seen)
        troubles.append([*seen.stuck_operations] if is_stuck else [*seen.jobs_without_executor])
        if len(troubles) == 1:
            manager.cancel(id)
        return report

    monkeypatch.setattr(Workshop, "tick", tick_before_it_is_canceled)

    done = project.call("admin", "tick", "--until-idle", "--json")

    assert (troubles[0], troubles[-1]) == ([str(id)], [])
    assert (done.json["jobs_without_executor"], done.json["stuck_operations"]) == ({}, {})


def test_an_operation_whose_code_is_gone_says_so_and_can_be_canceled(project: Project) -> None:
    started = str(start(project))
    try:
        project.define(DEFINITIONS.replace("OPERATIONS = [Rows()]", "OPERATIONS = []"))

        listed = project.call("operation", "list")
        shown = project.call("operation", "show", started)
        canceled = project.call("operation", "cancel", started)
    finally:
        project.define(DEFINITIONS)

    assert f"{started} cannot continue here: " in listed.out
    assert "It cannot continue here: " in shown.out
    assert canceled.code == 0
    assert project.ask("operation", "list") == []


def test_a_wait_ends_after_its_timeout_and_names_the_missing_orchestrator(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command runs the jobs then."""
    monkeypatch.setattr("databuild_dagster.features.operations.commands.operation_progress.PATIENCE_SECONDS", 0.1)

    done = project.call("operation", "run", "rows", "orders", "--arg", "{}", "--timeout", "1s")

    (running,) = project.ask("operation", "list")
    assert done.code == 1
    assert done.err.count("no orchestrator of location") == 1
    assert f"{running['id']} has not ended after 1 s. It continues: `databuild operation show --watch" in done.err
    watched = project.call("operation", "show", "--watch", running["id"], "--local", "--json")
    assert (watched.code, watched.json["state"], watched.json["done"]) == (0, "success", 3)


@pytest.mark.long("Ctrl-C reaches a process")
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
    assert "The jobs of this process are free for others. It continues: " in err
    assert project.ask("operation", "show", running["id"])["running"] == {}
    done = project.call("operation", "show", "--watch", running["id"], "--local", "--json")
    assert (done.code, done.json["done"]) == (0, 3)
    assert project.is_sound()
