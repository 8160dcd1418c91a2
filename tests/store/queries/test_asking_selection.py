"""A statement's columns and the reading of its rows come from one list, on both databases."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Selection
from tests.support.catalog import dataset
from tests.support.world import World


class Seen(NamedTuple):
    """Some of what the table of refs holds."""

    ref: str
    state: InstanceState | None
    is_wanted: bool


class SeenWithTries(NamedTuple):
    """The same with a column in the middle."""

    ref: str
    attempts: int
    state: InstanceState | None
    is_wanted: bool


@pytest.fixture
def world():
    world = World([dataset(name) for name in "ab"])
    world.live("a")
    yield world
    world.store.close()


def refs(world, selection):
    return world.store.ask(f"SELECT {selection.columns} FROM {PREFIX}refs r ORDER BY r.ref")


def test_a_column_in_the_middle_shifts_no_other(world):
    narrow = Selection(Seen, "r", is_wanted="r.n_open_wants > 0")
    wide = Selection(SeenWithTries, "r", is_wanted="r.n_open_wants > 0")

    (before,) = narrow.rows(refs(world, narrow))
    (after,) = wide.rows(refs(world, wide))

    assert after._asdict() == {**before._asdict(), "attempts": after.attempts}
    assert (before.state, before.is_wanted) == (InstanceState.LIVE, False)


def test_states_and_truth_values_are_read_as_their_annotations_say(world):
    selection = Selection(Seen, "r", state="NULL", is_wanted="1")

    (seen,) = selection.rows(refs(world, selection))

    assert seen.state is None
    assert seen.is_wanted is True


def test_a_key_is_selected_before_the_columns(world):
    selection = Selection(Seen, "r", is_wanted="r.n_open_wants > 0")

    rows = world.store.ask(f"SELECT r.attempts, {selection.columns} FROM {PREFIX}refs r ORDER BY r.ref")

    assert selection.by(rows) == [(0, Seen("a", InstanceState.LIVE, False))]


def test_an_answer_with_another_column_raises(world):
    selection = Selection(Seen, "r", is_wanted="r.n_open_wants > 0")

    rows = world.store.ask(f"SELECT r.attempts, {selection.columns} FROM {PREFIX}refs r")

    with pytest.raises(AssertionError, match="is_wanted"):
        selection.rows(rows)


def test_an_expression_without_a_field_raises():
    with pytest.raises(AssertionError, match="misspelt"):
        Selection(Seen, "r", misspelt="r.ref")
