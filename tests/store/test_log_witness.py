"""A log that went back is noticed by processes that saw more of it, and by later ones of their home (rule 3.13)."""

from __future__ import annotations

import os
import shutil
from contextlib import closing

import pytest

from databuild_dagster.data.ownership import take_over
from databuild_dagster.store.errors import LogWentBack, StoreReplaced
from databuild_dagster.store.format import EVENTS, PLACE
from databuild_dagster.store.log import NOTHING_SEEN, WITNESS_NAME, Mark, Witness
from databuild_dagster.store.store import open_store
from tests.support.catalog import dataset
from tests.support.lost_events import change_log, lose_last_event
from tests.support.world import World

DATABASES = ("sqlite", "postgres")


@pytest.fixture
def world(shared_url):
    with closing(World([dataset("a"), dataset("b"), dataset("c")], url=shared_url)) as found:
        yield found


def test_a_command_is_refused_on_a_log_that_lacks_an_event_that_its_process_saw(world):
    world.want("a")
    seen = world.seq
    lose_last_event(world)

    with pytest.raises(
        LogWentBack, match=f"has {seen - 1} events, and this process .* has seen {seen}.*take-over --yes"
    ):
        world.want("b")
    with pytest.raises(LogWentBack):
        world.queries.events.check_head(world.queries.events.head())

    assert world.seq == seen - 1


def test_a_command_is_refused_on_a_log_with_another_event_in_the_place_of_one_seen(world):
    """A replica that lagged has recorded others since, and as many."""
    world.want("a")
    change_log(world.store, f"UPDATE {EVENTS} SET command_id = 'another' WHERE seq = {world.seq}")

    with pytest.raises(LogWentBack, match=f"its event {world.seq} is another one"):
        world.want("b")


def test_a_process_that_only_looks_has_seen_what_it_looked_at(world, shared_url):
    with closing(open_store(shared_url)) as looking:
        world.want("a")
        assert looking.look().seq == world.seq
        lose_last_event(world)

        with pytest.raises(LogWentBack):
            looking.look()


def test_events_of_others_are_no_reason_to_refuse(world, shared_url):
    world.want("a")
    with closing(World(url=shared_url, first_id=1000)) as other:
        other.want("b")
        world.want("c")
        other.want("a")

    assert [len(world.open_wants(ref)) for ref in "abc"] == [2, 1, 1]


def test_a_process_that_begins_later_knows_what_one_of_its_home_saw(world, shared_url, tmp_path):
    world.set_meta(PLACE, "elsewhere")
    world.store.watch(str(tmp_path))
    world.want("a")
    world.store.note_seen()
    lose_last_event(world)

    with (
        closing(open_store(shared_url, str(tmp_path))) as later,
        pytest.raises(LogWentBack),
        later.writing(),
    ):
        pass
    with closing(open_store(shared_url)) as of_another_home, of_another_home.writing() as work:
        assert work.refs(["none"]) == {}


def test_a_take_over_accepts_a_log_that_went_back(world, shared_url, tmp_path):
    """Processes that had seen more stop for good."""
    world.store.watch(str(tmp_path))
    world.want("a")
    world.store.note_seen()
    lose_last_event(world)

    with closing(open_store(shared_url, str(tmp_path))) as later:
        take_over(later, [])
        with later.writing() as work:
            assert work.refs(["none"]) == {}
    with pytest.raises(StoreReplaced) as replaced:
        world.want("b")

    assert not isinstance(replaced.value, LogWentBack)


def test_a_note_never_goes_back_and_is_of_one_log(tmp_path):
    Witness(str(tmp_path), "a log").note(Mark(7, "seven"))
    Witness(str(tmp_path), "a log").note(Mark(5, "five"))

    assert Witness(str(tmp_path), "a log").last_seen() == Mark(7, "seven")
    assert Witness(str(tmp_path), "another").last_seen() == NOTHING_SEEN


def test_a_copied_home_and_a_damaged_file_have_seen_nothing(tmp_path):
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    Witness(str(home), "a log").note(Mark(7, "seven"))
    shutil.copytree(home, copy)
    (tmp_path / WITNESS_NAME).write_bytes(b"\xff{")

    assert Witness(str(copy), "a log").last_seen() == NOTHING_SEEN
    assert Witness(str(tmp_path), "a log").last_seen() == NOTHING_SEEN
    assert os.listdir(home) == [WITNESS_NAME]
