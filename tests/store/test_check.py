"""`check` finds every planted fault and names the entity (rules 3.4, 12)."""

from __future__ import annotations

import contextlib

import pytest

from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.rows import MACHINES
from databuild_dagster.store import log
from databuild_dagster.store.check import check
from databuild_dagster.store.invariants import violations
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world():
    """`a` waits for `b`, which is queued; `c` is live and was rebuilt, `d` tainted, `e` failed and `f` because of it.

    `asker` has joined `b` and reuses `c`.
    """
    world = World([dataset(name) for name in "abcdef"])
    world.want("a", priority=2)
    world.miss("a", "b")
    world.buffer("b")
    world.want("c")
    world.live("c")
    world.taint("c")
    world.live("c", "d")
    world.taint("d")
    world.miss("f", "e")
    world.fail("e")
    world.claim("b", "c", dagster_run_id="asker")
    assert world.check() == []
    yield world
    world.store.close()


#: Tests of a statement for the rows of one ref.
_A, _C = (f"ref_id = (SELECT id FROM databuild_refs WHERE ref = '{ref}')" for ref in "ac")
_OF_C, _OF_D = (f"id = (SELECT canonical_id FROM databuild_refs WHERE ref = '{ref}')" for ref in "cd")

#: (invariant, what the entity is called, the damage)
PLANTED = [
    ("I1", "c", f"UPDATE databuild_instances SET state = 'Building' WHERE {_C}"),
    ("I1", "uuid:b", "UPDATE databuild_refs SET canonical_id = NULL, last_id = NULL, state = NULL WHERE ref = 'b'"),
    (
        "I2",
        "c",
        "UPDATE databuild_refs SET canonical_id = (SELECT previous_id FROM databuild_instances WHERE id = canonical_id) WHERE ref = 'c'",
    ),
    ("I2", "c", "UPDATE databuild_refs SET last_id = NULL WHERE ref = 'c'"),
    ("I2", "c", "UPDATE databuild_refs SET state = 'Failed' WHERE ref = 'c'"),
    ("I2", "c", "UPDATE databuild_refs SET retry_at = 1.0 WHERE ref = 'c'"),
    ("I2", "uuid:c", f"UPDATE databuild_instances SET previous_id = NULL WHERE {_OF_C}"),
    ("I3", "uuid:a", "DELETE FROM databuild_missing"),
    ("I3", "uuid:a", "UPDATE databuild_instances SET n_unmet = 7 WHERE n_unmet = 1"),
    ("I3", "uuid:a", "UPDATE databuild_refs SET state = 'Failed' WHERE ref = 'b'"),
    ("I3", "uuid:a", "UPDATE databuild_refs SET state = 'Live' WHERE ref = 'b'"),
    ("I3", "uuid:f", "UPDATE databuild_refs SET state = 'Tainted' WHERE ref = 'e'"),
    (
        "I3",
        "uuid:c",
        "INSERT INTO databuild_missing SELECT c.canonical_id, d.id, 1 FROM databuild_refs c, databuild_refs d"
        " WHERE c.ref = 'c' AND d.ref = 'd'",
    ),
    ("I4", "want:a", "UPDATE databuild_wants SET state = 'Idle' WHERE state = 'UpstreamBuilding'"),
    ("I4", "want:a", "UPDATE databuild_wants SET n_live = 1 WHERE state = 'UpstreamBuilding'"),
    ("I4", "want:c", f"UPDATE databuild_holds SET open = 1 WHERE {_C}"),
    ("I3", "b", "UPDATE databuild_refs SET n_waiters = 0 WHERE ref = 'b'"),
    ("I4", "want:a", f"DELETE FROM databuild_want_refs WHERE {_A}"),
    ("I4", "a", "UPDATE databuild_refs SET n_open_wants = 2 WHERE ref = 'a'"),
    ("I4", "a", "UPDATE databuild_refs SET priority = 0 WHERE ref = 'a'"),
    ("I4", "a", "UPDATE databuild_refs SET wanted_until = 1e12 WHERE ref = 'a'"),
    ("rule 5.4", "a", "UPDATE databuild_refs SET due = 1 WHERE ref = 'a'"),
    ("rule 5.4", "c", "UPDATE databuild_refs SET due = 1 WHERE ref = 'c'"),
    ("rule 6.4", "b", "UPDATE databuild_wants SET priority = 1 WHERE source = 'job run' AND state = 'Building'"),
    ("rule 6.4", "want:b", "UPDATE databuild_missing SET active = 0"),
    ("rule 6.1", "run:b", "UPDATE databuild_job_runs SET ended_at = 1.0 WHERE state = 'Queued'"),
    ("rule 6.1", "run:c", "UPDATE databuild_job_runs SET ended_at = NULL WHERE state = 'Succeeded'"),
    ("rule 6.1", "run:b", "UPDATE databuild_refs SET state = 'Live' WHERE ref = 'b'"),
    ("rule 4.4", "uuid:b", "UPDATE databuild_job_runs SET state = 'Lost', ended_at = 1.0 WHERE state = 'Queued'"),
    ("I6", "wrong", f"UPDATE databuild_instances SET uuid = 'wrong' WHERE {_OF_C}"),
    ("I7", "uuid:c", f"UPDATE databuild_instances SET manifest_state = 'partial' WHERE {_OF_C}"),
    ("I7", "uuid:c", f"UPDATE databuild_instances SET manifest_state = NULL WHERE {_OF_C}"),
    ("rule 7.1", "uuid:d", "DELETE FROM databuild_taint_instances"),
    ("rule 7.1", "uuid:c", f"UPDATE databuild_instances SET n_taints = 1 WHERE {_OF_C}"),
    ("rule 7.1", "uuid:d", f"UPDATE databuild_instances SET n_taints = 0 WHERE {_OF_D}"),
    ("rule 8.3", "b", "UPDATE databuild_refs SET n_joined = 0"),
    ("rule 8.3", "b", "DELETE FROM databuild_delegations WHERE outcome = 'waiting'"),
    ("rule 8.3", "asker", "UPDATE databuild_delegations SET outcome = 'waiting'"),
    ("rule 8.3", "asker", "UPDATE databuild_delegations SET outcome = 'live'"),
    ("rule 3.2", "uuid:c", "DELETE FROM databuild_history WHERE kind = 'instances'"),
    ("rule 3.2", "want:a", "DELETE FROM databuild_history WHERE kind = 'wants'"),
    ("rule 3.2", "run:b", "DELETE FROM databuild_history WHERE kind = 'job_runs'"),
    ("rule 3.2", "want:a", "UPDATE databuild_history SET from_state = 'Failed' WHERE kind = 'wants'"),
    ("rule 3.2", "run:b", "UPDATE databuild_history SET from_state = 'Running' WHERE to_state = 'Queued'"),
    ("rule 3.2", "asker", "UPDATE databuild_delegations SET outcome = 'refused' WHERE kind = 'joined'"),
    ("rule 3.2", "asker", "UPDATE databuild_delegations SET ended_at = NULL WHERE kind = 'reused'"),
    ("rule 3.2", "uuid:a", "UPDATE databuild_history SET from_state = NULL WHERE to_state = 'UpstreamBuilding'"),
]


