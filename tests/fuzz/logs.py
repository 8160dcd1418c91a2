"""Golden logs with one damaged event. Opening, checking, rebuilding and listing end, or raise typed errors (rules 3)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import migrate, rebuild
from databuild_dagster.store.store import Store, open_store
from tests.support import golden
from tests.support.checking import check

from .values import any_text, mutated, mutated_bytes

NAME = "logs"
N_IN_CI = 12

COLUMNS = ("at", "type", "version", "command_id", "actor")


class Logs:
    """The database of each recording, brought to this version."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "damaged.db"
        self.databases: dict[str, Path] = {}
        self.logs: dict[str, list[dict[str, Any]]] = {}
        for version in golden.versions():
            recorded = golden.read(version)
            self.databases[version] = folder / f"{version}.db"
            golden.restore(recorded, self.databases[version])
            store = Store(f"sqlite:///{self.databases[version]}", check_projections=False)
            migrate(store)
            store.close()
            self.logs[version] = recorded.log

    def make(self, random: Random) -> dict[str, Any]:
        version = random.choice(list(self.logs))
        event = random.choice(self.logs[version])
        given: dict[str, Any] = {"log": version, "seq": event["seq"]}
        match random.randrange(10):
            case 0:
                column = random.choice(COLUMNS)
                value = random.choice((None, -1, 0, 2**62, 1e308, "", "x", any_text(random), event[column]))
                return given | {"column": column, "value": value}
            case 1:
                return given | {"column": "seq", "value": random.choice((0, -1, 10**9, 2**63 - 1))}
            case 2:
                return given | {"column": "type", "value": random.choice(self.logs[version])["type"]}
            case 3 | 4:
                payload = mutated_bytes(random, event["payload"].encode())
                return given | {"bytes": payload.decode("latin-1"), "blob": random.random() < 0.3}
            case _:
                return given | {"column": "payload", "value": json.dumps(mutated(random, json.loads(event["payload"])))}

    def feed(self, given: dict[str, Any]) -> None:
        for path in self.path.parent.glob("damaged.db*"):
            path.unlink()
        shutil.copy(self.databases[given["log"]], self.path)
        _damage(self.path, given)
        _each(f"sqlite:///{self.path}")


def _damage(path: Path, given: dict[str, Any]) -> None:
    column, value = given.get("column", "payload"), given.get("value")
    mark = "?"
    if "bytes" in given:
        value = given["bytes"].encode("latin-1")
        mark = "?" if given["blob"] else "CAST(? AS TEXT)"
    elif isinstance(value, str):
        value = value.encode(errors="surrogatepass")
        mark = "CAST(? AS TEXT)"
    with closing(sqlite3.connect(path)) as connection, connection:
        # A disk asks neither triggers nor constraints.
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(
            f"UPDATE OR IGNORE databuild_events SET {column} = {mark} WHERE seq = ?", (value, given["seq"])
        )
        for _, sql in triggers:
            connection.execute(sql)


def _each(url: str) -> None:
    """Every step, each whether the one before it was refused or not."""
    try:
        store = open_store(url)
    except DatabuildError as refused:
        assert str(refused)
        return
    queries = Queries(store)
    steps: tuple[Callable[[], object], ...] = (
        lambda: check(store, deep=True),
        lambda: queries.events.raw(0, 10_000),
        lambda: queries.events.after(0, 10_000),
        lambda: rebuild(store),
        lambda: queries.canonical.of(list(queries.canonical.states([]))),
        lambda: queries.job_runs.newest(),
        lambda: queries.datasets.all(),
        lambda: queries.launches.open(),
        lambda: queries.datasets.ref_counts(),
    )
    try:
        for step in steps:
            try:
                step()
            except DatabuildError as refused:
                assert str(refused)
    finally:
        store.close()


@contextmanager
def ready(folder: Path) -> Iterator[Logs]:
    yield Logs(folder)
