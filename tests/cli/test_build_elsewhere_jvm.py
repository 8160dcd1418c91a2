"""Builds by a Spark on a JVM that shares no disk with this process, on an object store in trouble (rule 10.9)."""

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from databuild_dagster.bindings.reading.spark_resource import close_sessions
from tests.support.jvm_elsewhere import JVM_BUCKET, JVM_TIMEOUT, StartJvm
from tests.support.line import Line
from tests.support.object_store import MAX_HELD_SECONDS, S3Server
from tests.support.project import Project
from tests.support.spark_elsewhere import Elsewhere

from .test_build_elsewhere import DEFINITIONS
from .test_build_elsewhere_killed import attempts, killed_at

pytestmark = [
    pytest.mark.long("a Spark on a JVM writes into a bucket itself"),
    JVM_TIMEOUT,
    pytest.mark.usefixtures("closed_sessions"),
]

#: More refusals than a client, the tasks of a job and the attempts at a ref take together.
MANY = 1000

REFUSED = "the object store refuses it to the credentials of that Spark"
#: What a store answers Spark, to which method, and the sentence.
REFUSALS = {
    "expired": ("PUT", (400, "ExpiredToken"), "the credentials of that Spark have expired"),
    "expired, without contents": ("HEAD", (400, "ExpiredToken"), REFUSED),
    "read-only": ("PUT", (403, "AccessDenied"), REFUSED),
    "full": ("PUT", (507, "QuotaExceeded"), "the object store is full"),
    "no bucket": ("PUT", (404, "NoSuchBucket"), "there is no such bucket"),
    "of its own": ("PUT", (503, "SlowDown"), "the object store did not answer that Spark as it should"),
}
OF_A_REFUSAL = ("method", "refusal", "why")
#: One of them shows that an answer of the store comes through a JVM; the words of each are in `tests/spark/test_failures_stores.py`.
PROBED = [
    pytest.param(*refused, id=name, marks=() if name == "expired" else pytest.mark.extended)
    for name, refused in REFUSALS.items()
]


@pytest.fixture
def warehouse(s3: S3Server, tmp_path: Path) -> str:
    return f"s3://{JVM_BUCKET}/{tmp_path.name}"


@pytest.fixture
def deploy(project: Project, warehouse: str) -> Callable[[str], None]:
    return lambda url: project.define(DEFINITIONS.format(url=url, warehouse=warehouse))


def path_of(warehouse: str) -> str:
    """In the requests for its objects."""
    return warehouse.removeprefix("s3:/")


def files_of(s3: S3Server, warehouse: str) -> list[str]:
    """Below the warehouse, without those that make it one: by which each process tests the store, and whose it is."""
    prefix = f"{warehouse.removeprefix(f's3://{JVM_BUCKET}/')}/"
    keys = {key.removeprefix(prefix) for key in s3.keys(JVM_BUCKET) if key.startswith(prefix)}
    return sorted(keys - {".create-only", ".databuild.json"})


@pytest.mark.extended
def test_a_jvm_builds_on_a_store_that_fails_every_tenth_request(
    project: Project, jvm: Elsewhere, s3: S3Server, deploy, patient, warehouse, monkeypatch
) -> None:
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    deploy(jvm.url)
    s3.fails_every = 10

    project.build("total@2024-01-01")

    s3.fails_every = 0
    assert project.ask("read", "total@2024-01-01") == [{"total": 6}]
    (file, *_) = project.ask("show", "doubled@2024-01-30")["canonical"]["files"]
    assert file.startswith(f"{warehouse}/doubled/data/attempt=")
    assert project.ask("log", "check", "--deep", "--contents")["ok"]
    assert not [key for key in files_of(s3, warehouse) if "/.probe" in key]


@pytest.mark.parametrize(OF_A_REFUSAL, PROBED)
def test_a_store_that_refuses_the_probe_of_a_jvm_is_one_sentence(
    project: Project, jvm: Elsewhere, s3: S3Server, deploy, patient, warehouse, method, refusal, why
) -> None:
    deploy(jvm.url)
    s3.refusals += [(*refusal, f"{method} {path_of(warehouse)}/.probe-")] * MANY

    done = project.call("build", "numbers")

    s3.refusals.clear()
    assert (done.code, done.err.count("Error: ")) == (2, 1), done
    assert f"The warehouse {warehouse} cannot be written by the Spark of {jvm.url}: {why}. " in done.err
    assert (project.queries.job_runs.newest(), project.queries.wants.newest()) == ([], [])
    assert files_of(s3, warehouse) == []