def entity(world, label):
    """`uuid:c` is the canonical instance of c, `want:c` its first want, `run:c` its job run, anything else itself."""
    kind, _, ref = label.rpartition(":")
    match kind:
        case "uuid":
            return world.uuid(ref)
        case "want":
            return world.queries.wants.of_ref(ref)[0].id
        case "run":
            return world.canonical(ref).job_run
    return label


def test_planted_damage_is_found_and_named(world):
    """Rules 12: each damage alone, in a transaction that is undone."""
    passed_over = []
    for invariant, label, damage in PLANTED:
        expected = (invariant, entity(world, label))

        found = found_after(world, damage)

        assert all(violation.detail for violation in found)
        if expected not in [(violation.invariant, violation.entity) for violation in found]:
            passed_over.append((expected, damage, found))

    assert passed_over == []
    assert world.broken() == []


class Undone(Exception):
    """Ends a transaction without its changes."""


def found_after(world, damage):
    """What the invariants find after a statement of which nothing stays."""
    with contextlib.suppress(Undone), world.store.writing() as work:
        assert work.connection.execute(f"{damage} RETURNING 1").fetchall()
        found = list(violations(work.connection))
        raise Undone
    return found


def test_what_an_arrival_moves_is_a_row_of_the_tables():
    """Rules 3.2, 4.2: data from outside has a job run that is born Succeeded, and an instance that is born Live."""
    world = World([dataset("src", kind=DatasetKind.SOURCE), dataset("a", "src")])

    world.arrive("src", "file:/x")

    with world.store.reading() as connection:
        moves = connection.execute(
            "SELECT kind, from_state, to_state FROM databuild_history WHERE seq = (SELECT max(seq) FROM databuild_events)"
        ).fetchall()
    assert [tuple(move) for move in moves] == [("job_runs", None, "Succeeded"), ("instances", None, "Live")]
    assert all((before, after) in MACHINES[kind].steps for kind, before, after in moves)
    assert world.check() == []


def test_a_delegation_that_ends_twice_in_the_log_is_a_violation(world):
    """Rules 3.2, 3.5, decision 0013: the fold looks each end of a delegation up, from the state that it has."""
    ended = e.DelegationGivenUp(requester="asker", refs=("c",), reason="its time is up")
    with world.store.writing() as work:
        log.append(work.connection, e.Event(world.seq + 1, world.clock.now, ended, "a command", "tester"))

    found = check(world.store)

    (stopped,) = [violation for violation in found if violation.invariant == "I5"]
    assert stopped.entity == f"seq {world.seq}"
    assert "delegation of asker to c in state live cannot take given up: the table has no such move" in stopped.detail


def test_an_instance_that_was_launched_while_paused_breaks_an_invariant():
    """I12, rule 6.13"""
    world = World([dataset("a")], url="sqlite://")
    world.pause("a", until=world.clock.now + 60.0)
    world.clock.turn(60.0)
    world.start("a")
    assert world.broken() == []

    with world.store.writing() as work:
        work.connection.execute("UPDATE databuild_pauses SET until = until + 60")

    assert [violation.invariant for violation in world.broken()] == ["I12"]
