"""The real store and engine, stopping at every use of the store so that the scheduler may do its worst.

A transaction stops four times: before it asks for the write lock, as it begins, before its commit, and after it,
before its caller hears of it. The file is one for many seeds and is emptied between them: what a connection has
compiled is kept, and a seed costs milliseconds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from databuild_dagster.engine.engine import Engine, Outcome
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import Catalog
from databuild_dagster.model.errors import NotFound, Refused
from databuild_dagster.model.fold.evolve import fold
from databuild_dagster.store import log, schema
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.store import Store
from databuild_dagster.store.unit_of_work import UnitOfWork

from .processes import Process, Scheduler

#: Every table but the one that says which version this is.
TABLES = [table.name for table in schema.metadata.sorted_tables if table is not schema.meta]


class SteppedStore(Store):
    """One process's connection to the file."""

    #: The simulation that goes on, None between two.
    scheduler: Scheduler | None = None
    #: Its connection, once it does not wait for the disk.
    _hastened: Connection | None = None
    #: Called after every commit, before anybody else's turn.
    committed: Callable[[], None] = staticmethod(lambda: None)

    def _connection(self) -> Connection:
        connection = super()._connection()
        if connection is not self._hastened:
            self._hastened = connection
            connection.execute("PRAGMA synchronous = OFF")
        return connection

    def step(self, doing: str) -> None:
        if self.scheduler is not None:
            self.scheduler.step(doing)

    @contextmanager
    def writing(self) -> Iterator[UnitOfWork]:
        self.step("before a transaction")
        with super().writing() as work:
            self.step("as a transaction begins")
            yield work
            self.step("before its commit")
        self.committed()
        self.step("after its commit")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        if not self._connection().in_transaction:
            self.step("before it reads")
        with super().reading() as connection:
            yield connection

    def ask(self, sql: str, parameters: Any = ()) -> list[Any]:
        if not self._connection().in_transaction:
            self.step("before it asks")
        return super().ask(sql, parameters)


class UnlockedStore(SteppedStore):
    """A mutation: no lock, and every statement a transaction of its own, so that two may decide on what one changes."""

    @contextmanager
    def writing(self) -> Iterator[UnitOfWork]:
        self.step("before a transaction")
        work = UnitOfWork(self._connection(), log.head(self._connection()))
        yield work
        work.flush()
        self.committed()
        self.step("after its commit")


class Deck:
    """A file, and connections to it that are used again."""

    def __init__(self, store_class: type[SteppedStore] = SteppedStore) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="databuild-simulation-")
        self._url = f"sqlite:///{os.path.join(self._folder.name, 'simulated.db')}"
        self._store_class = store_class
        self._free: list[SteppedStore] = []
        #: Not a process: it sets up, looks on, and judges.
        self.onlooker = Store(self._url)
        #: The log folded a second time, event by event, as a reader of the log would.
        self.reader = Store("sqlite://")
        for store in (self.onlooker, self.reader):
            store._connection().execute("PRAGMA synchronous = OFF")

    def emptied(self) -> None:
        for store in (self.onlooker, self.reader):
            connection = store._connection()
            connection.execute("BEGIN IMMEDIATE")
            # That the log refuses it is tested elsewhere; a rebuild makes the trigger again.
            connection.execute(f"DROP TRIGGER IF EXISTS {PREFIX}events_no_delete")
            for table in TABLES:
                connection.execute(f"DELETE FROM {table}")
            connection.execute("COMMIT")
            store.accept()

    def take(self) -> SteppedStore:
        return self._free.pop() if self._free else self._store_class(self._url)

    def give_back(self, store: SteppedStore) -> None:
        assert not store._connection().in_transaction, "what a dead process left open was not undone"
        store.scheduler = None
        # Of the next story it sees another log.
        store.accept()
        self._free.append(store)

    def events_after(self, seq: int) -> list[e.Event]:
        with self.onlooker.reading() as connection:
            return log.events_after(connection, seq, 100_000)

    def fold_on(self, events: Iterable[e.Event]) -> None:
        """Each by itself: every prefix of the log folds (I5)."""
        for event in events:
            with self.reader.writing() as work:
                fold(work, event)

    def differences(self) -> list[str]:
        """Rows of the tables that the fold of the log does not have, and the other way about (I5)."""
        found = []
        with self.onlooker.reading() as live, self.reader.reading() as folded:
            for table in schema.PROJECTIONS:
                rows = [set(connection.execute(f"SELECT * FROM {table.name}")) for connection in (live, folded)]
                found += [f"{table.name}: {row}" for row in sorted(rows[0] ^ rows[1], key=repr)]
        return found

    def close(self) -> None:
        for store in (*self._free, self.onlooker, self.reader):
            store.close()
        self._folder.cleanup()


class SteppedEngine(Engine):
    """Remembers what it answered, and tells the story."""

    def __init__(
        self,
        store: SteppedStore,
        catalog: Catalog,
        *,
        scheduler: Scheduler,
        process: Process,
        heartbeats: Heartbeats,
        new_id: Callable[[], str],
        answered: Callable[[Outcome], None],
        wording: Callable[[object], str],
    ) -> None:
        super().__init__(
            store,
            catalog,
            heartbeats=heartbeats,
            clock=scheduler.clock_of(process),
            steady=lambda: scheduler.now,
            new_id=new_id,
        )
        self._scheduler = scheduler
        self._process = process
        self._answered = answered
        self._wording = wording

    def handle(self, command: c.Command, *, command_id: str | None = None, actor: str = "databuild") -> Outcome:
        """The actor is the process, and not the one that the caller names: the onlooker needs that."""
        try:
            outcome = super().handle(command, command_id=command_id, actor=self._process.name)
        except (Refused, NotFound) as refused:
            self._scheduler.tell(f"{self._wording(command)} is refused: {refused.message}")
            raise
        self._answered(outcome)
        if outcome.repeated:
            self._scheduler.tell(f"hears again what became of {self._wording(command)}")
        return outcome
