"""The ledger's entries for builds that others took over and for wants with several refs, and its counts (rules 8)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.commands import CLAIM_TTL_SECONDS, ExpireWants
from databuild_dagster.model.coordination import MESSAGES, SKIPPED_MESSAGE, Answer
from databuild_dagster.store.job_metrics import metrics_of_jobs
from databuild_dagster.store.ledger import LedgerEntry
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world():
    world = World([*(dataset(name) for name in "abcu"), *(dataset(name, job="duo") for name in ("x", "y"))])
    yield world
    assert world.check() == []
    world.store.close()


def outcomes(world: World, requester: str) -> dict[str, str]:
    """Ref to what became of it."""
    return {entry.ref: entry.outcome.value for entry in world.engine.ledger.of_requester(requester)}


def only(world: World, requester: str) -> LedgerEntry:
    (entry,) = world.engine.ledger.of_requester(requester)
    return entry


def lose_claim(world: World) -> None:
    """A Dagster run claims `a`, and is killed; the backoff has ended."""
    world.claim("a", dagster_run_id="R")
    world.lose("a")
    world.clock.turn(3600)


# Claims


def test_what_a_claim_could_not_finish_and_another_built_was_built_for_it(world):
    """Rule 8.1: its wants stay when its Dagster run is gone."""
    world.claim("a", dagster_run_id="R")
    world.miss("a", "u")
    assert (only(world, "R").outcome.value, only(world, "R").ended_at) == ("waiting", None)

    world.live("u")
    world.clock.turn(60)
    assert only(world, "R").outcome.value == "waiting"
    uuid = world.succeed("a")

    entry = only(world, "R")
    assert (entry.kind.value, entry.outcome.value, entry.uuid) == ("built", "live", uuid)
    assert (entry.job_run, entry.ended_at) == (world.canonical("a").job_run, world.clock.now)
    assert world.engine.ledger.of_ref("a")[-1] == entry


def test_a_launch_is_known_by_its_dagster_run_and_by_its_own_id(world):
    """Rule 13: `get_build_request_for_available_partition` gives one of them."""
    world.want("a")
    uuid = world.succeed("a")
    built_by = world.queries.canonical.build_request_of_live("a")
    launch_id = world.queries.job_runs.get(world.canonical("a").job_run).launch_id

    (entry,) = world.engine.ledger.of_launch(built_by)

    assert (entry.requester, entry.ref, entry.uuid, entry.outcome.value) == (built_by, "a", uuid, "live")
    assert world.engine.ledger.of_launch(launch_id) == [entry]
    assert world.engine.ledger.of_requester(built_by) == []


@pytest.mark.parametrize("outcome", ["live", "failed"])
def test_what_a_killed_claim_lost_and_another_ended_has_its_outcome(world, outcome):
    """Rule 8.1"""
    lose_claim(world)

    if outcome == "live":
        world.succeed("a")
    else:
        world.fail("a", error="no such file")

    entry = only(world, "R")
    reason = "no such file" if outcome == "failed" else "its own job run was lost, and another built it"
    assert (entry.outcome.value, entry.reason) == (outcome, reason)
    assert entry.job_run == world.canonical("a").job_run


def test_what_a_claim_built_stays_its_own_when_it_is_built_again(world):
    """Rule 8.1"""
    world.claim("a", dagster_run_id="R")
    uuid = world.succeed("a")

    world.taint("a")
    world.live("a")

    assert (only(world, "R").outcome.value, only(world, "R").uuid) == ("live", uuid)


@pytest.mark.parametrize("expired", [False, True])
def test_what_a_claim_left_unbuilt_is_given_up_when_its_want_has_ended(world, expired):
    """Rules 8.1, 8.3: no job run builds it for this request any longer, so it waits for nothing."""
    world.claim("a", dagster_run_id="R")
    world.lose("a")
    assert only(world, "R").outcome.value == "waiting"
    (want,) = world.open_wants("a")

    if expired:
        world.clock.turn(CLAIM_TTL_SECONDS)
        world.handle(ExpireWants(want_ids=(want.id,)))
    else:
        world.clock.turn(60)
        world.cancel_want(want.id)

    entry = only(world, "R")
    assert (entry.outcome.value, entry.reason, entry.ended_at) == ("given up", "its want ended", world.clock.now)
    assert world.engine.ledger.of_ref("a") == world.engine.ledger.entries() == [entry]


def test_what_a_claim_left_waits_as_long_as_it_is_being_built_or_wanted(world):
    """Rule 8.1: another's build serves it all the same, and who claims it again wants it again."""
    world.claim("a", dagster_run_id="R")
    world.cancel("a")
    assert only(world, "R").outcome.value == "given up"

    world.job_run("a")
    assert only(world, "R").outcome.value == "waiting"
    world.lose("a")
    world.clock.turn(3600)
    assert outcomes(world, "R") == {"a": "given up"}
    world.claim("a", dagster_run_id="R")
    world.lose("a")

    assert only(world, "R").outcome.value == "waiting"


# Delegations


def test_a_failed_delegation_names_the_job_run_that_failed(world):
    """Rule 8.3: not the one that was joined first, and lost."""
    first = world.job_run("a")
    lose_claim(world)
    second = world.job_run("a")

    world.fail("a", error="no such file")

    entry = only(world, "R")
    assert first != second
    assert (entry.outcome.value, entry.job_run, entry.uuid) == ("failed", second, world.uuid("a"))


