"""Sessions as they come to a build and are lost to it, with real processes (rules 6.8, 6.9)."""

import json
import os
import signal
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

import dagster as dg
import pytest

from databuild_dagster.bindings.adapter.dagster_private import IMPLICIT_ASSET_JOB_NAME
from databuild_dagster.bindings.authoring.location import load_code_locations
from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.spark.server import ServerStatus, stop_server
from databuild_dagster.store.backends.heartbeats import FileAside, Heartbeats
from tests.support.endless import ENDLESS
from tests.support.project import MAX_SECONDS, PLAIN_DAGSTER_YAML, Project, wait_until
from tests.support.spark_servers import server_status

from .sources import of_spark

pytestmark = [
    pytest.mark.long("a build and its Spark server are processes, some of which are killed"),
    pytest.mark.timeout(600),
]

DEFINITIONS = of_spark("""
from dagster_pyspark import LazyPySparkResource, PySparkResource

SMALL = {{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "5"}}


@databuild_asset
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(4).selectExpr("id", "id * 2 as twice")


@databuild_asset
def settings(spark: SparkSession, numbers: DataFrame) -> DataFrame:
    kind = type(spark).__module__
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    return numbers.selectExpr("count(*) as n", "sum(twice) as total", f"'{{kind}}' as kind", f"'{{partitions}}' as partitions")


@databuild_asset
def endless(spark: SparkSession) -> DataFrame:
    if (HERE / "be-quick").exists():
        return spark.range(1)
    (HERE / "held-endless").touch()
    return spark.sql({endless!r})


defs = build_definitions([numbers, settings, endless], spark={spark})
""")


@pytest.fixture
def project(project: Project) -> Iterator[Project]:
    yield project
    stop_server(project.home)


def deploy(project: Project, spark: str = "DatabuildSpark(spark_config={'spark.driver.memory': '1g'})") -> None:
    project.define(DEFINITIONS.format(spark=spark, endless=ENDLESS))


CONNECT, CLASSIC = "pyspark.sql.connect.session", "pyspark.sql.session"


@pytest.mark.parametrize(
    "resource", ["PySparkResource", pytest.param("LazyPySparkResource", marks=pytest.mark.extended)]
)
def test_an_asset_is_built_through_a_resource_of_dagster_pyspark(project: Project, resource: str) -> None:
    deploy(project, f"{resource}(spark_config=SMALL)")
    (project.home / "dagster.yaml").write_text(PLAIN_DAGSTER_YAML)

    done = project.run("build", "settings", "--json")

    assert done.code == 0, done
    assert done.json["job_runs"] == {"succeeded": 2, "dep_missed": 1, "failed": 0, "canceled": 0}
    assert project.ask("read", "settings") == [{"n": 4, "total": 12, "kind": CLASSIC, "partitions": "5"}]
    assert project.is_sound()


@pytest.mark.parametrize("url", ["sc://localhost:1", "spark://localhost:1"])
def test_a_spark_elsewhere_that_does_not_answer_is_said_before_anything_is_wanted(project: Project, url: str) -> None:
    deploy(project, f"DatabuildSpark(mode='remote', url='{url}')")

    done = project.call("build", "numbers", "--json")

    assert (done.code, done.json["error"]["type"]) == (75, "RemoteUnreachable")
    assert "does not answer at localhost:1" in done.json["error"]["message"]
    assert project.ask("want", "list", "--all") == []
    assert project.ask("job-run", "list") == []


def test_settings_in_a_dagster_runs_tag_are_for_its_session_alone(project: Project, spark_home: str) -> None:
    deploy(project, f"DatabuildSpark(home={spark_home!r})")
    project.build("numbers")
    noted_after_a_build = noted_sessions(project)

    failures = materialize(project, "settings", {"databuild/spark": '{"spark.sql.shuffle.partitions": 3}'})

    assert (failures, noted_after_a_build) == ([], [])
    assert project.ask("read", "settings") == [{"n": 4, "total": 12, "kind": CONNECT, "partitions": "3"}]


