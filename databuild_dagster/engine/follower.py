"""A follower reads the log from its cursor, acts on the events, and then stores its cursor (rule 11.1).

A process that dies between acting and storing acts again: at least once, and exactly once where the log itself decides or
a repetition changes nothing. A tick follows at most `MAX_EVENTS` events. A process at the end of the log asks a single question
per tick until the log grows (rule 11.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import Event
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.touched import touched_refs
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from databuild_dagster.engine.engine import Engine

#: Events that a follower passes in a tick; the next tick continues.
MAX_EVENTS: Final = 10_000

_log = logger(__name__)


class Cursor(msgspec.Struct, frozen=True):
    """The place of a follower in the log. A follower that stores more derives its own."""

    #: Events up to this seq are done.
    seq: int = 0
    #: The last done entry of the next event that concerns the follower.
    entry: str = ""


AnyCursor = TypeVar("AnyCursor", bound=Cursor)
Entry = TypeVar("Entry", bound=str)


class CursorStorage(Protocol):
    """Stores cursors by the names of followers: for a single process, or for all processes."""

    def load(self, name: str, kind: type[AnyCursor]) -> AnyCursor | None: ...

    def store(self, name: str, cursor: Cursor) -> None: ...


class ProcessCursors:
    """Cursors of a process, which reads the log again when it begins."""

    def __init__(self, engine: Engine) -> None:
        self._kept: dict[str, Cursor] = engine.memory.of(ProcessCursors, dict)

    def load(self, name: str, kind: type[AnyCursor]) -> AnyCursor | None:
        found = self._kept.get(name)
        return found if isinstance(found, kind) else None

    def store(self, name: str, cursor: Cursor) -> None:
        self._kept[name] = cursor


class LogFollower(Generic[AnyCursor]):
    """A look of a follower at the log, as the log was when the look began."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        kind: type[AnyCursor],
        storage: CursorStorage | None = None,
        *,
        about: str = "",
        head: int | None = None,
    ) -> None:
        """`about` names a value, such as a warehouse, whose change makes the follower repeat all its work.

        `head` is the log's end, if the caller has it: the followers of a tick share it.
        """
        self.head = engine.queries.events.head().seq if head is None else head
        self._queries = engine.queries
        self._name, self._kind, self._about = name, kind, about
        self._storage = storage or ProcessCursors(engine)
        self._kept: AnyCursor | None = None
        #: By follower, the event up to which this process has no work left.
        self._ends: dict[str, tuple[int, str]] = engine.memory.of(LogFollower, dict)

    @property
    def is_at_end(self) -> bool:
        """Whether this process has no work before the log grows."""
        return self._ends.get(self._name) == (self.head, self._about)

    def load(self) -> AnyCursor | None:
        """The stored cursor; None without a cursor, or for a cursor beyond the end, which belongs to a different log."""
        self._kept = self._storage.load(self._name, self._kind)
        if self._kept is not None and self._kept.seq > self.head:
            # Another process may have come further since this look began.
            self.head = self._queries.events.head().seq
        return self._kept if self._kept is not None and self._kept.seq <= self.head else None

    def keep(self, cursor: AnyCursor) -> None:
        """Store a cursor, unless it is stored already."""
        if cursor != self._kept:
            self._storage.store(self._name, cursor)
            self._kept = cursor

    def rest(self, seq: int) -> None:
        """Remember that this process has no work left up to an event."""
        self._ends[self._name] = (seq, self._about)

    def last_seq(self, cursor: Cursor) -> int:
        """The last event of the stretch after a cursor."""
        return min(self.head, cursor.seq + MAX_EVENTS)

    def events(self, cursor: Cursor, names: Iterable[str]) -> list[Event]:
        """The events of some types in the stretch after a cursor."""
        return self._queries.events.named(names, cursor.seq, self.last_seq(cursor)) if cursor.seq < self.head else []


class Step(NamedTuple, Generic[Entry]):
    """An entry of an event, and the cursor after it."""

    #: None at the end of the stretch, after events that do not concern the follower.
    entry: Entry | None
    after: Cursor


def steps(
    events: Iterable[Event], cursor: Cursor, last_seq: int, entries: Callable[[Event], Iterable[Entry]]
) -> Iterator[Step[Entry]]:
    """The entries after a cursor, in order. An event may have more entries than a tick may act on."""
    seq, done = cursor.seq, cursor.entry
    for event in events:
        for entry in sorted(entries(event)):
            if entry > done:
                yield Step(entry, Cursor(seq, entry))
        seq, done = event.seq, ""
    yield Step(None, Cursor(last_seq))


def all_touched(queries: Queries, events: Iterable[Event]) -> set[Ref]:
    """The refs that events touch, as the store has them now."""
    all_of = [touched_refs(event) for event in events]
    refs = {ref for touched in all_of for ref in touched.refs}
    if job_runs := [job_run for touched in all_of for job_run in touched.job_runs]:
        refs.update(ref for run in queries.job_runs.named(job_runs).values() for ref in run.refs)
    if uuids := [uuid for touched in all_of for uuid in touched.uuids]:
        refs.update(kept.ref for kept in queries.instances.kept(uuids).values())
    for touched in all_of:
        refs.update(queries.instances.tainted_by(touched.taint_id) if touched.taint_id is not None else ())
    return refs


@contextmanager
def apart(trouble: str, *expected: type[DatabuildError]) -> Iterator[None]:
    """Log errors of the block: the failure of a follower does not fail the tick, and the next tick retries.

    An expected error is logged by its message, any other with its type.
    """
    try:
        yield
    except expected as error:
        _log.warning("databuild: %s: %s", trouble, error.message)
    except Exception as error:
        log_failure(_log, trouble, error)
