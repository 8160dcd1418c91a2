"""Taints as Dagster shows them: red until rebuilt or taken back, the reason in the run that stands for the taint."""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, DepMiss, databuild_asset
from databuild_dagster.bindings.adapter.run_tags import TAINT_CHECK, is_by_person
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.display.partition_status import stopped_run_id, taint_run_id
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.model.commands import (
    BufferMissed,
    CancelJobRuns,
    InvokeMeta,
    PausePartitions,
    PromoteInstances,
    RetryRefs,
    RunMiss,
    TaintPartitions,
    UntaintPartitions,
)
from databuild_dagster.model.events import Birth, BufferedRun
from databuild_dagster.model.meta_storage import Put, do
from databuild_dagster.model.states import InstanceState
from tests.support.dagster_files import fresh_instance
from tests.support.world import COMPLETE

from ..module_site import module_site

daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
ONE, TWO = "2013-01-01", "2013-01-02"
DAY_SECONDS = 86_400
REFS = [f"numbers@{ONE}", f"numbers@{TWO}"]


class Numbers:
    """Two days of numbers; a day may miss an input."""

    def __init__(self) -> None:
        self.misses = ""

        @databuild_asset(partitions_def=daily)
        def numbers(context: BuildContext) -> pd.DataFrame:
            if context.partition_key == self.misses:
                raise DepMiss("elsewhere@x")
            return pd.DataFrame({"day": [context.partition_key]})

        self.asset = numbers


@databuild_asset
def shops() -> pd.DataFrame:
    return pd.DataFrame({"shop": ["here"]})


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


elsewhere = dg.AssetSpec("elsewhere", partitions_def=dg.StaticPartitionsDefinition(["x"]))


@pytest.fixture(scope="module")
def given(spark_home: str) -> Iterator[str]:
    """The home of a deployment where Dagster runs of a person have built everything."""
    with module_site(spark_home, Numbers().asset, shops, elsewhere) as site:
        site.launch(["numbers"], [ONE, TWO])
        site.launch(["shops"])
        only_tick(site)
        yield site.instance.root_directory


@pytest.fixture
def instance(given: str) -> Iterator[dg.DagsterInstance]:
    with fresh_instance(given) as instance:
        yield instance


@pytest.fixture
def live(deploy: Any, numbers: Numbers) -> Any:
    """Everything was built so long ago that no want brings a rebuild."""
    site = deploy(numbers.asset, shops, elsewhere)
    site.engine.clock = lambda: time.time() + 2 * DAY_SECONDS
    only_tick(site)
    return site


def taint(site: Any, *refs: str, reason: str = "a shop was missing") -> str:
    taint_id = site.engine.handle(TaintPartitions(refs=refs, reason=reason), actor="user").taint_id
    assert taint_id is not None
    return str(taint_id)


def only_tick(site: Any) -> None:
    """Runs no launch of what is due."""
    run_tick(site.instance, site.repository, site.deployment, OrderCollector(site.instance))


def failures(site: Any, run_id: str) -> list[str]:
    """The messages with which a Dagster run has failed."""
    records = site.instance.all_logs(run_id, of_type=dg.DagsterEventType.PIPELINE_FAILURE)
    return [record.dagster_event.message for record in records]


def paint_from(site: Any, cursor: str) -> None:
    """A tick of another process, which read this cursor before."""
    site.instance.daemon_cursor_storage.set_cursor_values({"databuild/taints_painted/tests": cursor})
    site.engine.memory.forget()
    only_tick(site)


def test_a_tainted_partition_is_red_with_the_reason_one_click_away(live: Any) -> None:
    taint_id = taint(live, REFS[0])

    only_tick(live)

    assert live.colours("numbers") == {ONE: "red", TWO: "green"}
    planned = live.instance.get_latest_planned_materialization_info(dg.AssetKey("numbers"), partition=ONE)
    run = live.instance.get_run_by_id(planned.run_id)
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert run.tags["databuild/taint"] == taint_id
    assert run.asset_selection == {dg.AssetKey("numbers")}
    assert not is_by_person(run.tags)
    assert run.run_id not in {listed.run_id for listed in live.instance.get_runs(dg.RunsFilter(exclude_subruns=True))}
    (failure,) = failures(live, run.run_id)
    assert failure.startswith(f"{REFS[0]} was tainted by user at ")
    assert "a shop was missing." in failure
    assert f"databuild untaint {taint_id}" in failure
    assert f"databuild build {REFS[0]}" in failure


