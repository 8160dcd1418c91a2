"""Operations that completion code asks for start once each, or are refused with a reason (rule 9.6)."""

from __future__ import annotations

import pytest

from databuild_dagster.features.operations.follow_ups import start_intended
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.operations import keys
from databuild_dagster.model.operations.states import OperationState
from tests.support.catalog import dataset
from tests.support.operations import Operations, Write

DAYS = ("1", "2")


@pytest.fixture
def world(make_world):
    world = make_world(dataset("days", keys=DAYS), dataset("weeks"), dataset("empty"))
    world.live(*(f"days@{day}" for day in DAYS), "weeks")
    return world


@pytest.fixture
def operations(world):
    operations = Operations(world)
    yield operations
    for id in operations.manager.running():
        operations.manager.cancel(id)
    assert operations.keys() == [], "no intent is left"


def ended(operations, *then, type_id="write", coordinator=None):
    """An operation that has ended and asked for these follow-ups."""
    id = operations.manager.start(type_id, "days", {"then": then})
    while operations.executor().step(id, 10):
        pass
    (coordinator or operations.coordinator()).coordinate()
    assert operations.manager.operation(id).state is OperationState.SUCCESS
    return id


def names(operations):
    return sorted(map(str, operations.manager.running()))


def test_a_validation_starts_an_index_when_it_is_done(operations):
    """The example of the design: the completion ran again and again, and started another index each time."""
    id = ended(operations, ("many", "days", {"about": "an index"}))

    for _ in range(3):
        operations.coordinator().coordinate()

    assert names(operations) == ["days.many.an index.1"]
    assert len(operations.lake.completions) == 1
    (follow_up,) = operations.manager.operation(id).follow_ups
    assert (follow_up.operation, follow_up.refused) == ("days.many.an index.1", "")


def test_one_revision_ends_the_first_and_starts_the_others_on_its_dataset(operations):
    id = ended(operations, ("many", "days", {"about": "a"}), ("many", "days", {"about": "b"}))

    assert names(operations) == ["days.many.a.1", "days.many.b.2"]
    revisions = {operations.meta.get(next_id.state).revision for next_id in operations.manager.running()}
    assert revisions == {operations.meta.get(id.history).revision}


def test_an_operation_may_be_followed_by_one_of_its_own_type(operations):
    """Only one of the type runs at a time, and the first has ended in the same invoke."""
    ended(operations, ("write", "days"))

    assert names(operations) == ["days.write.2"]


def test_a_follow_up_that_cannot_start_is_refused_in_the_outcome(operations):
    """Rule 9.6: the first completes all the same."""
    id = ended(
        operations,
        ("many", "days", {"about": "a"}),
        ("many", "days", {"about": "a"}),
        ("unheard of", "days"),
        ("many", "days", {"about": "a\nb"}),
        ("write", "empty"),
        ("write", "nowhere"),
    )

    found = operations.manager.operation(id).follow_ups
    assert found[0].operation == "days.many.a.1"
    assert [follow_up.operation for follow_up in found[1:]] == [None] * 5
    reasons = ("the same object", "No operation of type", "printable text", "no live partition", "'nowhere'")
    assert [reason in follow_up.refused for reason, follow_up in zip(reasons, found[1:], strict=True)] == [True] * 5
    assert names(operations) == ["days.many.a.1"]


def test_a_follow_up_on_another_dataset_starts_from_an_intent(operations):
    id = ended(operations, ("write", "weeks", {"x": 1}))

    assert names(operations) == ["weeks.write.1"]
    assert operations.manager.operation(id).follow_ups[0].operation == "weeks.write.1"
    record = operations.manager.read(operations.manager.running()[0]).arg
    assert (record.arg, record.started_by) == ({"x": 1}, str(id))


def test_an_intent_waits_for_a_process_that_has_the_type(operations, world):
    """Another code location may have it."""
    poor = Operations(world, Write, lake=operations.lake)
    id = ended(poor, ("alone", "weeks"))
    assert poor.coordinator().coordinate().unstarted == 1
    assert names(poor) == []

    assert operations.coordinator().coordinate().unstarted == 0

    assert names(operations) == ["weeks.alone.1"]
    assert operations.manager.operation(id).follow_ups[0].operation == "weeks.alone.1"


def test_an_intent_whose_type_no_process_has_is_refused_after_seven_days(world, operations):
    poor = Operations(world, Write, lake=operations.lake)
    id = ended(poor, ("alone", "weeks"))
    world.clock.turn(7 * 24 * 3600.0 - 1)
    assert poor.coordinator().coordinate().unstarted == 1
    world.clock.turn(1)

    assert poor.coordinator().coordinate().unstarted == 0

    (follow_up,) = operations.manager.operation(id).follow_ups
    assert follow_up.refused == "No orchestrator with operation type 'alone' ticked within 7 days."
    assert operations.coordinator().coordinate().unstarted == 0
    assert names(operations) == []


@pytest.mark.parametrize("n_races", [1, 3])
def test_an_intent_that_lost_a_race_starts_all_the_same(operations, world, monkeypatch, n_races):
    """A lost race uses up its command id; with one race for each pass, the third pass starts it."""
    monkeypatch.setattr("databuild_dagster.features.operations.follow_ups.MAX_RACES", n_races)
    poor = Operations(world, Write, lake=operations.lake)
    ended(poor, ("many", "weeks", {"about": "a"}))
    invoke, others = operations.meta.invoke_all, iter("bc")

    def after_another_start(statements, *, command_id=None):
        if command_id is not None and (about := next(others, None)):
            operations.manager.start("many", "weeks", {"about": about})
        return invoke(statements, command_id=command_id)

    monkeypatch.setattr(operations.meta, "invoke_all", after_another_start)
    for _ in range(4 - n_races):
        operations.coordinator().coordinate()

    assert names(operations) == ["weeks.many.a.3", "weeks.many.b.1", "weeks.many.c.2"]


def test_two_coordinators_start_an_intent_once(operations, world):
    poor = Operations(world, Write, lake=operations.lake)
    ended(poor, ("many", "weeks", {"about": "a"}))
    (intent,) = operations.meta.prefix(keys.FOLLOW_UP).entries

    assert [start_intended(operations.manager, intent) for _ in range(2)] == [True, True]

    assert names(operations) == ["weeks.many.a.1"]


def test_too_many_follow_ups_are_an_error_of_the_completion(operations, monkeypatch):
    monkeypatch.setattr("databuild_dagster.features.operations.seen.MAX_FOLLOW_UPS", 1)
    id = operations.manager.start("write", "days", {"then": [("write", "weeks"), ("write", "weeks")]})
    while operations.executor().step(id, 10):
        pass

    assert InvalidRequest.__name__ in operations.coordinator().coordinate().problems[id]
    assert names(operations) == ["days.write.1"]
