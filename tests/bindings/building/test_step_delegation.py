"""What a Dagster run does about refs that others build or have built: reuse, rebuild, join, wait, take over (rules 8)."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.adapter.dagster_private import (
    BACKFILL_ID_TAG,
    IMPLICIT_ASSET_JOB_NAME,
    RETRY_NUMBER_TAG,
    SENSOR_NAME_TAG,
)
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT
from databuild_dagster.bindings.adapter.run_tags import (
    DELEGATED_TAG,
    LAUNCH_TAG,
    OUTCOME_TAG,
    OUTCOME_WAITING,
    REBUILD_TAG,
)
from databuild_dagster.bindings.building import step
from databuild_dagster.bindings.claims import wait_for_builds as waiting
from databuild_dagster.bindings.claims.claims import asking
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute_order
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.ports import LaunchOrder
from databuild_dagster.model.commands import CancelJobRuns, ClaimRefs, SucceedJobRuns
from databuild_dagster.model.coordination import MESSAGES, SKIPPED_MESSAGE, Answer
from databuild_dagster.model.events import BufferedRun, ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState, JobRunState
from tests.support.cluster import wait_until

SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
STARTED = dg.DagsterEventType.RUN_START
DAY, NEXT_DAY = "2013-01-01", "2013-01-02"
#: Nothing here takes longer.
MAX_SECONDS = 240


daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture
def site(deploy: Any) -> Any:
    return deploy(numbers)


def uuid(site: Any, key: str = DAY) -> str:
    found = site.engine.queries.canonical.of([f"numbers@{key}"])[f"numbers@{key}"].uuid
    assert found is not None
    return str(found)


def ledger(site: Any, requester: str) -> dict[str, tuple[str, str]]:
    return {
        entry.ref.partition("@")[2]: (entry.kind.value, entry.outcome.value)
        for entry in site.engine.ledger.of_requester(requester)
    }


# Reuse and rebuild


def test_a_run_for_what_is_live_builds_nothing_and_says_so(site: Any) -> None:
    """Rule 8.7: asking again does nothing but delegate."""
    site.launch(["numbers"], [DAY])
    built = uuid(site)

    again = site.launch(["numbers"], [DAY])

    assert again.status is SUCCESS
    assert again.tags[DELEGATED_TAG] == "true"
    assert uuid(site) == built
    assert ledger(site, again.run_id) == {DAY: ("reused", "live")}
    assert DELEGATED_TAG not in site.runs[0].tags
    said = [record.user_message for record in site.instance.all_logs(again.run_id)]
    assert {f"numbers@{DAY}: {text}." for text in (MESSAGES[Answer.REUSE], SKIPPED_MESSAGE)} <= set(said)


@pytest.mark.parametrize("how", ["tag", "Launchpad"])
def test_a_run_that_says_so_builds_again_what_is_live(site: Any, how: str) -> None:
    """Rule 8.7"""
    site.launch(["numbers"], [DAY])
    built = uuid(site)

    if how == "tag":
        run = site.launch(["numbers"], [DAY], tags={REBUILD_TAG: "true"})
    else:
        run = site.launch(["numbers"], [DAY], run_config={"resources": {DEPLOYMENT: {"config": {"rebuild": True}}}})

    assert run.status is SUCCESS
    assert uuid(site) != built
    assert ledger(site, run.run_id) == {DAY: ("built", "live")}
    assert [instance.state for instance in site.engine.queries.instances.history(f"numbers@{DAY}")] == [
        InstanceState.TAINTED,
        InstanceState.LIVE,
    ]


def test_a_retry_of_a_run_that_rebuilds_keeps_what_that_one_has_built(instance: dg.DagsterInstance) -> None:
    """Rule 8.7: a retry goes on, a person's new run starts from the beginning."""
    first = dg.DagsterRun(job_name="any", tags={REBUILD_TAG: "true"})
    instance.add_run(first)
    record = instance.get_run_record_by_id(first.run_id)
    assert record is not None
    retry = dg.DagsterRun(
        job_name="any",
        root_run_id=first.run_id,
        parent_run_id=first.run_id,
        tags={REBUILD_TAG: "true", RETRY_NUMBER_TAG: "1"},
    )
    by_hand = dg.DagsterRun(
        job_name="any", root_run_id=first.run_id, parent_run_id=first.run_id, tags={REBUILD_TAG: "true"}
    )
    for run in (retry, by_hand):
        instance.add_run(run)

    assert asking(instance, first).rebuild_before == record.create_timestamp.timestamp()
    assert asking(instance, retry).rebuild_before == record.create_timestamp.timestamp()
    assert (asking(instance, by_hand).rebuild_before or 0) > record.create_timestamp.timestamp()
    assert asking(instance, dg.DagsterRun(job_name="any")).rebuild_before is None


