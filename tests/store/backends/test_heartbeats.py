"""Heartbeats beside the log survive a damaged file (rule 6.9)."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from databuild_dagster.store.backends.heartbeats import FileAside, Heartbeats
from databuild_dagster.store.errors import HeartbeatsUnusable
from databuild_dagster.store.format import HEARTBEAT_COLUMNS, HEARTBEATS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "databuild.db.heartbeats"


def heartbeats(path: Path) -> Heartbeats:
    return Heartbeats(FileAside(str(path)))


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(5_000))


def torn(path: Path) -> None:
    """The header is as it was; the pages of the table are not."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {HEARTBEATS} {HEARTBEAT_COLUMNS} WITHOUT ROWID")
        beats = [(f"launch-{n}", 1.0) for n in range(2_000)]
        connection.executemany(f"INSERT INTO {HEARTBEATS} (launch_id, at) VALUES (?, ?)", beats)
    contents = path.read_bytes()
    path.write_bytes(contents[:4_096] + os.urandom(len(contents) - 4_096))


@pytest.mark.parametrize("damage", [noise, torn])
def test_a_damaged_file_is_kept_aside_and_an_empty_one_takes_its_place(path, damage):
    damage(path)

    found = heartbeats(path)
    found.beat(["launch"], 2.0)

    assert found.last(["launch", "launch-1"]) == {"launch": 2.0}
    assert path.with_name(f"{path.name}.damaged").exists()


def test_a_process_that_has_the_damaged_file_open_uses_the_new_one(path):
    """Else its beats would be unseen, and its launches lost."""
    running = heartbeats(path)
    running.beat(["running"], 1.0)
    noise(path)
    heartbeats(path).last([])

    running.beat(["running"], 2.0)

    assert heartbeats(path).last(["running"]) == {"running": 2.0}


def test_a_file_of_heartbeats_that_cannot_be_opened_is_named_for_what_it_is(path: Path):
    path.mkdir()

    with pytest.raises(
        HeartbeatsUnusable, match="^The heartbeats of running jobs, in .*heartbeats beside the build state"
    ):
        heartbeats(path).beat(["running"], 1.0)