# Wants


def test_each_ref_of_a_want_ends_in_its_own_way(world):
    """Rules 5.4, 8.1: the want is all or nothing, what became of its refs is not."""
    want = world.want_view(world.want("a", "b", "c", "u"))
    world.job_run("u")
    uuid = world.succeed("a")

    world.fail("b", error="no such file")

    assert outcomes(world, want.request_id) == {"a": "live", "b": "failed", "c": "given up", "u": "given up"}
    by_ref = {entry.ref: entry for entry in world.engine.ledger.of_requester(want.request_id)}
    assert (by_ref["a"].uuid, by_ref["a"].reason) == (uuid, "")
    assert by_ref["b"].reason == "no such file"


def test_what_was_built_after_a_want_had_ended_was_not_built_for_it(world):
    """Rules 5.3, 8.1"""
    failed, taken_back = world.want_view(world.want("a")), world.want_view(world.want("b"))
    world.fail("a")
    world.cancel_want(taken_back.id)
    world.clock.turn(60)

    world.taint("a")
    world.live("a", "b")

    assert outcomes(world, failed.request_id) == {"a": "failed"}
    assert outcomes(world, taken_back.request_id) == {"b": "given up"}


# Counts


def test_the_success_rate_is_of_all_job_runs_that_ended_but_dep_misses(make_world):
    """Rule 8.5: (Succeeded + Skipped) / (Succeeded + Skipped + Failed + Canceled + Lost)."""
    world = make_world(dataset("days", keys="123456789"), dataset("u"))
    world.live("days@1", "days@2", "days@3")
    world.claim("days@1", dagster_run_id="R")
    world.claim("days@2", dagster_run_id="S")
    world.fail("days@4")
    world.job_run("days@5")
    world.cancel("days@5")
    world.lose("days@6")
    world.miss("days@7", "u")
    world.job_run("days@8")
    world.buffer("days@9")

    (metrics,) = metrics_of_jobs(world.store)

    assert metrics.counts == {
        "Succeeded": 3,
        "Skipped": 2,
        "Failed": 1,
        "Canceled": 1,
        "Lost": 1,
        "DepMissed": 1,
        "Queued": 1,
        "Running": 1,
    }
    assert metrics.success_rate == 5 / 8


def test_builds_avoided_are_counted_once_for_each_requester_and_partition(world):
    """Rule 8.5"""
    world.live("a", "x", "y")

    world.claim("x", "y", together=True, dagster_run_id="R")
    world.claim("x", dagster_run_id="S")
    world.claim("a", dagster_run_id="R")

    avoided = {metric.job: metric.avoided for metric in metrics_of_jobs(world.store) if metric.avoided}
    assert avoided == {"a": 1, "duo": 2}


def test_wants_count_as_open_until_they_end(world):
    first = world.want("a", "b")
    world.want("a")
    assert world.queries.wants.n_open() == 2

    world.cancel_want(first)

    assert world.queries.wants.n_open() == 1


# All of it


def test_the_newest_entries_of_all_requests_come_first(world):
    """Rules 15: what was delegated, claimed and wanted stands in one list."""
    asked = []
    for ask in (
        lambda: world.claim("a", dagster_run_id="R").events and "R",
        lambda: world.want_view(world.want("b")).request_id,
        lambda: world.claim("a", dagster_run_id="S").events and "S",
    ):
        asked.append(ask())
        world.clock.turn(10)

    entries = world.engine.ledger.entries()

    assert [entry.requester for entry in entries] == asked[::-1]
    assert [entry.kind.value for entry in entries] == ["joined", "built", "built"]
    assert world.engine.ledger.entries(most=2) == entries[:2]


def test_views_have_the_job_runs_and_the_delegations_with_their_messages(make_world):
    """Rules 13, 8.1: the messages are those of the design."""
    world = make_world(dataset("a"), dataset("b"))
    world.live("a")
    world.claim("a", dagster_run_id="reuses", by_person=False)
    world.fail("b")
    world.claim("b", dagster_run_id="refused", by_person=False)
    world.taint("a")
    world.start("a")
    world.claim("a", dagster_run_id="joins")

    runs = world.store.ask(
        "SELECT job_label, state, message FROM databuild_runs_of_jobs ORDER BY buffered_at, job_run_id", ()
    )
    asked = "SELECT requester, kind, outcome, message, uuid FROM databuild_delegated_partitions ORDER BY requester"
    delegations = world.store.ask(asked, ())

    assert sorted(row[:2] for row in runs) == [
        ("a", "Running"), ("a", "Skipped"), ("a", "Succeeded"), ("b", "Failed"),
    ]  # fmt: skip
    assert {message for _, state, message in runs if state == "Skipped"} == {SKIPPED_MESSAGE}
    assert [row[:3] for row in delegations] == [
        ("joins", "joined", "waiting"), ("refused", "refused", "refused"), ("reuses", "reused", "live"),
    ]  # fmt: skip
    assert [row[3] for row in delegations] == [MESSAGES[kind] for kind in (Answer.JOIN, Answer.REFUSE, Answer.REUSE)]
    assert delegations[0][4] == world.uuid("a")
