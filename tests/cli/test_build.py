"""`databuild build`: what is wanted becomes live, once, and the answer says what happened (rules 5, 6, 15)."""

import os
import re
import socket

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.model.events import DatasetRegistered
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from tests.support.project import Project
from tests.support.questions import recorded_questions

from .sources import of_pandas

JANUARY = "revenue@2024-01-01"
DAYS = ["orders@2024-01-29", "orders@2024-01-30", "orders@2024-01-31"]

#: A build of two assets, one partition each, in two ticks and two steps (70 questions when this was set, of which six count the
#: attempts of each launch, and show at the end what failed upstream, and two ask whether any rows are equal).
MAX_QUESTIONS = 70


def test_a_build_makes_all_inputs_live_and_a_second_one_runs_no_job(project: Project) -> None:
    """findings/first-use.md 15"""
    first = project.build(JANUARY)

    assert first["refs"] == {"live": 1, "failed": 0}
    assert first["job_runs"] == {"succeeded": 4, "dep_missed": 1, "failed": 0, "canceled": 0}
    assert (first["launches"], first["reused"]) == (2, 0)
    assert project.ask("read", JANUARY) == [{"revenue": 12.0}]
    events = project.n_events()

    second = project.build(JANUARY)

    assert (second["launches"], second["reused"], second["refs"]) == (0, 1, {"live": 1, "failed": 0})
    assert project.n_events() == events + 2, "only the want is recorded, and that it is served already"

    shown = project.ask("show", JANUARY)
    canonical = shown["canonical"]
    assert (shown["ref"], shown["state"], canonical["rows"]) == (JANUARY, "Live", 1)
    assert {partition["uuid"] for partition in project.ask("partitions", "orders") if partition["ref"] in DAYS} == set(
        canonical["inputs"]
    )
    assert [
        (instance["state"], instance["uuid"] == canonical["uuid"]) for instance in project.ask("history", JANUARY)
    ] == [
        ("UpForRetry", False),
        ("Live", True),
    ]
    assert project.ask("history", JANUARY)[0]["why"] == f"waited for inputs: {', '.join(DAYS)}"
    assert {run["state"] for run in project.ask("history", "--job-runs")} == {"Succeeded", "DepMissed"}
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
    assert project.ask("log", "rebuild") == {"events": events + 2}
    assert project.ask("show", JANUARY) == shown
    rebuilt = project.build(DAYS[0], "--rebuild")
    assert (rebuilt["launches"], rebuilt["reused"], rebuilt["stale"]) == (1, 0, [])

    (stale,) = (reused := project.build(JANUARY))["stale"]
    assert (stale, reused["reused"], reused["launches"]) == (JANUARY, 1, 0)
    assert f"`databuild build --only stale --rebuild {JANUARY}`" in reused["hints"][0]
    again = project.build(JANUARY, "--only", "stale", "--rebuild")
    assert (again["refs"]["live"], again["launches"], again["stale"]) == (1, 1, [])

    nothing = project.call("build", DAYS[0], "--downstream", "--json")
    project.build(DAYS[0], "--rebuild")
    after = project.build(DAYS[0], "--downstream")
    assert (after["launches"], after["reused"], after["refs"]["live"]) == (1, 0, 1)
    assert project.build(JANUARY)["stale"] == []
    assert (nothing.code, nothing.json["error"]["type"]) == (2, "NothingStale")


def test_a_small_build_registers_once_and_asks_the_store_few_questions(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 5.7; the bound keeps a question from being asked again by each function that needs the answer."""
    project.define(
        of_pandas("""
daily = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-03-01")

@databuild_asset(partitions_def=daily)
def numbers() -> pd.DataFrame:
    return pd.DataFrame({"n": [1, 2]})

@databuild_asset(partitions_def=daily)
def doubled(numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers * 2

defs = build_definitions([numbers, doubled])
""")
    )
    asked = recorded_questions(monkeypatch)

    built = project.build("doubled@2024-01-31")

    assert (built["refs"]["live"], built["launches"]) == (1, 2)
    assert len(asked) <= MAX_QUESTIONS
    assert sum(isinstance(event.fact, DatasetRegistered) for event in project.queries.events.after()) == 1


SUBSCRIBED = of_pandas("""
daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03")

@databuild_asset(partitions_def=daily)
def first() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})

