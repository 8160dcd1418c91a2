"""`databuild admin tick`: one tick of the orchestrator, or as many as there is work (rule 11.1)."""

import threading
from itertools import count, cycle
from typing import Any

import pytest

from databuild_dagster import feature
from databuild_dagster.bindings.local.building import Workshop
from databuild_dagster.bindings.orchestration.side_ticks import SideReport, SideTick
from databuild_dagster.engine.tick import TickReport
from databuild_dagster.model.commands import CancelWants, PausePartitions, ResumePartitions
from tests.support.object_store import S3Server
from tests.support.project import MAX_SECONDS, Project

from .sources import MAPPING_OF_A_REMOVED_KEY, of_pandas

JANUARY = "revenue@2024-01-01"
DAY = "orders@2024-01-30"
N_DAYS = 3


UNSTEADY = of_pandas("""
@databuild_asset
def unsteady() -> pd.DataFrame:
    if (HERE / "open").exists():
        return pd.DataFrame({"amount": [1.0]})
    if OPENS:
        (HERE / "open").touch()
    raise Transient("the shop is closed")

defs = build_definitions([unsteady])
""")
NEVER_OPENS, OPENS_LATE = (UNSTEADY.replace("OPENS", opens) for opens in ("False", "True"))

IN_A_BUCKET = of_pandas("""
days = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")

@databuild_asset(partitions_def=days)
def orders(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})

defs = build_definitions([orders], warehouse="s3://BUCKET/warehouse")
""")


def test_until_idle_builds_open_wants_and_their_inputs(project: Project) -> None:
    project.call("admin", "tick")
    project.call("want", "create", JANUARY)

    done = project.call("admin", "tick", "--until-idle")
    again = project.call("admin", "tick", "--until-idle", "--json")

    assert done.code == 0, done
    assert done.out.startswith("Launched ")
    assert project.ask("show", JANUARY)["state"] == "Live"
    assert (again.json["launched"], again.json["failed"], again.json["timed_out"]) == ([], 0, False)


def test_until_idle_exits_with_1_for_a_failed_ref_and_for_a_ref_whose_input_failed(project: Project) -> None:
    project.call("admin", "tick")
    project.fail("2024-01-30")
    project.call("want", "create", DAY)

    failed = project.call("admin", "tick", "--until-idle")
    project.call("want", "create", JANUARY)
    upstream_failed = project.call("admin", "tick", "--until-idle", "--json")

    assert failed.code == 1
    assert failed.out.splitlines()[-1] == f"1 ref failed: `databuild explain {DAY}` says why."
    assert (upstream_failed.code, upstream_failed.json["failed"]) == (1, 1), upstream_failed
    assert project.ask("show", JANUARY)["state"] == "UpstreamFailed"


@pytest.mark.long("a retry comes after five seconds")
def test_until_idle_exits_with_0_for_a_failure_that_a_retry_repaired(project: Project) -> None:
    project.define(OPENS_LATE)
    project.call("admin", "tick")
    project.call("want", "create", "unsteady")

    done = project.call("admin", "tick", "--until-idle", "--json")

    assert (done.code, done.json["failed"], len(done.json["launched"])) == (0, 0, 2), done
    assert project.ask("show", "unsteady")["state"] == "Live"


def test_until_idle_waits_for_a_retry_until_its_timeout_but_not_of_a_paused_ref(project: Project) -> None:
    project.define(NEVER_OPENS)
    project.call("admin", "tick")
    project.call("want", "create", "unsteady")

    waited = project.call("admin", "tick", "--until-idle", "--timeout", "1s")
    project.call("pause", "unsteady", "--reason", "the shop is closed")
    paused = project.call("admin", "tick", "--until-idle", "--timeout", "1s", "--json")

    assert waited.code == 1
    assert waited.out.splitlines()[-1].startswith("The --timeout of 1 s has passed, and work is left")
    assert (paused.code, paused.json["launched"], paused.json["timed_out"]) == (0, [], False), paused
    assert project.ask("show", "unsteady")["state"] == "UpForRetry"


