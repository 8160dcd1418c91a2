"""A store whose bytes are damaged anywhere raises no error but typed ones, which name the damage (rule 3.4).

SQLite itself finds many damaged pages. Text that is not UTF-8, a payload stored as a blob and a damaged schema are ours to
name.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from databuild_dagster.model.errors import DatabuildError, IllegalMove
from databuild_dagster.store.check import check
from databuild_dagster.store.errors import StoreDamaged
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import Store, open_store
from tests.store.test_check_corruption import EVENTS, damage, path, story_file

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
        Queries(store).events(0, 100)
    store.close()


@pytest.mark.parametrize("column", ["type", "actor", "command_id"])
def test_a_word_of_an_event_that_is_not_utf8_is_named_by_its_seq(path: Path, column: str) -> None:
    damage(path, f"UPDATE {EVENTS} SET {column} = CAST(x'ff' AS TEXT) WHERE seq = 7")
    store = open_store(url_of(path))

    assert "seq 7" in {violation.entity for violation in check(store)}
    store.close()


def test_a_damaged_file_is_named_with_the_commands_that_help(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + bytes(100) + path.read_bytes()[116:])

    with pytest.raises(StoreDamaged) as refused:
        open_store(url_of(path))

    assert str(path) in refused.value.message
    assert "permissions" not in refused.value.advice
    assert "log rebuild" in refused.value.advice


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
        lambda: queries.events(0, 10_000),
        queries.head,
        queries.datasets,
        lambda: queries.canonical_of_dataset("months/total"),
        lambda: rebuild(store),
        lambda: check(store),
    ):
        try:
            step()
        except DatabuildError:
            continue
    store.close()