def test_a_person_who_executes_a_launch_again_is_a_person_and_a_retry_is_not(instance: dg.DagsterInstance) -> None:
    """Rule 8.1: Dagster copies the tags of the run before, the sensor's name too."""
    launch = dg.DagsterRun(job_name="any", tags={SENSOR_NAME_TAG: "databuild_orchestrator"})
    of_launch = {"root_run_id": launch.run_id, "parent_run_id": launch.run_id}
    again = dg.DagsterRun(job_name="any", tags=dict(launch.tags), **of_launch)
    retry = dg.DagsterRun(job_name="any", tags={**launch.tags, RETRY_NUMBER_TAG: "1"}, **of_launch)
    of_backfill = dg.DagsterRun(job_name="any", tags={BACKFILL_ID_TAG: "b"}, **of_launch)

    asked = [asking(instance, run).by_person for run in (launch, again, retry, of_backfill)]

    assert asked == [False, True, False, False]


# Others are building


def claim(site: Any, dagster_run_id: str, job_run_id: str) -> None:
    """A Dagster run asks for the day, to build it in this job run."""
    site.engine.handle(
        ClaimRefs(
            launch_id=site.engine.new_id(),
            job="numbers",
            location="tests",
            dagster_run_id=dagster_run_id,
            holder=this_process(),
            runs=(BufferedRun(job_run_id, (f"numbers@{DAY}",), DAY),),
        )
    )


class Elsewhere:
    """A Dagster run of another process that holds the lease of a day."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.job_run = site.engine.new_id()
        self.ref = f"numbers@{DAY}"
        claim(site, site.engine.new_id(), self.job_run)

    def succeed(self) -> None:
        manifest = ManifestFact(state="empty", uri="elsewhere")
        output = OutputFact(ref=self.ref, manifest=manifest)
        self.site.engine.handle(SucceedJobRuns(runs=(RunSuccess(self.job_run, (output,)),)))

    def cancel(self, *, keep_wants: bool = True) -> None:
        self.site.engine.handle(CancelJobRuns(job_run_ids=(self.job_run,), keep_wants=keep_wants))

    def once_joined(self, then: Any) -> Future[None]:
        """Do it as soon as a run waits."""

        def watch() -> None:
            def is_waited_for() -> bool:
                return any(entry.outcome.value == "waiting" for entry in joined(self.site))

            try:
                wait_until(is_waited_for, "a run waits for the build elsewhere", MAX_SECONDS)
                then()
            except BaseException:
                self.cancel()
                raise

        thread = ThreadPoolExecutor(1)
        watching = thread.submit(watch)
        thread.shutdown(wait=False)
        return watching


def joined(site: Any) -> list[Any]:
    return [entry for entry in site.engine.ledger.of_ref(f"numbers@{DAY}") if entry.kind.value == "joined"]


@pytest.fixture
def elsewhere(site: Any) -> Elsewhere:
    return Elsewhere(site)


@pytest.mark.parametrize("in_a_backfill", [False, True])
def test_a_run_builds_what_it_can_then_waits_for_the_others_build(
    site: Any, elsewhere: Elsewhere, in_a_backfill: bool
) -> None:
    """Rules 8.2, 8.3; ARCHITECTURE: a backfill gets materializations of the others' partitions."""
    helper = elsewhere.once_joined(elsewhere.succeed)

    run = site.launch(["numbers"], [DAY, NEXT_DAY], tags={BACKFILL_ID_TAG: "b"} if in_a_backfill else {})
    helper.result(MAX_SECONDS)

    assert run.status is SUCCESS
    assert ledger(site, run.run_id) == {DAY: ("joined", "live"), NEXT_DAY: ("built", "live")}
    assert site.materialized("numbers") == ([DAY, NEXT_DAY] if in_a_backfill else [NEXT_DAY])
    assert uuid(site) == site.engine.queries.instances.history(f"numbers@{DAY}")[0].uuid


