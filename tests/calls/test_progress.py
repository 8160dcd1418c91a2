"""The table and the lines of a build, as text, from the log of a real engine."""

import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console

from databuild_dagster.bindings.local.tally import Tally
from databuild_dagster.calls.progress import BuildProgress, stages_in_words
from databuild_dagster.spark.interrupt import RunningJob, running_jobs
from tests.support.catalog import dataset
from tests.support.world import World

#: As Spark 4.3 answers for a client's job; the fields that are not read are left out.
JOBS = [
    {
        "submissionTime": "2024-01-01T12:00:00.000GMT",
        "jobTags": ["SparkConnect_SessionTag_User_a_Session_b_Tag_launch-1"],
        "stageIds": [7, 8, 9],
        "numTasks": 212,
        "numCompletedTasks": 12,
        "numSkippedTasks": 4,
        "numCompletedStages": 1,
        "numSkippedStages": 1,
    }
]


@pytest.fixture
def world() -> Iterator[World]:
    made = World([dataset("day"), dataset("month", "day")])
    yield made
    made.close()


def rows_of(progress: BuildProgress) -> list[list[str]]:
    out = io.StringIO()
    Console(file=out, width=100).print(progress.render())
    return [line.split() for line in out.getvalue().splitlines()]


def test_the_table_has_each_ref_once_and_at_the_end_only_columns_with_refs(world: World) -> None:
    """findings/first-use.md 5"""
    progress = BuildProgress(world.engine, Tally(world.queries, ["month"], world.seq))
    world.miss("month", "day")
    world.start("day")

    head, names, *rows = rows_of(progress)
    assert head[:5] == ["0", "of", "1", "ref", "live,"]
    assert names == ["asset", "live", "building", "waiting", "failed", "seconds"]
    assert rows == [["month", "·", "·", "1", "·", "0.0"], ["day", "·", "1", "·", "·", "0.0"]]

    world.clock.turn(2)
    world.succeed("day")
    progress.end()

    _, names, *rows = rows_of(progress)
    assert names == ["asset", "live", "not", "built", "seconds"]
    assert rows == [["month", "·", "1", "0.0"], ["day", "1", "·", "2.0"]]


def test_each_line_says_what_is_new_of_an_asset(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    progress = BuildProgress(world.engine, Tally(world.queries, ["month"], world.seq))

    world.miss("month", "day")
    progress.launching("day", 1)
    world.succeed("day")
    progress.launching("month", 1)
    world.fail("month")
    progress.end()

    lines = [line.split("s  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "month: 1 waiting",
        "day: building 1 partition",
        "day: 1 live",
        "month: building 1 partition",
        "month: 1 failed",
    ]


def test_the_table_names_what_the_build_waits_for_until_it_launches_again(world: World) -> None:
    progress = BuildProgress(world.engine, Tally(world.queries, ["month"], world.seq))

    progress.waiting("day: job run 1 builds it")
    waiting = rows_of(progress)[-1]
    progress.launching("month", 1)

    assert waiting == ["waiting", "for", "day:", "job", "run", "1", "builds", "it"]
    assert rows_of(progress)[-1][0] == "month"


class SparksUi(BaseHTTPRequestHandler):
    """Two answers of Spark's REST API."""

    def do_GET(self) -> None:
        answer = JOBS if self.path.endswith("/app-1/jobs?status=running") else [{"id": "app-1"}]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None: ...


def test_the_stages_of_a_launch_are_those_of_its_running_spark_jobs() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SparksUi) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (job,) = running_jobs(f"http://127.0.0.1:{server.server_port}", timeout_seconds=30)
        server.shutdown()

    assert job.has_tag("launch-1")
    assert not job.has_tag("launch-2")
    assert stages_in_words([job]) == "stage 2 of 2, 12 of 208 tasks"


def test_a_spark_ui_that_does_not_answer_gives_no_stages() -> None:
    assert running_jobs("http://127.0.0.1:1", timeout_seconds=1) == []
    assert stages_in_words([]) == ""


def test_the_stages_of_several_jobs_are_added() -> None:
    job = RunningJob(datetime.now(UTC), ("launch-1",), n_stages=2, n_done_stages=1, n_tasks=1, n_done_tasks=0)

    assert stages_in_words([job]) == "stage 2 of 2, 0 of 1 task"
    assert stages_in_words([job, job]) == "stage 3 of 4, 0 of 2 tasks"
