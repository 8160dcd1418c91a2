"""Where the pages are, by the note that their web server leaves (decision 0051)."""

from databuild_dagster.engine.orchestrator_notes import KEEP_SECONDS, LOOK_EVERY_SECONDS, note_pages, pages_root


def test_the_pages_are_nowhere_until_a_web_server_announces_them(world):
    assert pages_root(world.engine) is None

    note_pages(world.engine, "/databuild")

    assert pages_root(world.engine) is None, "a process looks once a minute"
    world.clock.turn(LOOK_EVERY_SECONDS)
    assert pages_root(world.engine) == "/databuild"


def test_the_last_announcement_counts(world):
    note_pages(world.engine, "/databuild")
    world.clock.turn(1)

    note_pages(world.engine, "/team/databuild")

    assert pages_root(world.engine) == "/team/databuild"


def test_an_announcement_is_valid_for_a_week(world):
    note_pages(world.engine, "/databuild")

    world.clock.turn(KEEP_SECONDS + 1)

    assert pages_root(world.engine) is None