def test_a_waiting_run_builds_what_the_other_gives_up(site: Any, elsewhere: Elsewhere) -> None:
    """Rule 8.3, decision 0014: also what a person canceled, with all wants for it; who waits is a request of its own."""
    helper = elsewhere.once_joined(lambda: elsewhere.cancel(keep_wants=False))

    run = site.launch(["numbers"], [DAY])
    helper.result(MAX_SECONDS)

    assert run.status is SUCCESS
    assert site.state(f"numbers@{DAY}") is InstanceState.LIVE
    assert len(site.engine.queries.instances.history(f"numbers@{DAY}")) == 2
    assert ledger(site, run.run_id) == {DAY: ("built", "live")}
    said = [record.user_message for record in site.instance.all_logs(run.run_id)]
    assert any("is no longer built by another run; this run builds it." in line for line in said)


def test_a_run_that_has_waited_too_long_fails_and_names_the_stalled_job_run(deploy: Any) -> None:
    """Rule 8.3"""
    site = deploy(numbers, delegation_timeout_seconds=0.1)
    elsewhere = Elsewhere(site)

    run = site.launch(["numbers"], [DAY])

    assert run.status is FAILURE
    assert f"job run {elsewhere.job_run} of numbers@{DAY} has not ended" in site.failure()
    (given_up,) = joined(site)
    assert given_up.outcome.value == "given up"
    assert elsewhere.job_run in given_up.reason
    assert site.state(f"numbers@{DAY}") is InstanceState.BUILDING


def test_a_tick_speaks_for_a_waiting_run_that_was_killed(site: Any, elsewhere: Elsewhere) -> None:
    """Rule 8.3: Dagster has seen that its process is gone; the run itself could not say that it waits no longer."""
    killed, alive = (site.instance.create_run_for_job(site.repository.get_job(IMPLICIT_ASSET_JOB_NAME)) for _ in "ab")
    for run in (killed, alive):
        site.instance.report_dagster_event(dg.DagsterEvent(STARTED.value, run.job_name), run.run_id)
        claim(site, run.run_id, site.engine.new_id())
    tick_once(site)
    assert ledger(site, killed.run_id) == ledger(site, alive.run_id) == {DAY: ("joined", "waiting")}

    site.instance.report_run_failed(killed, "its process was killed")
    tick_once(site)

    assert ledger(site, killed.run_id) == {DAY: ("joined", "given up")}
    assert ledger(site, alive.run_id) == {DAY: ("joined", "waiting")}


def tick_once(site: Any) -> list[LaunchOrder]:
    launcher = OrderCollector(site.instance)
    run_tick(site.instance, site.repository, site.deployment, launcher)
    return launcher.take_orders()