def test_painting_twice_is_painting_once(live: Any) -> None:
    taint_id = taint(live, *REFS)
    only_tick(live)
    runs = live.instance.get_runs_count()

    paint_from(live, '{"seq": 1, "tainted": {}}')

    assert live.instance.get_runs_count() == runs
    assert live.colours("numbers") == {ONE: "red", TWO: "red"}
    assert len(failures(live, taint_run_id(taint_id))) == 1


def test_a_tick_without_news_asks_dagster_nothing(live: Any) -> None:
    taint(live, REFS[0])
    only_tick(live)
    live.instance.event_log_storage.wipe_asset_cached_status(dg.AssetKey("numbers"))
    before = live.instance.get_event_records(dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED))

    only_tick(live)

    after = live.instance.get_event_records(dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED))
    assert len(after) == len(before)


def test_a_rebuild_makes_it_green_and_brings_the_check_up_to_date_in_its_step(live: Any) -> None:
    taint(live, *REFS)
    only_tick(live)

    live.launch(["numbers"], [ONE])

    assert live.steps == {"numbers": "success"}
    assert _check(live) == (False, 1, [REFS[1]])
    assert live.colours("numbers") == {ONE: "green", TWO: "red"}
    only_tick(live)
    assert live.colours("numbers") == {ONE: "green", TWO: "red"}


@pytest.mark.parametrize("is_downstream", [False, True])
def test_a_taint_taken_back_makes_it_green_and_sets_no_automation_going(live: Any, is_downstream: bool) -> None:
    """Rules 7.1, 7.3"""
    materialized = len(live.instance.fetch_materializations(dg.AssetKey("numbers"), limit=100).records)
    first = live.engine.queries.canonical.of([REFS[0]])[REFS[0]].uuid
    command = TaintPartitions(uuids=(first,), reason="a shop was missing", downstream=is_downstream)
    taint_id = live.engine.handle(command).taint_id
    only_tick(live)
    assert live.colours("numbers") == {ONE: "red", TWO: "green"}

    live.engine.handle(UntaintPartitions(taint_id=taint_id))
    only_tick(live)

    assert live.colours("numbers") == {ONE: "green", TWO: "green"}
    assert len(live.instance.fetch_materializations(dg.AssetKey("numbers"), limit=100).records) == materialized


def test_an_instance_of_an_environment_makes_it_green(live: Any) -> None:
    """Rule 16.10"""
    taint(live, REFS[0])
    only_tick(live)
    assert live.colours("numbers") == {ONE: "red", TWO: "green"}
    opened = InvokeMeta(statements=(do(Put("environments/branch", b"{}")),))
    seq = live.engine.handle(opened).events[0].seq
    born = Birth(live.engine.new_id(), "numbers", REFS[0], manifest=COMPLETE)

    live.engine.handle(
        PromoteInstances(
            environment="branch",
            opening="environments/branch",
            revision=seq,
            pin=live.engine.queries.events.head().seq,
            instances=(born,),
            ahead=True,
        )
    )
    only_tick(live)

    assert live.colours("numbers") == {ONE: "green", TWO: "green"}


def test_one_of_two_taints_taken_back_leaves_it_red(live: Any) -> None:
    first, second = taint(live, REFS[0]), taint(live, REFS[0], reason="the till was broken")
    only_tick(live)

    live.engine.handle(UntaintPartitions(taint_id=second))
    only_tick(live)
    assert live.colours("numbers")[ONE] == "red"

    live.engine.handle(UntaintPartitions(taint_id=first))
    only_tick(live)
    assert live.colours("numbers")[ONE] == "green"


def test_an_asset_without_partitions_has_a_failed_last_run_until_it_is_untainted(live: Any) -> None:
    taint_id = taint(live, "shops")

    only_tick(live)

    assert _last_run_id(live, "shops") == taint_run_id(taint_id)
    live.engine.handle(UntaintPartitions(taint_id=taint_id))
    only_tick(live)
    assert _last_run_id(live, "shops") != taint_run_id(taint_id)


def test_a_taint_that_a_rebuild_answers_at_once_is_not_painted(live: Any) -> None:
    """A want within its TTL brings the rebuild (rule 7.1): in the same tick it is launched."""
    live.want(REFS[0])
    taint_id = taint(live, REFS[0])

    live.build()

    assert live.instance.get_run_by_id(taint_run_id(taint_id)) is None
    assert live.colours("numbers") == {ONE: "green", TWO: "green"}