def test_until_idle_ends_while_another_process_records_events(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.call("admin", "tick")
    tick = Workshop.tick
    commands = cycle([PausePartitions(refs=("orders",), reason="wrong"), ResumePartitions(refs=("orders",))])

    def tick_while_another_records(workshop: Workshop, *arguments: Any) -> TickReport:
        report = tick(workshop, *arguments)
        workshop.engine.handle(next(commands))
        return report

    monkeypatch.setattr(Workshop, "tick", tick_while_another_records)

    done = project.call("admin", "tick", "--until-idle", "--timeout", "60s", "--json")

    assert (done.code, done.json["launched"], done.json["timed_out"]) == (0, [], False), done


def test_until_idle_reports_no_ref_that_is_set_aside_no_longer(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 11.5"""
    project.define(MAPPING_OF_A_REMOVED_KEY)
    project.call("admin", "tick")
    project.call("want", "create", "zone@south")
    (want,) = project.ask("want", "list")
    tick, set_aside = Workshop.tick, []

    def tick_before_the_want_is_canceled(workshop: Workshop, *arguments: Any) -> TickReport:
        report = tick(workshop, *arguments)
        set_aside.append(list(report.set_aside))
        if len(set_aside) == 1:
            workshop.engine.handle(CancelWants(ids=(want["id"],)))
        return report

    monkeypatch.setattr(Workshop, "tick", tick_before_the_want_is_canceled)

    done = project.call("admin", "tick", "--until-idle", "--json")

    assert (done.code, done.json["set_aside"]) == (0, {}), done
    assert (set_aside[0], set_aside[-1]) == (["zone@south"], [])


def test_a_timeout_of_one_tick_is_refused(known_project: Project) -> None:
    done = known_project.call("admin", "tick", "--timeout", "1m")

    assert (done.code, done.out) == (2, "")
    assert "--timeout needs --until-idle" in done.err


@pytest.mark.long("a server holds each copy back for a second")
def test_until_idle_ends_after_its_copies_in_a_bucket(project: Project, s3: S3Server, bucket: str) -> None:
    """Rule 10.2. A thread of the process writes them, and ends with it."""
    project.define(IN_A_BUCKET.replace("BUCKET", bucket))
    project.call("admin", "tick")
    project.call("want", "create", "orders@*")
    s3.delays.append((1.0, f"PUT /{bucket}/warehouse/datasets/name=orders"))

    done = project.call("admin", "tick", "--until-idle")

    assert done.code == 0, done
    assert len(copies_of_orders(s3, bucket)) == N_DAYS
    assert threads_for_copies() == []


def copies_of_orders(s3: S3Server, bucket: str) -> list[str]:
    return [key for key in s3.keys(bucket) if "/datasets/name=orders/" in key]


def threads_for_copies() -> list[str]:
    """Those that do not end, though the command has."""
    threads = [thread for thread in threading.enumerate() if thread.name == "databuild copies"]
    for thread in threads:
        thread.join(MAX_SECONDS)
    return [thread.name for thread in threads if thread.is_alive()]


def test_a_tick_of_a_feature_is_shown_and_decides_the_exit_code(
    known_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [
        SideReport(stuck={"move": "its code is gone"}, waiting={"copy": 2}),
        SideReport(ended={"move": "failed"}, failed=frozenset({"move"}), waiting={"copy": 1}),
    ]
    side_tick = SideTick("movers", lambda instance, deployment: reports.pop(0) if reports else SideReport())
    row = feature.Feature(package="movers", summary="Movers.", side_ticks=feature.Column(given=(side_tick,)))
    every = (*feature.features(), row)
    monkeypatch.setattr(feature, "features", lambda: every)

    one = known_project.call("admin", "tick")
    rest = known_project.call("admin", "tick", "--until-idle", "--json")

    assert (one.code, "2 jobs of copy without an executor" in one.out) == (0, True)
    assert "move cannot continue: its code is gone" in one.out
    assert rest.code == 1
    shown = {name: rest.json[name] for name in ("operations", "stuck_operations", "jobs_without_executor")}
    assert shown == {"operations": {"move": "failed"}, "stuck_operations": {}, "jobs_without_executor": {}}


def test_until_idle_stays_until_it_knows_whether_a_process_elsewhere_lives(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 6.9: out of cron no other process may judge it."""
    project.call("admin", "tick")
    project.claim(DAY)

    dead = project.call("admin", "tick", "--until-idle", "--timeout", "1s")
    tick, beats = Workshop.tick, count()

    def tick_beside_a_heartbeat(workshop: Workshop, *arguments: Any) -> TickReport:
        (launch,) = workshop.engine.queries.launches.open()
        workshop.engine.heartbeats.beat([launch.launch_id], float(next(beats)))
        return tick(workshop, *arguments)

    monkeypatch.setattr(Workshop, "tick", tick_beside_a_heartbeat)
    alive = project.call("admin", "tick", "--until-idle", "--timeout", "60s", "--json")

    assert (dead.code, dead.out.splitlines()[-1][:34]) == (1, "The --timeout of 1 s has passed, a")
    assert (alive.code, alive.json["timed_out"]) == (0, False), alive
