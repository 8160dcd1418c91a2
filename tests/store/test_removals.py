"""Which data may be taken away, decided in the transaction that records it (rule 10.8)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model import meta_storage as m
from databuild_dagster.model.errors import CannotRevert, DuplicateRef, NotFound, NothingToUntaint
from databuild_dagster.model.operations import invokes, keys, records
from databuild_dagster.model.removals import left_by, why_kept
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.removals import Removals
from tests.support.catalog import dataset
from tests.support.world import World

LIVE, TAINTED, FAILED = InstanceState.LIVE, InstanceState.TAINTED, InstanceState.FAILED


@pytest.fixture
def world():
    return World([dataset(name) for name in "abc"])


def remove(world: World, *uuids: str, tainted: bool = False) -> list[str]:
    """Those that were taken away; what the store says of them beforehand is what is decided."""
    found = Removals(world.store).of_uuids(uuids)
    allowed = [uuid for uuid in uuids if why_kept(found[uuid].held, tainted=tainted) is None]
    outcome = world.handle(c.RemoveManifests(uuids=uuids, reason="enough of it", tainted=tainted))
    gone = [uuid for event in outcome.events for uuid in event.fact.uuids]
    assert gone == allowed
    assert world.check() == []
    return gone


def built_twice(world: World, ref: str) -> tuple[str, str]:
    first = world.succeed(ref)
    world.taint(ref)
    return first, world.succeed(ref)


def test_what_is_superseded_goes_and_what_readers_see_stays(world):
    first, second = built_twice(world, "a")

    assert remove(world, first, second) == [first]

    assert world.state("a") is LIVE
    assert [instance.manifest_state for instance in world.queries.instances.history("a")] == ["removed", "complete"]
    assert remove(world, first) == [], "once"


def test_what_is_tainted_goes_only_when_it_is_said(world):
    """Removing live data needs a taint first, and then a word."""
    uuid = world.succeed("a")
    assert remove(world, uuid, tainted=True) == []
    taint_id = world.taint("a")
    assert remove(world, uuid) == []

    assert remove(world, uuid, tainted=True) == [uuid]

    with pytest.raises(NothingToUntaint, match="the data of a was removed"):
        world.untaint(taint_id)
    assert world.state("a") is TAINTED
    world.live("a")
    assert world.check() == []


def test_what_a_taint_of_others_covers_stays_tainted_when_that_is_taken_back(world):
    """Rule 7.3: the taint goes, the data does not come back."""
    world.live("a")
    world.succeed("b", inputs=["a"])
    taint_id = world.handle(c.TaintPartitions(refs=("a",), reason="wrong", downstream=True)).taint_id
    assert remove(world, world.uuid("b"), tainted=True)

    world.untaint(taint_id)

    assert world.states("a", "b") == [LIVE, TAINTED]
    assert world.check() == []


def test_no_revert_goes_back_to_removed_data(world):
    """Rule 7.4"""
    first, _ = built_twice(world, "a")
    remove(world, first)
    before = world.seq

    with pytest.raises(CannotRevert, match="its data was removed"):
        world.handle(c.RevertCanonical(ref="a", uuid=first, force=True))

    assert world.seq == before


def test_data_that_was_reverted_to_meanwhile_stays(world):
    """Decided in the transaction, and not by the plan."""
    first, second = built_twice(world, "a")
    world.handle(c.RevertCanonical(ref="a", uuid=first))

    assert remove(world, first) == []

    assert remove(world, second) == [second], "now it is the other one that is superseded"


def test_before_anything_live_has_taken_its_place_it_stays(world):
    """It may be wanted back."""
    first, _ = built_twice(world, "a")
    world.taint("a")
    assert remove(world, first) == []
    world.start("a")
    assert remove(world, first) == []
    world.fail("a")
    assert remove(world, first) == []


def test_what_a_job_run_may_be_reading_stays_until_that_has_ended(world):
    """A job run reads what was live when it began; which that was is recorded when it succeeds."""
    first = world.succeed("a")
    world.start("b")
    world.taint("a")
    world.live("a")

    assert remove(world, first) == []

    world.succeed("b", inputs=["a"])
    world.start("c")
    assert remove(world, first) == [first], "who began later has never seen it"


def test_what_a_running_operation_is_about_stays_until_that_has_ended(world):
    """Rule 9.2: its partitions, with their instances, are fixed as it starts."""
    first = world.succeed("a")
    id = keys.OperationId("a", "validate", None, 1)
    run_ops, next_id = (
        m.Entry(key, None, 0) for key in (keys.DatasetKeys.of("a").run_ops, keys.next_instance_id("a", "validate"))
    )
    world.invoke(
        invokes.start(
            invokes.Start(id, records.ArgRecord(records.FORMAT, 1, {}, 0.0, "me"), {"": first}, next_id), run_ops
        )
    )
    world.taint("a")
    world.live("a")

    assert remove(world, first) == []

    world.invoke(m.do(m.Put(run_ops.key, records.run_ops_value([])), m.RemovePrefix(id.under)))
    assert remove(world, first) == [first]


def test_what_attempts_left_goes_but_for_what_the_next_one_may_go_on_from(world):
    """Rule 10.4"""
    world.want("a")
    world.fail("a", kind="transient")
    first = world.uuid("a")
    assert remove(world, first) == [], "its retry is to come"
    world.clock.turn(3600)
    world.start("a")
    assert remove(world, first, world.uuid("a")) == [], "it is going on"

    world.fail("a")

    both = [instance.uuid for instance in world.queries.instances.history("a")]
    assert remove(world, *both) == both
    assert world.state("a") is FAILED


def test_data_from_outside_belongs_to_another_program(world):
    """Rule 10.6: its files are listed where they lie."""
    world.arrive("a", "file:///1")
    first = world.uuid("a")
    world.arrive("a", "file:///2")

    assert remove(world, first) == []
    assert Removals(world.store).outside() == [], "there is no manifest that lists them"
    assert Removals(world.store).assets() == ["a", "b", "c"]


def test_a_dataset_lists_its_refs_with_several_instances_or_a_tainted_one(world):
    first, second = built_twice(world, "a")
    world.live("b", "c")
    world.taint("b")

    found = {asset: [instance.uuid for instance in Removals(world.store).of_dataset(asset)] for asset in "abc"}

    assert found == {"a": [second, first], "b": [world.uuid("b")], "c": []}


def test_that_its_files_are_gone_is_said_once(world):
    first, _ = built_twice(world, "a")
    remove(world, first)
    assert [instance.uuid for instance in Removals(world.store).unfinished()] == [first]

    world.handle(c.FinishRemovals(uuids=(first,)))

    assert Removals(world.store).unfinished() == []
    assert world.handle(c.FinishRemovals(uuids=(first, world.uuid("a")))).events == ()
    assert world.check() == []


@pytest.mark.parametrize("command", [c.RemoveManifests, c.FinishRemovals])
def test_what_is_unknown_or_named_twice_is_refused(world, command):
    uuid = world.succeed("a")
    reason = {"reason": "enough"} if command is c.RemoveManifests else {}

    with pytest.raises(NotFound):
        world.handle(command(uuids=("unknown",), **reason))
    with pytest.raises(DuplicateRef):
        world.handle(command(uuids=(uuid, uuid), **reason))


@pytest.mark.parametrize(
    ("pointings", "expected"),
    [
        ([(1, 7)], 5),
        ([(1, 7), (9, 8)], 9),
        ([(1, 7), (9, 8), (11, 9)], 9),
        ([(1, 7), (9, 8), (11, 7), (12, 8), (14, 9)], 12),
        ([(1, 7), (9, 8), (11, 7)], 5),
        ([(1, 6), (2, 7), (9, 8), (11, 6)], 9),
    ],
)
def test_the_event_by_which_readers_lost_sight_of_it(pointings, expected):
    """The pointer may have come back, and left again."""
    assert left_by(7, pointings, moved_by=5) == expected