def test_a_rebuild_that_waits_for_an_input_leaves_it_red_for_it_is_not_live(live: Any, numbers: Numbers) -> None:
    taint_id = taint(live, REFS[0])
    numbers.misses = ONE

    live.launch(["numbers"], [ONE])
    only_tick(live)

    assert live.state(REFS[0]) is InstanceState.UPSTREAM_BUILDING
    assert live.colours("numbers") == {ONE: "red", TWO: "green"}
    planned = live.instance.get_latest_planned_materialization_info(dg.AssetKey("numbers"), partition=ONE)
    assert planned.run_id == taint_run_id(taint_id)


def test_a_canceled_input_and_what_waits_for_it_are_red_until_a_retry(live: Any) -> None:
    """Rules 6.10, 8.8: the launch that was canceled had no Dagster run yet."""
    third = "numbers@2013-01-03"
    taint(live, "shops")
    live.want(third)
    run = BufferedRun(live.engine.new_id(), (third,), "2013-01-03")
    missed = RunMiss(run.job_run_id, {third: ("shops",)})
    names = {"launch_id": live.engine.new_id(), "job": "numbers", "location": "tests", "owner": "test"}
    live.engine.handle(BufferMissed(**names, runs=(run,), misses=(missed,)))
    only_tick(live)
    (job_run,) = live.engine.queries.job_runs.newest(open_only=True)
    assert (job_run.refs, live.state(third)) == (("shops",), InstanceState.UPSTREAM_BUILDING)

    live.engine.handle(CancelJobRuns(job_run_ids=(job_run.id,), reason="not today", fail_missed=True), actor="ann")
    only_tick(live)

    assert (live.state("shops"), live.state(third)) == (InstanceState.FAILED, InstanceState.UPSTREAM_FAILED)
    assert live.colours("numbers") == {ONE: "green", TWO: "green", "2013-01-03": "red"}
    assert _last_run_id(live, "shops") == stopped_run_id(job_run.id)
    failed = live.instance.get_run_by_id(stopped_run_id(job_run.id))
    assert (failed.status, failed.tags["databuild/stopped"]) == (dg.DagsterRunStatus.FAILURE, job_run.id)
    (why,) = failures(live, failed.run_id)
    assert why.startswith(f"Job run {job_run.id} of shops was canceled by ann.")
    assert "`databuild retry shops`" in why

    # Nothing launches it, whose Dagster run would hide the color.
    live.engine.handle(PausePartitions(refs=(third,), reason="the colors are looked at"))
    live.engine.handle(RetryRefs(refs=(third,)))
    only_tick(live)

    assert live.colours("numbers") == {ONE: "green", TWO: "green"}


def test_a_new_dagster_instance_shows_the_present_taints(live: Any) -> None:
    taint(live, REFS[1])

    paint_from(live, '{"seq": 999999, "tainted": {}}')

    assert live.colours("numbers") == {ONE: "green", TWO: "red"}


# The check


def test_a_check_counts_tainted_partitions_and_is_reported_when_the_number_changes(live: Any) -> None:
    assert _check(live) == (True, 0, [])

    taint_id = taint(live, *REFS)
    only_tick(live)
    assert _check(live) == (False, 2, REFS)
    reported = len(_evaluations(live))
    only_tick(live)
    assert len(_evaluations(live)) == reported

    live.engine.handle(UntaintPartitions(taint_id=taint_id))
    only_tick(live)
    assert _check(live) == (True, 0, [])


def test_a_person_may_execute_the_check_alone_which_builds_nothing(live: Any) -> None:
    taint(live, REFS[0])
    job_runs = len(live.engine.queries.job_runs.newest())
    key = dg.AssetCheckKey(dg.AssetKey("numbers"), TAINT_CHECK)
    job = live.repository.get_job("__ASSET_JOB").get_subset(asset_selection=frozenset(), asset_check_selection={key})

    result = job.execute_in_process(instance=live.instance)

    assert result.success
    assert _check(live) == (False, 1, [REFS[0]])
    assert len(live.engine.queries.job_runs.newest()) == job_runs


def _last_run_id(site: Any, asset: str) -> str:
    (record,) = site.instance.get_asset_records([dg.AssetKey(asset)])
    return str(record.asset_entry.last_run_id)


def _evaluations(site: Any) -> list[Any]:
    """Those of the check in Dagster, the newest first."""
    key = dg.AssetCheckKey(dg.AssetKey("numbers"), TAINT_CHECK)
    history = site.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    return [record.event.dagster_event.event_specific_data for record in history]


def _check(site: Any) -> tuple[bool, int, list[str]]:
    last = _evaluations(site)[0]
    return (last.passed, last.metadata["databuild/tainted"].value, last.metadata["databuild/refs"].value.split())
