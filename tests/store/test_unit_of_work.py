"""The view over a database and the view in memory are one: the same commands give the same events and the same rows."""

from __future__ import annotations

from databuild_dagster.model.events import EVENT_TYPES
from tests.support import story
from tests.support.twin_world import TwinWorld


def test_a_database_and_the_model_in_memory_agree_on_every_event_and_row(database):
    """Rules 3.3, 3.4: every type of event, every table; `tests/engine/test_engine_histories.py` compares them on random walks."""
    world = TwinWorld(story.DATASETS)

    story.tell(world)

    answer = set(world.log())
    assert {kind.__name__ for kind in EVENT_TYPES} - answer == set()
    assert world.apart() == []
    assert world.check() == []
    world.close()
