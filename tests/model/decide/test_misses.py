"""Dep misses: what waits, what is wanted in its stead, what wakes it, and what can never come (rules 6.2-6.7)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.decide.context import BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_MISSES
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from tests.support.catalog import HERE, dataset

_I, _W = InstanceState, WantState


def test_a_dep_miss_waits_for_what_it_misses_and_keeps_the_lease(world):
    """Rules 6.3, 4.4"""
    want = world.want("a")
    job_run = world.job_run("a")

    world.miss("a", "b", "c")

    assert world.queries.job_runs.get(job_run).state is JobRunState.DEP_MISSED
    assert world.state("a") is _I.UPSTREAM_BUILDING
    assert world.want_state(want) is _W.UPSTREAM_BUILDING
    assert world.queries.planning.missing_of(world.uuid("a")) == ("b", "c")
    assert world.due() == ["b", "c"]
    assert world.handle(world.launch_of("a")).events == ()


def test_each_missing_ref_gets_an_open_want_of_its_own_in_the_same_transaction(world):
    """Rule 6.4"""
    world.want("a", priority=5, ttl=1000.0, sla=500.0)
    needed = world.want_view(world.open_wants("a")[0].id)
    job_run = world.job_run("a")

    world.miss("a", "b", "c")

    for ref in ("b", "c"):
        (derived,) = world.open_wants(ref)
        assert (derived.refs, derived.source, derived.source_id) == ((ref,), "job run", job_run)
        assert (derived.priority, derived.deadline, derived.expires_at) == (5, needed.deadline, needed.expires_at)


def test_a_derivative_want_takes_the_highest_priority_first_deadline_and_last_expiry(world):
    """Rule 6.4: of all the wants that need it, each of which may be extreme in another way."""
    world.want("a", priority=9, ttl=100.0)
    world.want("a", priority=0, ttl=None)
    world.want("a", priority=1, sla=10.0)

    world.miss("a", "b")

    (derived,) = world.derivative_wants("b")
    assert (derived.priority, derived.deadline, derived.expires_at) == (9, world.clock.now + 10.0, None)


@pytest.mark.parametrize("lacking", ["priority", "deadline", "life", "a ref of its own", "time"])
def test_a_want_that_lacks_in_anything_is_not_reused(world, lacking):
    """Rule 6.4"""
    match lacking:
        case "priority":
            world.want("b", priority=0, sla=10.0, ttl=None)
        case "deadline":
            world.want("b", priority=1, sla=11.0, ttl=None)
        case "life":
            world.want("b", priority=1, sla=10.0, ttl=999.0)
        case "a ref of its own":
            world.want("b", "c", priority=1, sla=10.0, ttl=None)
        case "time":
            world.want("b", priority=1, sla=10.0, ttl=5.0)
            world.clock.turn(5.0)
    world.want("a", priority=1, sla=10.0, ttl=1000.0)

    world.miss("a", "b")

    assert len(world.derivative_wants("b")) == 1


def test_a_derivative_want_that_is_not_needed_any_longer_is_canceled_transitively(world):
    """Rule 6.4: and the leases of what waited for it are released."""
    want = world.want("a")
    world.miss("a", "b")
    world.miss("b", "c")

    world.cancel_want(want)

    assert world.open_wants("b") == world.open_wants("c") == []
    assert world.states("a", "b", "c") == [_I.UP_FOR_RETRY, _I.UP_FOR_RETRY, None]
    assert world.due() == []


def test_taking_back_a_derivative_want_by_hand_does_not_leave_the_waiting_ref_alone(world):
    """Rule 6.4: the standing rule."""
    world.miss("a", "b")
    (derived,) = world.derivative_wants("b")

    world.cancel_want(derived.id)

    assert len(world.derivative_wants("b")) == 1
    assert world.derivative_wants("b")[0].id != derived.id


# Waking up (rules 6.5, 6.6).


def test_what_came_between_the_look_and_the_report_is_no_reason_to_wait(world):
    """Rule 6.5: no lost wake-up; retried, with backoff."""
    want = world.want("a")
    world.start("a")
    world.live("b")

    world.miss("a", "b")

    assert world.state("a") is _I.UP_FOR_RETRY
    assert world.canonical("a").retry_at == world.clock.now + BACKOFF_SECONDS
    assert world.want_state(want) is _W.IDLE
    assert world.due() == []


def test_a_waiting_ref_goes_on_when_all_that_it_misses_is_live(world):
    """Rule 6.6"""
    want = world.want("a")
    world.miss("a", "b", "c")

    world.succeed("b")
    assert world.state("a") is _I.UPSTREAM_BUILDING
    world.succeed("c")

    assert world.state("a") is _I.UP_FOR_RETRY
    assert world.want_state(want) is _W.IDLE
    assert world.due() == ["a"]


def test_a_dep_that_is_tainted_before_the_others_arrive_is_missing_again(world):
    """Rule 6.6"""
    world.miss("a", "b", "c")
    world.succeed("b")

    world.taint("b")
    world.succeed("c")

    assert world.state("a") is _I.UPSTREAM_BUILDING
    assert world.queries.planning.missing_of(world.uuid("a")) == ("b",)
    assert world.due() == ["b"]
    world.succeed("b")
    assert world.state("a") is _I.UP_FOR_RETRY


def test_repairing_the_cause_opens_all_that_failed_of_it_transitively(world):
    """Rule 6.6: the taint of the cause is enough; wants that ended stay ended."""
    want = world.want("a")
    world.miss("a", "b")
    world.miss("b", "c")
    world.fail("c")

    world.taint("c")

    assert world.states("a", "b", "c") == [_I.UP_FOR_RETRY, _I.UP_FOR_RETRY, _I.TAINTED]
    assert world.want_state(want) is _W.UPSTREAM_FAILED
    again = world.want("a")
    assert world.due() == ["a"]
    world.live("c", "b", "a")
    assert world.want_state(again) is _W.SUCCESSFUL


def test_only_canonical_instances_are_repaired(make_world):
    """Rule 6.6: what was replaced while it was UpstreamFailed is history."""
    world = make_world(dataset("a"), dataset("plain", "a", kind=DatasetKind.PLAIN))
    world.miss("plain", "a")
    world.fail("a")
    replaced = world.uuid("plain")
    world.arrive("plain", "dagster event 1")

    world.taint("a")

    assert world.queries.instances.get(replaced).state is _I.UPSTREAM_FAILED
    assert world.state("plain") is _I.LIVE


# What can never come (rules 6.3, 6.7).


@pytest.mark.parametrize("unbuildable", ["nowhere", "days@9", "days", "a\n", "b@1"])
def test_a_miss_of_what_nothing_can_build_fails_with_the_reason(world, unbuildable):
    """Rule 6.3"""
    want = world.want("a")

    world.miss("a", "b", unbuildable)

    assert world.state("a") is _I.FAILED
    assert repr(unbuildable) in world.canonical("a").reason
    assert world.want_state(want) is _W.FAILED
    assert world.open_wants("b") == []


def deploy(world, *datasets):
    world.catalog.datasets = {spec.asset: spec for spec in datasets}
    world.handle(c.RegisterDatasets(location=HERE, datasets=datasets))


def test_a_miss_of_an_asset_that_a_deploy_removed_waits_until_it_is_back(make_world):
    """Rules 6.3, 11.5"""
    before = (dataset("a"), dataset("b"))
    world = make_world(*before)
    want = world.want("a")
    deploy(world, dataset("a"))

    world.miss("a", "b")

    assert world.states("a", "b") == [_I.UPSTREAM_BUILDING, None]
    assert world.due() == []
    deploy(world, *before)
    assert world.due() == ["b"]
    world.live("b", "a")
    assert world.want_state(want) is _W.SUCCESSFUL


def test_a_miss_of_a_wanted_partition_that_left_its_definition_waits(make_world):
    """Rules 6.3, 11.5"""
    world = make_world(dataset("a"), dataset("days", keys="12"))
    world.want("days@1")
    deploy(world, dataset("a"), dataset("days", keys="2"))

    world.miss("a", "days@1")

    assert world.state("a") is _I.UPSTREAM_BUILDING


def test_a_miss_of_an_unknown_partition_by_code_that_is_not_registered_waits(make_world):
    """Rules 6.3, 11.5: that code knows other partitions."""
    world = make_world(dataset("a"), dataset("days", keys="12"))
    world.start("a")
    deploy(world, dataset("a", code_version="2"), dataset("days", keys="2"))

    world.miss("a", "days@1")

    assert world.state("a") is _I.UPSTREAM_BUILDING


def test_a_miss_of_a_source_waits_for_its_lot(make_world):
    """Rules 5.7, 6.11"""
    world = make_world(dataset("a"), dataset("outside", kind=DatasetKind.SOURCE))
    world.miss("a", "outside")
    assert world.state("a") is _I.UPSTREAM_BUILDING

    world.arrive("outside", "file:///drop/1")

    assert world.state("a") is _I.UP_FOR_RETRY


def test_two_refs_that_miss_each_other_fail_with_the_cycle_spelled_out(world):
    """Rule 6.7: detected when it closes, and open for another try when it is tainted."""
    wants = [world.want("a"), world.want("b")]
    world.miss("a", "b")

    world.miss("b", "a")

    assert world.states("a", "b") == [_I.FAILED] * 2
    assert {world.canonical(ref).reason for ref in "ab"} == {"a cycle of dep misses: a → b → a"}
    assert [world.want_state(want) for want in wants] == [_W.FAILED] * 2
    world.taint("a", "b")
    world.want("a")
    world.live("b", "a")
    assert world.states("a", "b") == [_I.LIVE] * 2


@pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
def test_the_order_of_a_miss_does_not_decide_which_refs_of_a_cycle_fail(world, order):
    """Rule 6.7"""
    world.start("left", "right", together=True)
    other = {"left": "right", "right": "left"}

    world.handle(c.MissDeps(misses=(c.RunMiss(world.job_run("left"), {ref: (other[ref],) for ref in order}),)))

    assert world.states("left", "right") == [_I.FAILED] * 2
    assert {world.canonical(ref).reason for ref in order} == {"a cycle of dep misses: left → right → left"}


def misses(world, times, ref="a", of="b"):
    world.want(ref, ttl=None)
    for _ in range(times):
        world.miss(ref, of)
        if world.state(ref) is _I.FAILED:
            return
        world.live(of)
        world.taint(of)


def test_a_ref_that_misses_too_often_in_a_row_fails(world):
    """Rule 6.7: more than 20 times."""
    misses(world, MAX_MISSES)
    assert world.state("a") is _I.UP_FOR_RETRY

    world.miss("a", "b")

    assert MAX_MISSES == 20
    assert world.state("a") is _I.FAILED
    assert "21 times in a row" in world.canonical("a").reason


@pytest.mark.parametrize("opening", ["live", "tainted"])
def test_misses_are_counted_from_zero_once_the_ref_was_live_or_tainted(world, opening):
    """Rule 6.7"""
    misses(world, MAX_MISSES)
    if opening == "live":
        world.succeed("a")
    else:
        world.miss("a", "b")
        assert world.state("a") is _I.FAILED
    world.taint("a")

    misses(world, MAX_MISSES)

    assert world.state("a") is _I.UP_FOR_RETRY


# Job runs with several outputs (rules 6.2, 6.3).


def test_an_output_may_wait_for_another_output_of_its_own_job_run(world):
    """Rule 6.2: planned output by output, or the job would run for ever."""
    world.want("left")
    world.want("right")
    world.start("left", "right", together=True)
    world.handle(c.MissDeps(misses=(c.RunMiss(world.job_run("left"), {"left": ("right",)}),)))

    world.succeed("right")
    world.succeed("left")

    assert world.states("left", "right") == [_I.LIVE] * 2


def test_a_miss_names_outputs_of_its_job_run_and_something_that_is_missing(world):
    """Rules 3.5, 6.3"""
    job_run = world.job_run("a")
    before = world.seq

    for impacted in ({"b": ("c",)}, {"a": ()}, {}):
        with pytest.raises(InvalidRequest, match="dep miss"):
            world.handle(c.MissDeps(misses=(c.RunMiss(job_run, impacted),)))

    assert world.seq == before
    assert world.state("a") is _I.BUILDING


# Missed by the orchestrator itself (rule 6.3).


def missed(world, ref, *missing):
    run = BufferedRun(world.ids(), (ref,))
    return c.BufferMissed(
        launch_id=world.ids(),
        job=ref,
        location=HERE,
        owner="orchestrator",
        runs=(run,),
        misses=(c.RunMiss(run.job_run_id, {ref: missing}),),
    )


def test_the_orchestrator_records_a_dep_miss_without_a_process(world):
    """Rules 6.1, 6.3: Queued goes straight to DepMissed, in one transaction with the lease."""
    world.want("a")

    world.handle(missed(world, "a", "b"))

    assert world.state("a") is _I.UPSTREAM_BUILDING
    assert world.queries.job_runs.get(world.canonical("a").job_run).state is JobRunState.DEP_MISSED
    assert world.queries.launches.open() == []
    assert world.due() == ["b"]


@pytest.mark.parametrize(("meanwhile", "due"), [("its input is live", ["a"]), ("another job run leased it", [])])
def test_a_miss_that_is_none_any_more_is_nothing(world, meanwhile, due):
    """Rules 3.3, 4.4: decided again in its own transaction."""
    world.want("a")
    command = missed(world, "a", "b")
    if meanwhile == "its input is live":
        world.live("b")
    else:
        world.start("a")
    before = world.seq

    world.handle(command)

    assert world.seq == before
    assert world.due() == due


def damaged(world, ref, missing):
    """The ref's job run finds a live input lost or damaged."""
    miss = c.RunMiss(world.job_run(ref), {ref: (missing,)}, f"its input {missing} is damaged.")
    world.handle(c.MissDeps(misses=(miss,)))


def test_a_ref_whose_live_input_is_damaged_is_retried_with_a_growing_backoff(world):
    """Rule 6.16: no attempt is counted, the want stays open, and the reason names the input."""
    want = world.want("a")
    world.live("b")

    for seconds in (5.0, 10.0, 20.0):
        damaged(world, "a", "b")

        found = world.canonical("a")
        assert (found.state, found.reason) == (_I.UP_FOR_RETRY, "its input b is damaged.")
        assert found.retry_at == world.clock.now + seconds
        assert world.queries.job_runs.get(found.job_run).error == "its input b is damaged."
        world.clock.turn(seconds)

    assert (world.want_state(want), world.open_wants("b")) == ("Idle", [])
    world.succeed("a")
    assert world.want_state(want) == "Successful"


def test_a_ref_with_a_damaged_input_fails_after_20_misses_and_names_it(world):
    """Rules 6.7, 6.16"""
    world.want("a")
    world.live("b")

    for _ in range(MAX_MISSES + 1):
        damaged(world, "a", "b")
        world.clock.turn(MAX_BACKOFF_SECONDS)

    assert world.state("a") is _I.FAILED
    assert world.canonical("a").reason == "it missed inputs 21 times in a row, the last time: its input b is damaged."
