"""How job runs end, and the answer to a late worker (rules 6.8-6.10, 10.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.decide.context import MAX_ATTEMPTS, MAX_BACKOFF_SECONDS
from databuild_dagster.model.errors import InvalidRequest, JobRunEnded, NotFound, StaleJobRun
from databuild_dagster.model.events import ManifestFact, OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.model.surroundings import MAX_LOSSES, MAX_OUTAGES, Fate, Surrounding
from tests.support.world import COMPLETE


def success(job_run, *refs, inputs=None, manifest=COMPLETE):
    outputs = tuple(OutputFact(ref=ref, inputs=inputs or {}, manifest=manifest) for ref in refs)
    return c.SucceedJobRuns(runs=(RunSuccess(job_run, outputs),))


def test_success_makes_the_instance_live_with_its_manifest_and_lineage(world):
    """Rules 4.6, 10.3"""
    inputs = {"a": world.succeed("a"), "days@1": world.succeed("days@1")}

    uuid = world.succeed("b", inputs=inputs)

    instance = world.queries.instances.get(uuid)
    assert instance.state is InstanceState.LIVE
    assert set(instance.inputs) == set(inputs.values())
    assert (instance.manifest_state, instance.manifest_uri, instance.code_version) == ("complete", COMPLETE.uri, "1")
    assert world.canonical("b").rows == COMPLETE.rows


def test_what_was_built_from_a_tainted_or_replaced_instance_is_stale(world):
    """Rule 4.6: a view, not a state."""
    world.live("a", "c")
    uuid = world.succeed("b", inputs=["a", "c"])
    assert world.queries.instances.stale([uuid]) == set()

    taint = world.taint("a")
    assert world.queries.instances.stale([uuid]) == {uuid}
    world.untaint(taint)
    assert world.queries.instances.stale([uuid]) == set()
    world.taint("c")
    world.want("c")
    world.live("c")

    assert world.queries.instances.stale([uuid]) == {uuid}
    assert world.state("b") is InstanceState.LIVE


@pytest.mark.parametrize("report", ["success", "failure", "dep miss"])
@pytest.mark.parametrize("ended", ["succeeded", "failed", "missed", "lost", "canceled", "queued", "replaced"])
def test_a_job_run_that_is_not_running_reports_in_vain(world, report, ended):
    """Rule 6.9: fencing."""
    launch_id = world.buffer("a")
    job_run = world.canonical("a").job_run
    if ended != "queued":
        world.start_launch(launch_id)
    match ended:
        case "succeeded":
            world.succeed("a")
        case "failed":
            world.fail("a")
        case "missed":
            world.miss("a", "b")
        case "lost":
            world.lose("a")
        case "canceled":
            world.cancel("a")
        case "replaced":
            world.lose("a")
            world.start("a")
    before = world.seq

    with pytest.raises(StaleJobRun, match=job_run):
        match report:
            case "success":
                world.handle(success(job_run, "a"))
            case "failure":
                world.handle(c.FailJobRuns(failures=(c.RunFailure(job_run, "late"),)))
            case "dep miss":
                world.handle(c.MissDeps(misses=(c.RunMiss(job_run, {"a": ("b",)}),)))

    assert world.seq == before


@pytest.mark.parametrize(
    "manifest", [None, ManifestFact(state="partial", uri="x"), ManifestFact(state="removed", uri="x")], ids=str
)
def test_success_without_a_complete_or_empty_manifest_is_refused(world, manifest):
    """Rules 4.3, I7"""
    job_run = world.job_run("a")
    before = world.seq

    with pytest.raises(InvalidRequest, match="manifest"):
        world.handle(success(job_run, "a", manifest=manifest))

    assert world.seq == before


@pytest.mark.parametrize("refs", [(), ("left",), ("left", "right", "a"), ("left", "left", "right")], ids=str)
def test_success_must_tell_of_exactly_its_outputs(world, refs):
    """Rules 6.2, 10.3"""
    world.start("left", "right", together=True)
    before = world.seq

    with pytest.raises(InvalidRequest, match="left, right"):
        world.handle(success(world.job_run("left"), *refs))

    assert world.seq == before


def test_success_names_inputs_that_exist_and_are_of_their_refs(world):
    """Rule 4.6: lineage that is wrong is worse than none."""
    a, c_ = world.succeed("a"), world.succeed("c")
    job_run = world.job_run("b")
    before = world.seq

    with pytest.raises(NotFound, match="There is no instance"):
        world.handle(success(job_run, "b", inputs={"a": "00000000-0000-0000-0000-000000000000"}))
    for wrong in ({"a": c_}, {"a": a, "c": a}, {"nowhere": a}):
        with pytest.raises(InvalidRequest, match="no instance of"):
            world.handle(success(job_run, "b", inputs=wrong))

    assert world.seq == before


def test_a_job_run_named_twice_or_not_at_all_is_refused(world):
    """Rule 3.5: nothing is recorded that says nothing, or says it twice."""
    job_run = world.job_run("a")
    one = RunSuccess(job_run, (OutputFact(ref="a", manifest=COMPLETE),))
    miss, failure = c.RunMiss(job_run, {"a": ("b",)}), c.RunFailure(job_run, "it raised")
    before = world.seq

    for command in (
        c.SucceedJobRuns(runs=(one, one)),
        c.SucceedJobRuns(runs=()),
        c.MissDeps(misses=(miss, miss)),
        c.MissDeps(misses=()),
        c.FailJobRuns(failures=(failure, failure)),
        c.FailJobRuns(failures=()),
        c.CancelJobRuns(job_run_ids=()),
    ):
        with pytest.raises(InvalidRequest, match="job runs"):
            world.handle(command)

    assert world.seq == before


def test_an_unknown_job_run_is_not_found(world):
    for command in (
        success("no-such-run", "a"),
        c.MissDeps(misses=(c.RunMiss("no-such-run", {"a": ("b",)}),)),
        c.FailJobRuns(failures=(c.RunFailure("no-such-run", "it raised"),)),
        c.CancelJobRuns(job_run_ids=("no-such-run",)),
    ):
        with pytest.raises(NotFound, match="no-such-run"):
            world.handle(command)


# Failures and attempts (rule 6.8).


def test_a_hard_failure_ends_the_ref_and_its_wants(world):
    """Rule 6.8: the default for an exception in user code."""
    want = world.want("a")

    world.fail("a", error="division by zero")

    assert world.state("a") is InstanceState.FAILED
    assert world.canonical("a").reason == "division by zero"
    assert world.want_state(want) is WantState.FAILED


def test_a_transient_failure_is_retried_with_growing_delays_up_to_max_attempts(world):
    """Rule 6.8"""
    want = world.want("a")
    delays = []
    for _ in range(MAX_ATTEMPTS - 1):
        world.fail("a", kind="transient")
        assert world.state("a") is InstanceState.UP_FOR_RETRY
        assert world.want_state(want) is WantState.IDLE
        delays.append(world.canonical("a").retry_at - world.clock.now)
        world.clock.now = world.canonical("a").retry_at

    world.fail("a", kind="transient")

    assert world.state("a") is InstanceState.FAILED
    assert 0 < delays[0] < delays[1] <= MAX_BACKOFF_SECONDS
    assert len(world.queries.instances.history("a")) == MAX_ATTEMPTS


def test_a_failure_of_a_kind_that_does_not_exist_is_refused(world):
    """Rule 6.8: `Transient` misspelled must not end a ref for good."""
    before_failing = world.job_run("a")
    before = world.seq

    with pytest.raises(InvalidRequest, match="Transient"):
        world.handle(c.FailJobRuns(failures=(c.RunFailure(before_failing, "busy", "Transient"),)))

    assert world.seq == before


# Failures of the surroundings (rule 6.17).


def _turn_to_the_retry(world, ref="a"):
    world.clock.now = max(world.clock.now, world.canonical(ref).retry_at)


def _n_until_failed(world, end):
    """How often a ref ends in a way until it has failed."""
    for n in range(1, 100):
        end(n)
        if world.state("a") is InstanceState.FAILED:
            return n
        _turn_to_the_retry(world)
    raise AssertionError("it is tried for ever")


def test_outages_do_not_count_as_attempts_until_they_are_too_many(world):
    """Rule 6.17: nothing loops without end."""
    world.want("a", ttl=None)

    n = _n_until_failed(world, lambda n: world.fail("a", owner=Surrounding.SPARK))

    assert n == MAX_OUTAGES + MAX_ATTEMPTS


def test_outages_between_failures_of_its_own_leave_its_attempts(world):
    """Rule 6.17"""
    world.want("a", ttl=None)

    def end(n):
        world.fail("a", kind="transient", owner=Surrounding.WAREHOUSE if n % 2 else None)

    assert _n_until_failed(world, end) == 2 * MAX_ATTEMPTS


def test_an_outage_is_named_in_the_log_with_its_owner(world):
    """Rule 6.17"""
    (event,) = world.fail("a", error="no answer", owner=Surrounding.SPARK).events

    (failure,) = event.fact.failures
    assert (failure.owner, failure.spared) == ("spark", ("a",))


# Loss (rules 6.9, 6.18).


@pytest.mark.parametrize(
    ("fate", "n_alone", "n_together"),
    [
        (Fate.RAISED, MAX_ATTEMPTS, MAX_ATTEMPTS),
        (Fate.CRASHED, MAX_ATTEMPTS, MAX_LOSSES),
        (Fate.KILLED, MAX_LOSSES, MAX_LOSSES),
    ],
)
def test_losses_fail_a_ref_by_the_fate_of_its_launches(world, fate, n_alone, n_together):
    """Rule 6.18: only a launch of its own shows that the ref ended the process."""
    world.want("a", ttl=None)

    def end_beside_another(n):
        world.live("d")
        world.taint("d")
        world.start("a", "d")
        world.lose("a", fate)

    assert _n_until_failed(world, lambda n: world.lose("a", fate)) == n_alone
    world.taint("a")
    world.want("a", ttl=None)
    assert _n_until_failed(world, end_beside_another) == n_together


def test_a_ref_that_ends_its_process_fails_with_a_sentence_about_it(world):
    """Rule 6.18"""
    world.want("a", ttl=None)

    _n_until_failed(world, lambda n: world.lose("a", Fate.CRASHED))

    assert world.canonical("a").reason.endswith("(attempt 3 of 3, and its process built nothing else)")


def test_losses_are_counted_from_zero_once_the_ref_was_live(world):
    """Rule 6.18"""
    world.want("a", ttl=None)
    for _ in range(MAX_LOSSES - 1):
        world.lose("a")
        _turn_to_the_retry(world)
    world.live("a")
    world.taint("a")
    world.want("a", ttl=None)

    assert _n_until_failed(world, lambda n: world.lose("a")) == MAX_LOSSES


def test_judging_a_launch_twice_is_nothing(world):
    """Rule 6.9: two orchestrators see the same."""
    launch_id = world.start("a")
    world.handle(c.LoseLaunches(launch_ids=(launch_id,), reason="silence"))
    before = world.seq

    world.handle(c.LoseLaunches(launch_ids=(launch_id,), reason="silence"))

    assert world.seq == before


def test_canceling_a_job_run_that_ended_is_refused(world):
    """Rule 6.10"""
    job_run = world.job_run("a")
    world.succeed("a")
    before = world.seq

    with pytest.raises(JobRunEnded, match="Succeeded"):
        world.handle(c.CancelJobRuns(job_run_ids=(job_run,)))

    assert world.seq == before


def canceled_by_a_person(world, ref):
    job_run = world.canonical(ref).job_run
    world.handle(c.CancelJobRuns(job_run_ids=(job_run,), fail_missed=True), actor="ada")
    return job_run


def test_a_person_stops_a_build_that_a_ref_waits_for_and_it_stays_stopped(world):
    """Rule 6.10: the output fails, and what waits for it fails upstream; `retry` opens all of it."""
    want = world.want("a")
    world.miss("a", "b")
    world.start("b")

    job_run = canceled_by_a_person(world, "b")

    assert world.queries.job_runs.get(job_run).state is JobRunState.CANCELED
    assert world.states("a", "b") == [InstanceState.UPSTREAM_FAILED, InstanceState.FAILED]
    assert world.canonical("b").reason == "canceled by ada"
    assert (world.due(), world.want_state(want)) == ([], WantState.UPSTREAM_FAILED)
    world.handle(c.RetryRefs(refs=("b",)))
    assert world.due() == ["a", "b"]
