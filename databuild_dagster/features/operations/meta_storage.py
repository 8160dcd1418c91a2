"""The meta storage for its users: read, invoke, watch (rule 9.1). Every change goes through `Engine.handle`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.datasets import Watching
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
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.store import again_if_cut

#: Compaction waits this long for a silent watcher, which renews its lease after half of it.
WATCH_LEASE_SECONDS = 600.0
#: Revisions that `compact` leaves for watches without a lease: a poll every few seconds finds them.
KEPT_REVISIONS = 5_000


class Answers(NamedTuple):
    """The values of an invoke, a value for each statement, and the revision of the changed keys."""

    values: tuple[Value, ...]
    revision: int
    #: True when the command id was known and nothing was changed now.
    repeated: bool

    @property
    def value(self) -> Value:
        """The value of an invoke of a single statement."""
        (value,) = self.values
        return value


class MetaStorage(MetaQueries):
    """Keys to bytes, each with a revision, beside everything else in the log."""

    def __init__(self, engine: Engine, *, actor: str = "databuild") -> None:
        super().__init__(engine.store)
        self.engine = engine
        self.actor = actor

    def get(self, key: str) -> Entry:
        return self.get_all([key]).entries[0]

    def invoke(
        self,
        condition: Condition,
        then: Statement | None = None,
        otherwise: Statement | None = None,
        *,
        command_id: str | None = None,
    ) -> Answers:
        """Evaluate and apply atomically. A `command_id` that was used before returns its first answer.

        Raises `InvalidRequest` for an invalid key or value.
        """
        return self.invoke_all([iif(condition, then, otherwise)], command_id=command_id)

    def invoke_all(self, statements: Iterable[Statement], *, command_id: str | None = None) -> Answers:
        """Invoke several statements in a single step, under the same revision."""
        command = c.InvokeMeta(statements=tuple(statements))
        outcome = self.engine.handle(command, command_id=command_id, actor=self.actor)
        event = outcome.events[0]
        if not isinstance(event.fact, e.MetaInvoked):
            raise InvalidRequest(what="command_id", value=command_id, why="another kind of command had it")
        return Answers(event.fact.answers, event.seq, outcome.repeated)

    @again_if_cut
    def answer_of(self, command_id: str, place: int = 0) -> Value:
        """The value of the statement at `place` of an invoke with this command id; None if there was no such invoke.

        Raises `CommandIdUsed` as `Engine.handle`.
        """
        with self.engine.store.reading() as connection:
            events = log.events_of_command(connection, command_id)
        fact = events[0].fact if events else None
        return fact.answers[place] if isinstance(fact, e.MetaInvoked) and fact.answers else None

    def put(self, key: str, value: bytes) -> int:
        """Set a key; returns the new revision."""
        return self.invoke_all([do(Put(key, value))]).revision

    def remove(self, key: str) -> int:
        return self.invoke_all([do(Remove(key))]).revision

    def watch(self, prefix: str, *, after: int | None = None, name: str | None = None) -> Watch:
        """Watch keys with a prefix after a revision; without a revision, from now on."""
        return self.watch_range(prefix, prefix + LAST, after=after, name=name)

    def watch_key(self, key: str, *, after: int | None = None, name: str | None = None) -> Watch:
        # No key contains a control character, so none is between.
        return self.watch_range(key, key + "\x01", after=after, name=name)

    def watch_range(self, start: str, end: str, *, after: int | None = None, name: str | None = None) -> Watch:
        """Watch keys from `start` to `end`, exclusive. Raises `CompactedRevision`."""
        position = self.engine.queries.events.head().seq if after is None else after
        return Watch(self, start, end, position, name)

    def compact(self, up_to: int | None = None) -> int:
        """Remove old values and tombstones up to a revision, but none that a running watch has not read.

        Without a revision, `KEPT_REVISIONS` are left. Returns the compacted revision.
        """
        revision = self.engine.queries.events.head().seq - KEPT_REVISIONS if up_to is None else up_to
        self.engine.handle(c.CompactMeta(up_to=revision), actor=self.actor)
        return self.compacted()


class Watch:
    """Changes of some keys: a batch for each revision, in order, each exactly once.

    A new watch may continue at `position`. A watch with a name holds compaction back while it is polled every few minutes;
    a slow watch without a name raises `CompactedRevision`.
    """

    def __init__(self, meta: MetaStorage, start: str, end: str, position: int, name: str | None) -> None:
        self._meta = meta
        self._start, self._end = start, end
        self._name = name
        self.position = position
        self._renew_at = float("-inf")
        self._renew()
        # Only now: an earlier compaction raises at once, and a later one is held back.
        self._meta.changes(position, start, end, limit=1)

    def poll(self) -> tuple[Batch, ...]:
        """The changes since the last poll; of very many the oldest. Raises `CompactedRevision`."""
        self._renew()
        changes = self._meta.changes(self.position, self._start, self._end)
        self.position = changes.up_to
        return changes.batches

    def close(self) -> None:
        """Release compaction."""
        if self._name is not None:
            self._meta.remove(WATCHERS + self._name)

    def _renew(self) -> None:
        steady = self._meta.engine.steady()
        if self._name is None or steady < self._renew_at:
            return
        self._renew_at = steady + WATCH_LEASE_SECONDS / 2
        # The log's time decides whether the lease has ended.
        watching = Watching(self.position, self._meta.engine.now() + WATCH_LEASE_SECONDS)
        self._meta.put(WATCHERS + self._name, msgspec.json.encode(watching))
