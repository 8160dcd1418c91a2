"""Ctrl-C, kill -9: what was going on ends cleanly, and a second build goes on (SPEC 6.9, 6.10)."""

import os
import signal
import subprocess
import sys

import pytest

from databuild_dagster.bindings.instance import engine_for, open_instance
from databuild_dagster.engine import Engine, this_process
from databuild_dagster.model.commands import ClaimRefs
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.store.queries import JobRunView

from .conftest import Project, wait_until

pytestmark = pytest.mark.long

JANUARY = "revenue@2024-01-01"
DAY = "orders@2024-01-30"


def open_job_runs(project: Project) -> list[JobRunView]:
    return project.queries.job_runs(open_only=True)


def test_ctrl_c_cancels_the_job_runs_and_the_request_and_a_second_build_continues(project: Project) -> None:
    project.hold("2024-01-30")
    process = project.start("build", JANUARY)
    project.wait_until_held("2024-01-30")

    process.send_signal(signal.SIGINT)
    project.release("2024-01-30")
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert open_job_runs(project) == []
    assert project.ask("want", "list") == [], "nobody wants what was interrupted"
    assert project.is_sound()

    assert project.build(JANUARY)["refs"] == {"live": 1, "failed": 0}


@pytest.mark.parametrize(
    "place", ["WantCreated", "JobRunDepMissed", "JobRunBuffered", "JobRunStarted", "JobRunSucceeded"]
)
def test_after_kill_9_a_second_build_finishes(project: Project, place: str) -> None:
    """The process is killed when the log holds the first event of that kind, wherever it is by then."""
    project.hold("2024-01-30")
    process = project.start("build", JANUARY)
    wait_until(lambda: place in {row[2] for row in project.queries.raw_events()}, f"the log holds {place}")

    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    project.release("2024-01-30")
    built = project.build(JANUARY)

    assert built["refs"] == {"live": 1, "failed": 0}
    assert open_job_runs(project) == []
    assert project.is_sound()


#: Dies, as by kill -9, when the Dagster run of a launch is made and nothing of it has started.
DIE_BEFORE_THE_START = """
import os, signal, sys
from databuild_dagster.bindings import inprocess
from databuild_dagster.cli.main import main
inprocess.execute = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main(["build", *sys.argv[1:]])
"""


def test_a_process_that_dies_between_making_its_dagster_run_and_starting_it_holds_nothing_up(project: Project) -> None:
    """SPEC 6.9: the launch is queued, its Dagster run exists, and nobody will ever start it."""
    died = subprocess.run(
        [sys.executable, "-c", DIE_BEFORE_THE_START, DAY],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        timeout=60,
    )
    assert died.returncode == -signal.SIGKILL
    assert [run.state.value for run in open_job_runs(project)] == ["Queued"]

    built = project.build(DAY)

    assert (built["refs"], built["job_runs"]["succeeded"]) == ({"live": 1, "failed": 0}, 1)
    assert project.is_sound()


def test_a_job_run_canceled_by_a_person_stops_and_is_not_retried(project: Project) -> None:
    project.hold("2024-01-30")
    process = project.start("build", DAY)
    project.wait_until_held("2024-01-30")
    (running,) = project.ask("job-runs", "--open")

    (canceled,) = project.ask("job-runs", "cancel", running["id"])
    project.release("2024-01-30")
    process.communicate(timeout=60)

    assert canceled["state"] == "Canceled"
    assert process.returncode == 1
    assert project.ask("show", DAY)["state"] == "UpForRetry"
    assert project.ask("want", "list") == []
    assert project.is_sound()


def test_who_cancels_is_told_which_dagster_runs_wait_and_build_it_now(project: Project) -> None:
    """SPEC 6.10, 8.3, decision 0014"""
    assert project.call("tick").code == 0
    engine = engine_for(open_instance(project.home))
    builder, waiter = claimed(engine), claimed(engine)
    (running,) = project.ask("job-runs", "--open")

    done = project.call("job-runs", "cancel", running["id"])

    assert running["dagster_run_id"] == builder
    assert done.out.splitlines() == [
        "Canceled 1 job run.",
        f"Dagster run {waiter} waits for {DAY} and builds it now; terminate it as well if nobody is to.",
    ]
    assert project.ask("want", "list") == []


def claimed(engine: Engine) -> str:
    """Somebody's Dagster run asks for the day."""
    run_id = engine.new_id()
    run = BufferedRun(engine.new_id(), (DAY,), DAY.partition("@")[2])
    engine.handle(
        ClaimRefs(
            launch_id=engine.new_id(),
            job="orders",
            location="tests",
            dagster_run_id=run_id,
            holder=this_process(),
            runs=(run,),
        )
    )
    return run_id