def test_a_wrong_tag_ends_the_dagster_run_before_it_claims_anything(project: Project) -> None:
    deploy(project)

    failures = materialize(project, "numbers", {"databuild/spark": '{"spark.executor.memory": "4g"}'})

    assert any("spark.executor.memory is fixed when Spark starts" in failure for failure in failures), failures
    assert project.ask("job-run", "list") == []
    assert server_status(project.home) is None


def materialize(project: Project, asset: str, tags: dict[str, str]) -> list[str]:
    """A Dagster run with tags that a person has given in the UI; what failed in it."""
    with project.own_process(), open_instance(project.home) as instance:
        (location,) = load_code_locations(files=["definitions.py"])
        job = location.repository.get_job(IMPLICIT_ASSET_JOB_NAME)
        result = job.get_subset(asset_selection={dg.AssetKey(asset)}).execute_in_process(
            instance=instance, tags=tags, raise_on_error=False
        )
        return [str(event.event_specific_data) for event in result.all_events if event.is_failure]


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.extended)])
def test_a_server_lost_in_the_middle_of_a_job_is_replaced_and_the_next_try_succeeds(project: Project, how: str) -> None:
    deploy(project)
    process = project.start("build", "endless", "--json")
    server = wait_until_a_job_runs(project)
    (project.folder / "be-quick").touch()

    if how == "killed":
        os.kill(server.pid, signal.SIGKILL)
    else:
        assert "Builds that used it are retried." in project.run("spark", "stop").out
    _, err = process.communicate(timeout=MAX_SECONDS)

    assert process.returncode == 0, err
    runs = project.ask("job-run", "list")
    assert sorted(run["state"] for run in runs) == ["Failed", "Succeeded"]
    assert [run["error"] for run in runs if run["state"] == "Failed"] == [
        "The Spark server was lost during the job: the next attempt gets another session."
    ]
    replacement = server_status(project.home)
    assert replacement is not None
    assert replacement.pid != server.pid
    assert project.is_sound()


def test_the_next_tick_stops_the_spark_job_of_a_dead_client(project: Project) -> None:
    """Rule 6.9: its server would otherwise use the cores that the next try needs."""
    deploy(project)
    process = project.start("build", "endless")
    server = wait_until_a_job_runs(project)

    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=MAX_SECONDS)
    assert jobs_once_answered(server), "the death of its client has not stopped the job"
    assert [noted_session.holder for noted_session in noted_sessions(project)] != []
    (project.folder / "be-quick").touch()
    ticked = project.run("tick")

    assert ticked.code == 0, ticked
    wait_until(lambda: running_jobs(server) == [], "no job runs on the server")
    assert noted_sessions(project) == []
    assert sorted(run["state"] for run in project.ask("job-run", "list")) == ["Lost", "Succeeded"]


def wait_until_a_job_runs(project: Project) -> ServerStatus:
    def job_runs() -> bool:
        server = server_status(project.home)
        return server is not None and any(job["numActiveTasks"] for job in running_jobs(server) or [])

    wait_until(job_runs, "a job runs on the server")
    server = server_status(project.home)
    assert server is not None
    return server


def jobs_once_answered(server: ServerStatus) -> list[Any]:
    """The running jobs; the UI is asked until it answers."""
    answers: list[list[Any]] = []

    def answered() -> bool:
        jobs = running_jobs(server)
        if jobs is not None:
            answers.append(jobs)
        return bool(answers)

    wait_until(answered, "the UI of Spark answers")
    return answers[-1]


def running_jobs(server: ServerStatus) -> list[Any] | None:
    """The running jobs according to Spark's UI; None if it does not answer, or in words because it starts."""
    assert server.ui_url is not None
    applications = f"{server.ui_url}/api/v1/applications"
    try:
        (application,) = json.load(urlopen(applications, timeout=250))
        return list(json.load(urlopen(f"{applications}/{application['id']}/jobs?status=running", timeout=250)))
    except (OSError, HTTPException, ValueError):
        return None


def noted_sessions(project: Project) -> list[Any]:
    return list(Heartbeats(FileAside(f"{project.home}/databuild.db.heartbeats")).sessions())
