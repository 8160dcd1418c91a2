"""A store whose bytes are damaged anywhere raises no error but typed ones, which name the damage (rule 3.4).

SQLite itself finds many damaged pages. Text that is not UTF-8, a payload stored as a blob and a damaged schema are ours to
name.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from databuild_dagster.model.errors import DatabuildError, IllegalMove
from databuild_dagster.store.check import check
from databuild_dagster.store.errors import NoDatabase, StoreDamaged
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import Store, open_store
from tests.store.test_check_corruption import EVENTS, damage, path, story_file
from tests.support.catalog import dataset
from tests.support.world import World

__all__ = ["path", "story_file"]

#: A server keeps its files itself.
DATABASES = ("sqlite",)

#: Places of one file that a test damages, each in a copy of its own.
N_PLACES = 24

NOT_UTF8 = f"UPDATE {EVENTS} SET payload = CAST(x'7bff7d' AS TEXT) WHERE seq = 7"
BLOB = f"UPDATE {EVENTS} SET payload = x'7bff7d' WHERE seq = 7"


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.parametrize("statement", [NOT_UTF8, BLOB], ids=["text", "blob"])
def test_an_event_that_is_not_utf8_is_named_by_its_seq(path: Path, statement: str) -> None:
    damage(path, statement)
    store = open_store(url_of(path))

    assert "seq 7" in {violation.entity for violation in check(store, deep=True)}
    with pytest.raises(IllegalMove) as broken:
        rebuild(store)
    assert broken.value.facts["seq"] == 7
    with pytest.raises((StoreDamaged, IllegalMove)):
        Queries(store).events.after(0, 100)
    store.close()


@pytest.mark.parametrize("column", ["type", "actor", "command_id"])
def test_a_word_of_an_event_that_is_not_utf8_is_named_by_its_seq(path: Path, column: str) -> None:
    damage(path, f"UPDATE {EVENTS} SET {column} = CAST(x'ff' AS TEXT) WHERE seq = 7")
    store = open_store(url_of(path))

    assert "seq 7" in {violation.entity for violation in check(store)}
    store.close()


def test_a_damaged_file_is_named_with_the_commands_that_help(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100] + bytes(100) + path.read_bytes()[200:])

    with pytest.raises(StoreDamaged) as refused:
        open_store(url_of(path))

    assert str(path) in refused.value.message
    assert "permissions" not in refused.value.advice
    assert "log rebuild" in refused.value.advice


def test_a_file_without_its_first_bytes_is_named_with_a_command_that_restores(path: Path, tmp_path: Path) -> None:
    """Rule 3.4: no command on the store helps, because none can open it."""
    store = open_store(url_of(path))
    n_events = store.database.backup(str(tmp_path / "backup.db"))
    store.close()
    path.write_bytes(bytes(100) + path.read_bytes()[100:])

    with pytest.raises(NoDatabase, match="is not a database") as refused:
        open_store(url_of(path))
    _, command, _ = refused.value.advice.split("`")
    subprocess.run(["sh", "-c", command.replace("BACKUP", str(tmp_path / "backup.db"))], check=True)

    assert "DATABUILD_DB_URL" in refused.value.advice
    restored = open_store(url_of(path))
    assert Queries(restored).events.head().seq == n_events
    restored.close()


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_the_log_ends_before_a_damaged_byte_of_the_write_ahead_log(tmp_path: Path, part: float) -> None:
    """SQLite takes the byte for the end of an unfinished write, so no command can name the loss (docs/reliability.md)."""
    path = tmp_path / "build.db"
    datasets = [dataset(name) for name in "abcde"]
    World(datasets, url=url_of(path)).close()
    world = World(datasets, url=url_of(path))
    before = world.seq
    world.live(*"abcde")
    events = world.queries.events.after(0, 10_000)
    # The files of a process that was killed now.
    killed, wal = tmp_path / "killed.db", bytearray(Path(f"{path}-wal").read_bytes())
    shutil.copy(path, killed)
    world.close()
    wal[int(part * len(wal))] ^= 1
    Path(f"{killed}-wal").write_bytes(wal)

    store = open_store(url_of(killed))

    left = Queries(store).events.after(0, 10_000)
    assert before <= len(left) < len(events)
    assert left == events[: len(left)]
    assert check(store, deep=True) == []
    store.close()


def test_bytes_damaged_anywhere_lead_to_typed_errors_alone(story_file: Path, tmp_path: Path) -> None:
    chance = random.Random(16)
    whole = story_file.read_bytes()
    for number in range(N_PLACES):
        damaged = bytearray(whole)
        # The schema is in the first pages: a quarter of the damage is there.
        place = chance.randrange(4096 * 8 if number % 4 == 0 else len(whole))
        damaged[place : place + 64] = chance.randbytes(64)
        if number % 6 == 5:
            damaged = damaged[: chance.randrange(len(damaged))]
        file = tmp_path / f"{number}.db"
        file.write_bytes(damaged)

        try_everything(file)


def try_everything(file: Path) -> None:
    """Open, check, list and rebuild; each may raise a typed error, and nothing else."""
    stores: list[Store] = []
    try:
        stores.append(open_store(url_of(file)))
    except DatabuildError:
        return
    (store,) = stores
    queries = Queries(store)
    for step in (
        lambda: check(store, deep=True),
        lambda: queries.events.after(0, 10_000),
        queries.events.head,
        queries.datasets.all,
        lambda: queries.canonical.of_dataset("months/total"),
        lambda: rebuild(store),
        lambda: check(store),
    ):
        try:
            step()
        except DatabuildError:
            continue
    store.close()
