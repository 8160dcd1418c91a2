"""A server cuts the connection of a command at its commit, so that the answer is lost (rule 3.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.store.errors import StoreCut


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("command_id", [None, "monday"])
def test_a_command_whose_commit_lost_its_answer_is_recorded_once(world, monkeypatch, is_recorded, command_id):
    commit, cut = world.store.database.commit, []

    def cut_once(connection):
        if is_recorded or cut:
            commit(connection)
        if not cut:
            cut.append(connection)
            raise StoreCut(url=world.store.url, why="terminating connection due to administrator command")

    before = world.seq
    monkeypatch.setattr(world.store.database, "commit", cut_once)
    wanted = world.handle(c.CreateWants(wants=(("a",),)), command_id=command_id)

    assert not wanted.repeated
    assert world.seq == before + 1
    assert [want.id for want in world.open_wants("a")] == list(wanted.want_ids)
