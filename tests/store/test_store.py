"""An open store refuses to write once another version has changed it (rule 3.4)."""

from __future__ import annotations

import pytest

from databuild_dagster.store.errors import NewerStore, OlderProjection
from databuild_dagster.store.format import LOG_VERSION, PROJECTION_VERSION
from databuild_dagster.store.rebuild import rebuild


@pytest.mark.parametrize(("key", "known"), [("log_version", LOG_VERSION), ("projection_version", PROJECTION_VERSION)])
def test_an_open_store_refuses_to_write_after_a_newer_version_has_migrated_it(world, key, known):
    """Rule 3.4: reliability R1, borders 15."""
    world.want("a")
    before = world.log()
    world.set_meta(key, known + 1)

    with pytest.raises(NewerStore, match="pip install --upgrade"):
        world.want("b")
    with pytest.raises(NewerStore):
        rebuild(world.store)

    world.set_meta(key, known)
    assert world.log() == before


def test_an_open_store_refuses_to_write_into_the_tables_of_an_older_version(world):
    """Rule 3.4: a restored copy."""
    world.set_meta("projection_version", PROJECTION_VERSION - 1)

    with pytest.raises(OlderProjection, match="databuild log migrate"):
        world.want("a")

    world.set_meta("projection_version", PROJECTION_VERSION)
    world.want("a")
