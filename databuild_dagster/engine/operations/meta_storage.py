"""The meta storage as its users see it: read, invoke, watch (SPEC 9.1). Every change goes through the engine's one door."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.meta_storage import Watching
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.meta_storage import (
    LAST,
    WATCHERS,
    Batch,
    Condition,
    Entry,
    Put,
    Remove,
    Statement,
    Value,
    do,
    iif,
)
from databuild_dagster.store import log
from databuild_dagster.store.meta_storage import Look, MetaQueries

#: How long compaction waits for a silent watcher, which renews its lease in half of that.
WATCH_LEASE_SECONDS = 600.0
#: Revisions that `compact` leaves for those who watch without a lease: a look every few seconds finds them.
KEPT_REVISIONS = 5_000


class Answers(NamedTuple):
    """What an invoke yielded, one value for each statement, and the revision of all that it touched."""

    values: tuple[Value, ...]
    revision: int
    #: True when the command id was known and nothing was done now.
    repeated: bool

    @property
    def value(self) -> Value:
        """Of an invoke of one statement."""
        (value,) = self.values
        return value


class MetaStorage:
    """Keys to bytes, each with a revision, beside everything else in the one log."""

    def __init__(self, engine: Engine, *, actor: str = "databuild") -> None:
        self.engine = engine
        self.actor = actor
        self.queries = MetaQueries(engine.store)

    def get(self, key: str) -> Entry:
        return self.queries.get_all([key]).entries[0]

    def get_all(self, keys: Iterable[str]) -> Look:
        return self.queries.get_all(keys)

    def range(self, start: str, end: str) -> Look:
        return self.queries.range(start, end)

    def prefix(self, prefix: str) -> Look:
        return self.queries.prefix(prefix)

    def invoke(
        self,
        condition: Condition,
        then: Statement | None = None,
        otherwise: Statement | None = None,
        *,
        command_id: str | None = None,
    ) -> Answers:
        """Evaluate and apply atomically. A `command_id` that was used before gives its first answer again.

        Raises `InvalidRequest` for a key or value that cannot be.
        """
        return self.invoke_all([iif(condition, then, otherwise)], command_id=command_id)

    def invoke_all(self, statements: Iterable[Statement], *, command_id: str | None = None) -> Answers:
        """Several statements in one step, under one revision."""
        command = c.InvokeMeta(statements=tuple(statements))
        outcome = self.engine.handle(command, command_id=command_id, actor=self.actor)
        event = outcome.events[0]
        if not isinstance(event.fact, e.MetaInvoked):
            raise InvalidRequest(what="command_id", value=command_id, why="another kind of command had it")
        return Answers(event.fact.answers, event.seq, outcome.repeated)

    def answer_of(self, command_id: str) -> Value:
        """What an invoke of one statement with this command id has yielded; None if there was none."""
        with self.engine.store.reading() as connection:
            events = log.events_of_command(connection, command_id)
        fact = events[0].fact if events else None
        return fact.answers[0] if isinstance(fact, e.MetaInvoked) and fact.answers else None

    def put(self, key: str, value: bytes) -> int:
        """Also over another value; the new revision."""
        return self.invoke_all([do(Put(key, value))]).revision

    def remove(self, key: str) -> int:
        return self.invoke_all([do(Remove(key))]).revision

    def watch(self, prefix: str, *, after: int | None = None, name: str | None = None) -> Watch:
        """What happens to keys that begin so, behind a revision; without one, from now on."""
        return self.watch_range(prefix, prefix + LAST, after=after, name=name)

    def watch_key(self, key: str, *, after: int | None = None, name: str | None = None) -> Watch:
        # No key holds NUL, so none lies between.
        return self.watch_range(key, key + "\x01", after=after, name=name)

    def watch_range(self, start: str, end: str, *, after: int | None = None, name: str | None = None) -> Watch:
        """From `start` up to, without, `end`. Raises `CompactedRevision`."""
        position = self.engine.queries.head().seq if after is None else after
        return Watch(self, start, end, position, name)

    def compact(self, up_to: int | None = None) -> int:
        """Forget what keys went through, and tombstones, up to a revision, and never more than what running watches have seen.

        Without a revision some of the past is left. Returns up to where it is forgotten now.
        """
        revision = self.engine.queries.head().seq - KEPT_REVISIONS if up_to is None else up_to
        self.engine.handle(c.CompactMeta(up_to=revision), actor=self.actor)
        return self.queries.compacted()


class Watch:
    """Changes of some keys: one batch for each revision, in order, none lost and none twice.

    `position` is up to where everything has been given out; a new watch may go on from there. With a name it holds
    compaction back while it is asked at least every few minutes; without one it raises `CompactedRevision` if it was slow.
    """

    def __init__(self, meta: MetaStorage, start: str, end: str, position: int, name: str | None) -> None:
        self._meta = meta
        self._start, self._end = start, end
        self._name = name
        self.position = position
        self._renew_at = float("-inf")
        self._renew()
        # Only now: an earlier compaction raises at once, and a later one is held back.
        self._meta.queries.changes(position, start, end, limit=1)

    def poll(self) -> tuple[Batch, ...]:
        """What has happened since the last time; of very much the oldest part. Raises `CompactedRevision`."""
        self._renew()
        changes = self._meta.queries.changes(self.position, self._start, self._end)
        self.position = changes.up_to
        return changes.batches

    def close(self) -> None:
        """Hold nothing back any longer."""
        if self._name is not None:
            self._meta.remove(WATCHERS + self._name)

    def _renew(self) -> None:
        steady = self._meta.engine.steady()
        if self._name is None or steady < self._renew_at:
            return
        self._renew_at = steady + WATCH_LEASE_SECONDS / 2
        # Whether that has passed is decided by the log's time.
        said = Watching(self.position, self._meta.engine.now() + WATCH_LEASE_SECONDS)
        self._meta.put(WATCHERS + self._name, msgspec.json.encode(said))
