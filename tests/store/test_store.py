"""An open store refuses to write once another version has changed it (rule 3.4)."""

from __future__ import annotations

import re

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


def test_a_store_has_an_id_and_the_place_where_it_was_made(make_world, shared_url):
    """Rule 3.11"""
    world = make_world(url=shared_url)

    identity = world.store.identity()

    assert len(str(identity.id)) == 32
    assert identity.is_in_place
    assert ("inode" in identity.here) is (world.store.path is not None)


@pytest.mark.databases("postgres")
def test_the_place_of_a_database_on_a_server_names_server_database_and_schema(make_world, shared_url):
    """Rule 3.11: a restored snapshot keeps the identifier of its system."""
    here = make_world(url=shared_url).store.identity().here

    assert re.fullmatch(r"database \S+, schema \S+ of \S+:\d+, system \d+", here)


@pytest.mark.databases("sqlite")
def test_a_backup_is_not_in_the_place_of_its_original(make_world, tmp_path):
    """Rule 3.11"""
    world = make_world(url=f"sqlite:///{tmp_path}/databuild.db")
    world.store.database.backup(f"{tmp_path}/copy.db")

    copy = make_world(url=f"sqlite:///{tmp_path}/copy.db").store.identity()

    assert copy.id == world.store.identity().id
    assert not copy.is_in_place
