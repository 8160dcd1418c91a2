"""Ctrl-C, kill -9: what was going on ends cleanly, and a second build goes on (rules 6.9, 6.10)."""

import json
import os
import re
import signal

import pytest

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.model.commands import CancelJobRuns
from databuild_dagster.store.queries.job_runs import JobRunView
from tests.support.project import MAX_SECONDS, Project, wait_for_line, wait_until

INTERRUPTED = pytest.mark.long("Ctrl-C and kill -9 reach a process")

JANUARY = "revenue@2024-01-01"
DAY = "orders@2024-01-30"


def open_job_runs(project: Project) -> list[JobRunView]:
    return project.queries.job_runs.newest(open_only=True)


@INTERRUPTED
def test_ctrl_c_cancels_the_job_runs_and_the_request_and_a_second_build_continues(project: Project) -> None:
    project.hold("2024-01-30")
    process = project.start("build", JANUARY)
    project.wait_until_held("2024-01-30")

    process.send_signal(signal.SIGINT)
    lines = wait_for_line(process, "Stopping")
    project.release("2024-01-30")
    out, rest = process.communicate(timeout=MAX_SECONDS)

    err = "".join(lines) + rest
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert re.search("Stopping .*orders@2024-01-30.*, for at most 10 s", err)
    assert f"To continue: databuild build {JANUARY}" in out
    assert re.search(rf"^{JANUARY} .* not built before", out, re.MULTILINE), out
    # Each of the two neighbors of the held one may be live by then.
    assert re.search(r"\b(1 job run|[23] job runs) canceled\.", out), out
    assert open_job_runs(project) == []
    assert project.ask("want", "list", "--derivative") == [], "no want is left for what was interrupted"
    assert project.ask("status")["unwanted"]["refs"][0] == JANUARY
    assert f"databuild build {JANUARY}" in project.call("status").out
    assert project.is_sound()

    assert project.build(JANUARY)["refs"] == {"live": 1, "failed": 0}


@INTERRUPTED
def test_a_build_that_keeps_its_want_leaves_it_after_sigterm_and_another_begins_at_once(project: Project) -> None:
    """Kubernetes evicts a pod so: the job run is handed back, and the next command has nothing to wait for (rule 8.9)."""
    project.hold("2024-01-30")
    process = project.start("build", DAY, "--keep-want")
    project.wait_until_held("2024-01-30")

    process.send_signal(signal.SIGTERM)
    wait_for_line(process, "Stopping")
    project.release("2024-01-30")
    out, err = process.communicate(timeout=MAX_SECONDS)

    assert process.returncode == 130, err
    assert "Interrupted: the want stays open" in out
    (want,) = project.ask("want", "list")
    assert [run["state"] for run in project.ask("history", "--job-runs")] == ["Canceled"]
    assert project.ask("admin", "tick")["launched_jobs"] == ["orders (1 partition)"]
    (report,) = project.ask("want", "show", want["id"])
    assert report["state"] == "Successful"
    assert project.is_sound()


@INTERRUPTED
@pytest.mark.parametrize(
    "place",
    [
        "WantCreated",
        pytest.param("JobRunDepMissed", marks=pytest.mark.extended),
        pytest.param("JobRunBuffered", marks=pytest.mark.extended),
        pytest.param("JobRunStarted", marks=pytest.mark.extended),
        "JobRunSucceeded",
    ],
)
def test_after_kill_9_a_second_build_finishes(project: Project, place: str) -> None:
    """The process is killed when the log holds the first event of that kind, wherever it is by then."""
    project.hold("2024-01-30")
    process = project.start("build", JANUARY)
    wait_until(lambda: place in {row[2] for row in project.queries.events.raw()}, f"the log holds {place}")

    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=MAX_SECONDS)
    project.release("2024-01-30")
    built = project.build(JANUARY)

    assert built["refs"] == {"live": 1, "failed": 0}
    assert open_job_runs(project) == []
    assert project.is_sound()


@INTERRUPTED
def test_of_two_builds_that_share_an_input_one_is_killed_and_the_other_ends(project: Project) -> None:
    """Rule 8.9: there is no daemon."""
    project.hold("2024-01-30")
    first = project.start("build", DAY)
    project.wait_until_held("2024-01-30")
    second = project.start("build", JANUARY, "--json")
    wait_for_line(second, f"waiting for {DAY}: job run")

    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=MAX_SECONDS)
    project.release("2024-01-30")
    out, err = second.communicate(timeout=MAX_SECONDS)

    assert second.returncode == 0, err
    assert json.loads(out)["refs"] == {"live": 1, "failed": 0}
    assert [run["state"] for run in project.ask("history", "--job-runs")].count("Lost") == 1
    assert project.is_sound()


def test_a_job_run_canceled_by_a_person_stops_and_is_not_retried(project: Project) -> None:
    def cancel() -> None:
        with open_instance(project.home) as instance:
            (running,) = open_job_runs(project)
            engine_for(instance).handle(CancelJobRuns(job_run_ids=(running.id,)))

    done = project.call_while_held("2024-01-30", cancel, "build", DAY)

    assert done.code == 1
    assert [run["state"] for run in project.ask("history", "--job-runs")] == ["Canceled"]
    assert project.ask("show", DAY)["state"] == "UpForRetry"
    assert [row["why"] for row in project.ask("history", DAY)] == ["its job run was canceled"]
    assert project.ask("want", "list", "--derivative") == []
    assert project.is_sound()
