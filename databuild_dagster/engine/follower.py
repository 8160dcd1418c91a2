"""A follower reads the log from where it stopped, acts on what it reads, and stores how far it has come (SPEC 11.1).

It acts first and stores then. So a process that dies between the two acts again: at least once, and exactly once where
the log itself decides or acting twice changes nothing. A tick follows at most `MAX_EVENTS` events. A tick of a process
that came to the end of the log asks where the log ends and, if it has not grown, nothing else (SPEC 11.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.events import Event
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.touched import touched_refs
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from databuild_dagster.engine.engine import Engine

#: Events that a follower passes in one tick; the next tick goes on.
MAX_EVENTS: Final = 10_000

_log = logging.getLogger(__name__)


class Cursor(msgspec.Struct, frozen=True):
    """How far a follower has come. A follower that stores more derives its own."""

    #: Events up to this one are done.
    seq: int = 0
    #: Of the next event that concerns the follower, the entries up to this one are done.
    entry: str = ""


AnyCursor = TypeVar("AnyCursor", bound=Cursor)
Entry = TypeVar("Entry", bound=str)


class CursorStorage(Protocol):
    """Keeps cursors by the names of followers: for one process, or for all."""

    def load(self, name: str, kind: type[AnyCursor]) -> AnyCursor | None: ...

    def store(self, name: str, cursor: Cursor) -> None: ...


class ProcessCursors:
    """Cursors of one process, which looks through the log again when it begins."""

    def __init__(self, engine: Engine) -> None:
        self._kept: dict[str, Cursor] = engine.memory.of(ProcessCursors, dict)

    def load(self, name: str, kind: type[AnyCursor]) -> AnyCursor | None:
        found = self._kept.get(name)
        return found if isinstance(found, kind) else None

    def store(self, name: str, cursor: Cursor) -> None:
        self._kept[name] = cursor


class LogFollower(Generic[AnyCursor]):
    """One look of a follower at the log, as the log was when the look began."""

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
        """`about` names what else a follower has to do all its work for again when it changes, such as a warehouse.

        `head` is the log's end for a caller that knows it: the followers of one tick share one look at it.
        """
        self.head = engine.queries.head().seq if head is None else head
        self._queries = engine.queries
        self._name, self._kind, self._about = name, kind, about
        self._storage = storage or ProcessCursors(engine)
        self._kept: AnyCursor | None = None
        #: By follower, up to where this process has nothing left to do.
        self._ends: dict[str, tuple[int, str]] = engine.memory.of(LogFollower, dict)

    @property
    def is_at_end(self) -> bool:
        """Whether this process has nothing to do before the log grows."""
        return self._ends.get(self._name) == (self.head, self._about)

    def load(self) -> AnyCursor | None:
        """The stored cursor; None where there is none, and where it lies beyond the end, so of another log."""
        self._kept = self._storage.load(self._name, self._kind)
        if self._kept is not None and self._kept.seq > self.head:
            # Another process may have come further since this look began.
            self.head = self._queries.head().seq
        return self._kept if self._kept is not None and self._kept.seq <= self.head else None

    def keep(self, cursor: AnyCursor) -> None:
        """Store how far the follower has come, unless that is stored already."""
        if cursor != self._kept:
            self._storage.store(self._name, cursor)
            self._kept = cursor

    def rest(self, seq: int) -> None:
        """Remember that this process has nothing left to do up to an event."""
        self._ends[self._name] = (seq, self._about)

    def last_seq(self, cursor: Cursor) -> int:
        """The last event of the stretch after a cursor."""
        return min(self.head, cursor.seq + MAX_EVENTS)

    def events(self, cursor: Cursor, names: Iterable[str]) -> list[Event]:
        """The events of some types in the stretch after a cursor."""
        return self._queries.events_named(names, cursor.seq, self.last_seq(cursor)) if cursor.seq < self.head else []


class Step(NamedTuple, Generic[Entry]):
    """One entry of an event, and the cursor when it is done."""

    #: None at the end of the stretch, behind events that do not concern the follower.
    entry: Entry | None
    after: Cursor


def steps(
    events: Iterable[Event], cursor: Cursor, last_seq: int, entries: Callable[[Event], Iterable[Entry]]
) -> Iterator[Step[Entry]]:
    """What is left to do after a cursor, in order. An event may have more entries than a tick may act on."""
    seq, done = cursor.seq, cursor.entry
    for event in events:
        for entry in sorted(entries(event)):
            if entry > done:
                yield Step(entry, Cursor(seq, entry))
        seq, done = event.seq, ""
    yield Step(None, Cursor(last_seq))


def all_touched(queries: Queries, events: Iterable[Event]) -> set[Ref]:
    """The refs that events touch, by what the store knows of them now."""
    touched = [touched_refs(event) for event in events]
    refs = {ref for one in touched for ref in one.refs}
    if job_runs := [job_run for one in touched for job_run in one.job_runs]:
        refs.update(ref for run in queries.job_runs_named(job_runs).values() for ref in run.refs)
    if uuids := [uuid for one in touched for uuid in one.uuids]:
        refs.update(kept.ref for kept in queries.kept(uuids).values())
    for one in touched:
        refs.update(queries.tainted_by(one.taint_id) if one.taint_id is not None else ())
    return refs


@contextmanager
def apart(trouble: str, *expected: type[DatabuildError]) -> Iterator[None]:
    """Log what is raised within: the failure of one follower is not the tick's, and the next tick tries again.

    An expected error is logged by its message, any other with its traceback.
    """
    try:
        yield
    except expected as error:
        _log.warning("databuild: %s: %s", trouble, error.message)
    except Exception:
        _log.warning("databuild: %s", trouble, exc_info=True)