def test_a_waiting_run_takes_over_a_launch_whose_own_run_then_delegates(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 8.2: the launch may be waiting for the very run slot that the waiter holds."""
    monkeypatch.setattr(waiting, "TAKE_OVER_SECONDS", 0.0)
    site.want(f"numbers@{DAY}", f"numbers@{NEXT_DAY}")
    (order,) = tick_once(site)

    waiter = site.launch(["numbers"], [DAY])
    launched = [run.id for run in site.engine.queries.job_runs.of_launch(order.launch_id)]
    site._follow(execute_order(site.instance, site.repository, order))

    assert [run.status for run in site.runs] == [SUCCESS, SUCCESS]
    assert ledger(site, waiter.run_id) == {DAY: ("joined", "live")}
    assert {run.id: run.state for run in site.engine.queries.job_runs.of_launch(order.launch_id)} == dict.fromkeys(
        launched, JobRunState.SUCCEEDED
    )
    assert ledger(site, site.runs[-1].run_id) == {DAY: ("reused", "live"), NEXT_DAY: ("reused", "live")}
    assert len(site.engine.queries.instances.history(f"numbers@{DAY}")) == 1


# In the way of what it waits for


@databuild_asset(partitions_def=daily)
def sums(numbers: pd.DataFrame, context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture
def behind(deploy: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[Any, dg.DagsterRun]:
    """`sums` waits for `numbers`, whose launch has a Dagster run; a run that asks for `sums` waits one second, if at all."""
    monkeypatch.setattr(waiting, "GIVE_WAY_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "TAKE_OVER_SECONDS", 0.0)
    site = deploy(numbers, sums, delegation_timeout_seconds=getattr(request, "param", 1.0))
    assert site.launch(["sums"], [DAY]).tags[OUTCOME_TAG] == OUTCOME_WAITING
    (order,) = tick_once(site)
    submitted = dg.DagsterRun(
        job_name=IMPLICIT_ASSET_JOB_NAME,
        tags={LAUNCH_TAG: order.launch_id},
        remote_job_origin=RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("tests"), "all").get_job_origin("any"),
    )
    return site, site.instance.add_run(submitted)


def report(site: Any, run: dg.DagsterRun, event: dg.DagsterEventType) -> None:
    site.instance.report_dagster_event(dg.DagsterEvent(event.value, run.job_name), run.run_id)


@pytest.mark.parametrize("behind", [MAX_SECONDS], indirect=True, ids=["patient"])
def test_a_run_in_the_way_of_what_it_waits_for_ends_as_waiting(behind: Any) -> None:
    """Rule 8.3, decision 0023: the launch of the input is queued, and with it the slot that this run holds."""
    site, queued = behind
    report(site, queued, dg.DagsterEventType.RUN_ENQUEUED)

    run = site.launch(["sums"], [DAY])

    assert (run.status, run.tags[OUTCOME_TAG]) == (SUCCESS, OUTCOME_WAITING)
    assert site.colours("sums") == {}
    (given_up,) = site.engine.ledger.of_requester(run.run_id)
    assert (given_up.kind.value, given_up.outcome.value) == ("joined", "given up")
    assert given_up.reason.startswith(f"numbers@{DAY} is queued for a slot in Dagster")
    said = [record.user_message for record in site.instance.all_logs(run.run_id)]
    assert given_up.reason in said
    assert {want.state.value for want in site.engine.queries.wants.of_ref(f"sums@{DAY}")} == {"UpstreamBuilding"}


def test_a_run_does_not_give_way_to_a_launch_that_has_a_slot_already(behind: Any) -> None:
    """Nor to one that has not come into the queue yet: nothing says that slots are scarce."""
    site, beginning = behind

    before = site.launch(["sums"], [DAY])
    report(site, beginning, dg.DagsterEventType.RUN_ENQUEUED)
    report(site, beginning, dg.DagsterEventType.RUN_STARTING)
    after = site.launch(["sums"], [DAY])

    assert [run.status for run in (before, after)] == [FAILURE, FAILURE]
    assert "Waited 1 s for" in site.failure()


def test_a_run_does_not_give_way_while_slots_may_just_be_given_out(
    behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch is queued for some seconds though slots are free."""
    monkeypatch.setattr(waiting, "GIVE_WAY_SECONDS", 60.0)
    site, queued = behind
    report(site, queued, dg.DagsterEventType.RUN_ENQUEUED)

    run = site.launch(["sums"], [DAY])

    assert run.status is FAILURE
    assert "Waited 1 s for" in site.failure()


def test_a_run_that_loses_every_claim_fails_and_holds_nothing(
    site: Any, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 8.3: bounded, and what is claimed is built."""
    monkeypatch.setattr(step, "MAX_CLAIMS", 0)
    helper = elsewhere.once_joined(elsewhere.cancel)

    run = site.launch(["numbers"], [DAY])
    helper.result(MAX_SECONDS)

    assert run.status is FAILURE
    assert "was given up by another run" in site.failure()
    assert site.state(f"numbers@{DAY}") is InstanceState.UP_FOR_RETRY