@pytest.mark.extended
@pytest.mark.parametrize(OF_A_REFUSAL, REFUSALS.values(), ids=REFUSALS)
def test_a_store_that_refuses_a_job_of_a_jvm_is_one_sentence_and_half_records_nothing(
    project: Project, jvm: Elsewhere, s3: S3Server, deploy, patient, warehouse, method, refusal, why
) -> None:
    deploy(jvm.url)
    s3.refusals += [(*refusal, f"{method} {path_of(warehouse)}/numbers/data/attempt=")] * MANY

    failed = project.call("build", "numbers")

    s3.refusals.clear()
    assert failed.code == 1, failed
    runs = project.ask("history", "--job-runs")
    assert [run["state"] for run in runs] == ["Failed"] * 3
    for run in runs:
        assert run["error"].startswith(f"Spark could not use s3a://{JVM_BUCKET}/"), run
        assert why in run["error"]
    assert files_of(s3, warehouse) == []
    project.build("numbers", "--retry")
    assert len(project.ask("read", "numbers")) == 3
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}


@pytest.mark.extended
def test_a_store_that_is_slow_for_a_minute_delays_a_jvm(
    project: Project, jvm: Elsewhere, s3: S3Server, deploy, patient
) -> None:
    deploy(jvm.url)
    s3.delays += [(60.0, "/numbers/data/attempt=")]

    project.build("numbers")

    assert s3.delays == []
    assert [run.state for run in project.queries.job_runs.newest()] == ["Succeeded"]
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}


@pytest.mark.extended
def test_a_jvm_that_is_killed_in_a_job_and_started_again_builds_it(
    project: Project, start_jvm: StartJvm, s3: S3Server, deploy, patient, warehouse
) -> None:
    """Both are behind one address, as that of a load balancer."""
    servers = [start_jvm(), start_jvm()]
    ports = [urlsplit(server.url).port for server in servers]
    hold = s3.hold("PUT", "/numbers/data/attempt=")

    def kill() -> None:
        assert hold.reached.wait(MAX_HELD_SECONDS)
        line.connect = lambda: socket.create_connection(("127.0.0.1", ports[1]))
        servers[0].process.kill()

    with closing(Line(lambda: socket.create_connection(("127.0.0.1", ports[0])))) as line:
        deploy(f"sc://127.0.0.1:{line.port}")
        killer = Thread(target=kill)
        killer.start()
        project.build("numbers")
        killer.join()
        hold.answer()
        runs = project.ask("history", "--job-runs")
        close_sessions()

    assert sorted(run["state"] for run in runs) == ["Failed", "Succeeded"]
    assert "The Spark server was lost during the job" in next(run["error"] for run in runs if run["state"] == "Failed")
    assert len(project.ask("read", "numbers")) == 3
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}


@pytest.mark.extended
def test_a_builder_that_is_killed_while_a_jvm_writes_leaves_nothing_that_is_read(
    project: Project, jvm: Elsewhere, s3: S3Server, deploy, warehouse
) -> None:
    deploy(jvm.url)
    hold = killed_at(project, s3, "/numbers/data/attempt=", "/_SUCCESS")

    project.build("numbers")

    hold.answer()
    prefix = warehouse.removeprefix(f"s3://{JVM_BUCKET}/")
    assert len(attempts(s3, JVM_BUCKET, prefix)) == 2, (
        "Spark wrote after its launch was lost and another one had published"
    )
    (left,) = project.ask("gc", "--leftovers")["leftovers"]
    assert "an attempt of job run" in left["why"]
    assert sorted(run.state for run in project.queries.job_runs.newest()) == ["Lost", "Succeeded"]
    assert len(project.ask("read", "numbers")) == 3
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
    project.ask("gc", "--leftovers", "--yes")
    assert len(attempts(s3, JVM_BUCKET, prefix)) == 1