@databuild_asset(partitions_def=daily)
def second(first: pd.DataFrame) -> pd.DataFrame:
    return first * 2

@databuild_asset(partitions_def=daily, subscribe="first")
def woken(first: pd.DataFrame) -> pd.DataFrame:
    return first * 3

defs = build_definitions([first, second, woken])
""")


def test_a_build_leaves_other_wants_and_those_of_arcs_to_the_orchestrator(project: Project) -> None:
    """Rule 8.9"""
    project.define(SUBSCRIBED)
    project.call("want", "create", "first@2024-01-02", "--priority", "5")

    done = project.call("build", "second@2024-01-01")

    assert done.code == 0, done
    last = r"1 of 1 ref live in [\d.]+ s: second 1 \([\d.]+ s\), first 1 \([\d.]+ s\)\. 1 want of arcs left to the orchestrator\."
    assert re.fullmatch(last, done.out.splitlines()[-1]), done.out
    assert [run["state"] for run in project.ask("history", "--job-runs")] == ["Succeeded", "Succeeded", "DepMissed"]
    assert sorted(want["source"] for want in project.ask("want", "list")) == ["arc", "user"]
    again = project.build("second@2024-01-01")
    assert (again["launches"], again["left_to_orchestrator"]) == (0, 0)


def test_a_build_names_the_job_run_and_the_process_that_it_waits_for_until_its_timeout(project: Project) -> None:
    """Rule 8.9"""
    assert project.call("admin", "tick").code == 0
    dagster_run_id = project.claim(DAYS[0])
    (running,) = project.ask("history", "--job-runs", "--open")
    process = f"process {os.getpid()} on {socket.gethostname()}"

    done = project.call("build", DAYS[0], "--timeout", "5s", "--json")

    waits_for = f"{DAYS[0]}: job run {running['id']} builds it since {running['started_at']}, {process}"
    assert f"waiting for {waits_for}\n" in done.err
    assert (done.code, done.json["interrupted"]) == (1, False)
    assert done.json["error"]["type"] == "BuildTimedOut"
    assert done.json["error"]["message"] == f"The build has not ended after 5 s: it waits for {waits_for}."
    (awaited,) = done.json["waits_for"]
    assert (awaited["job_run"], awaited["dagster_run_id"], awaited["process"]) == (
        running["id"],
        dagster_run_id,
        process,
    )
    (want,) = project.ask("want", "list", "--source", "user")
    assert want["request_id"] == done.json["request_id"]


def test_a_taint_that_is_taken_back_makes_the_same_instance_live_again(project: Project) -> None:
    built = project.build(DAYS[0]) and project.ask("show", DAYS[0])
    taint = project.ask("taint", DAYS[0], "--reason", "perhaps")["taint_id"]

    project.ask("untaint", taint)

    assert project.ask("show", DAYS[0]) == built
    refused = project.call("untaint", taint, "--json")
    assert (refused.code, refused.json["error"]["type"]) == (2, "NothingToUntaint")


def test_what_failed_upstream_is_failed_in_dagster_when_the_build_has_ended(project: Project) -> None:
    """Rule 8.8: no tick follows."""
    project.fail("2024-01-30")

    done = project.call("build", "revenue@2024-01-01")

    assert done.code == 1
    assert project.queries.canonical.states([Ref("revenue@2024-01-01")]) == {
        "revenue@2024-01-01": InstanceState.UPSTREAM_FAILED
    }
    monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
    with open_instance(project.home) as instance:
        status = get_and_update_asset_status_cache_value(instance, dg.AssetKey("revenue"), monthly)
    assert status is not None
    failed = status.deserialize_failed_partition_subsets(monthly)
    assert list(failed.get_partition_keys()) == ["2024-01-01"]
