"""The build state behind the pages: the engine of the web server's Dagster instance, asked in a few threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.environment import Environment, environment_of
from databuild_dagster.data.read_plan import Moment, moment_of, store_at
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.errors import DatabuildError, Refused
from databuild_dagster.model.logs import logger
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.web.events import ShownEvent, event_shapes

#: Questions that are answered at once; more wait. Dagster's own pages have other threads.
MAX_AT_ONCE: Final = 4
#: Running and waiting questions. While a server of the store is silent, each question takes until its timeout.
MAX_ASKED: Final = 200
#: Running actions and dry runs, which wait for the lock of writers and for Spark; and running and waiting ones together.
MAX_ACTIONS_AT_ONCE: Final = 2
MAX_ACTIONS: Final = 50
#: A costly answer is kept so many times as long as it took, and at least so long. After that it is computed again beside the
#: question, which gets the kept answer. An answer older than `MAX_AGE_SECONDS` is not given.
#: An answer that took less than `CHEAP_SECONDS` is not costly: a page that follows the log must not miss the last event.
KEEP_FACTOR: Final = 50
KEEP_SECONDS: Final = 5.0
CHEAP_SECONDS: Final = 0.005
MAX_AGE_SECONDS: Final = 120.0
#: The wait for an answer that comes later otherwise.
PATIENCE_SECONDS: Final = 0.05
#: Events that are folded for an answer about an earlier time: some seconds.
MAX_FOLDED: Final = 10_000
#: Events that are kept.
MAX_EVENTS: Final = 5_000

T = TypeVar("T")
_all: WeakSet[State] = WeakSet()
_logger = logger(__name__)


class TooManyQuestions(DatabuildError):
    """{most} questions to the build state wait for their answers, and the web server accepts no further one."""

    hint = (
        "Try again in some seconds. If the message returns, `databuild status` shows whether the build state answers."
    )


class TooManyActions(DatabuildError):
    """{most} actions wait for the build state, and the web server accepts no further one."""

    hint = "Nothing was done. Another process writes for a long time, or Spark does not start: `databuild status` says more."


class StateClosed(DatabuildError):
    """The web server is ending, so it accepts no further question."""

    hint = "Ask again when the web server has started again: `databuild dev` or `databuild dev --no-daemon`."


def end_all_states() -> None:
    """Refuse the questions of this process that wait, because its web server ends: it waits for each answer to be complete."""
    for state in list(_all):
        state.end()


class State:
    """The engine, opened by the first question: a store in trouble must not keep Dagster's server from starting."""

    def __init__(self, open_engine: Callable[[], Engine], instance: Any) -> None:
        self._open_engine = open_engine
        self._instance = instance
        self._pages = _Desk(MAX_AT_ONCE, "databuild-pages", lambda: TooManyQuestions(most=MAX_ASKED), MAX_ASKED)
        self._actions = _Desk(
            MAX_ACTIONS_AT_ONCE, "databuild-actions", lambda: TooManyActions(most=MAX_ACTIONS), MAX_ACTIONS
        )
        self._slow = _Threads(1, "databuild-pages-slow")
        self._looking: dict[str, Future[Any]] = {}
        self._kept: dict[str, _Kept] = {}
        #: The kept answers that are being computed again.
        self._renewed: set[str] = set()
        self._made: dict[Any, Any] = {}
        self._lock = Lock()
        #: By seq.
        self._events: dict[int, ShownEvent] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        _all.add(self)

    @classmethod
    def of_instance(cls, instance: Any) -> State:
        """The build state beside a Dagster instance."""
        return cls(partial(engine_for, instance), instance)

    @cached_property
    def environment(self) -> Environment | None:
        """The environment whose build state it is; None for a base."""
        home = getattr(self._instance, "root_directory", None)
        return None if home is None else environment_of(home)

    @property
    def engine(self) -> Engine:
        """Raises `StoreUnusable` and other errors of the store."""
        return self._open_engine()

    def instance(self) -> Any:
        """The Dagster instance, which has the keys of dynamic partitions."""
        return self._instance

    async def ask(self, question: Callable[[], T]) -> T:
        """The answer of a question that looks at the store, from a thread of its own. Raises `TooManyQuestions`, `StateClosed`."""
        self._loop = asyncio.get_running_loop()
        return await self._pages.ask(question)

    async def act(self, action: Callable[[], T]) -> T:
        """The answer of an action or of a dry run, which may wait for the lock of writers: no page waits for it.

        Raises `TooManyActions`, `StateClosed`.
        """
        self._loop = asyncio.get_running_loop()
        return await self._actions.ask(action)

    def made_once(self, make: Callable[[State], T]) -> T:
        """An object over the build state that stays, such as a follower of a part of the log."""
        with self._lock:
            if make not in self._made:
                self._made[make] = make(self)
            made: T = self._made[make]
            return made

    def kept(self, name: str, question: Callable[[], T]) -> T:
        """The answer of a costly question: of now, or of two minutes ago at most if the log has moved since."""
        now, seq = time.monotonic(), self.engine.queries.events.head().seq
        kept = self._kept.get(name)
        if kept is None or (kept.seq != seq and (kept.is_cheap or now >= kept.at + MAX_AGE_SECONDS)):
            return self._answered(name, question)
        if kept.seq != seq and now >= kept.until:
            self._renew(name, question)
        answer_kept: T = kept.answer
        return answer_kept

    def _answered(self, name: str, question: Callable[[], T]) -> T:
        began, seq = time.monotonic(), self.engine.queries.events.head().seq
        answer = question()
        took = time.monotonic() - began
        # Before it is too old, so that no question has to wait.
        young = min(max(KEEP_SECONDS, KEEP_FACTOR * took), MAX_AGE_SECONDS / 2)
        self._kept[name] = _Kept(answer, seq, began, began + young, took < CHEAP_SECONDS)
        return answer

    def _renew(self, name: str, question: Callable[[], object]) -> None:
        """Compute an answer in a thread, unless a thread computes it already. After a failure the next question tries again."""
        with self._lock:
            if name in self._renewed:
                return
            self._renewed.add(name)

        def renew() -> None:
            try:
                self._answered(name, question)
            except Exception:
                _logger.exception("%s cannot be computed again; the next question tries it.", name)
            finally:
                with self._lock:
                    self._renewed.discard(name)

        try:
            self._pages.submit(renew)
        except (StateClosed, RuntimeError):
            # The kept answer is good for this question, also when the system refuses a thread.
            with self._lock:
                self._renewed.discard(name)

    def soon(self, name: str, question: Callable[[], T]) -> T | None:
        """The last answer to a question that reads everything, computed in a thread of its own; None before the first answer.

        Raises `StateClosed`, and what the question raised.
        """
        with self._lock:
            looking = self._looking.get(name)
            if looking is not None and looking.done() and (looking.cancelled() or looking.exception() is not None):
                # Its question got no answer: this one gets the reason, and the next one tries again.
                del self._looking[name]
            elif looking is None or looking.done():
                looking = self._looking[name] = self._slow.submit(self.kept, name, question)
        wait([looking], PATIENCE_SECONDS)
        if looking.cancelled():
            raise StateClosed
        if looking.done():
            looking.result()
        kept = self._kept.get(name)
        return None if kept is None else kept.answer

    def events(self, after: int, most: int) -> list[ShownEvent]:
        """The events after a seq. Events never change, so the last events are kept: some name ten thousand refs."""
        queries = self.engine.queries
        seqs = range(after + 1, min(after + most, queries.events.head().seq) + 1)
        with self._lock:
            known = {seq: self._events[seq] for seq in seqs if seq in self._events}
        missing = [seq for seq in seqs if seq not in known]
        if missing:
            # A stretch of the log, of which some may be known.
            found = queries.events.after(missing[0] - 1, missing[-1] - missing[0] + 1)
            shapes = event_shapes(queries, [event for event in found if event.seq not in known])
            known |= {shape.seq: shape for shape in shapes}
            self._keep(shapes)
        return [known[seq] for seq in seqs]

    def _keep(self, shapes: Iterable[ShownEvent]) -> None:
        with self._lock:
            self._events.update({shape.seq: shape for shape in shapes})
            for seq in list(islice(self._events, max(len(self._events) - MAX_EVENTS, 0))):
                del self._events[seq]

    def end(self) -> None:
        """Take no more questions, and soon refuse waiting questions; from any thread, and from a signal handler."""
        if self._loop is not None and not self._loop.is_closed():
            # A signal handler may have interrupted a thread that holds a lock of its pool, so the loop does it.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for threads in (self._pages, self._actions, self._slow):
            threads.end()

    def close(self) -> None:
        """As `end`, and wait until the threads have answered their questions."""
        self._pages.close()
        self._actions.close()
        self._slow.close()


def moment_at(state: State, as_of: int | None) -> Moment:
    """The moment of a seq; None is now. Raises `InvalidAsOf`, `BeforeAnything`."""
    engine = state.engine
    return moment_of(engine.queries, as_of, datetime.fromtimestamp(engine.clock(), UTC))


class TooManyEvents(Refused):
    """The answer as of seq {seq} needs a fold of the log up to there, and the pages fold {most:,} events at most."""

    hint = "`databuild explain` and `databuild history` have --as-of without this bound."


def check_foldable(then: Moment) -> None:
    """Raises `TooManyEvents`."""
    if then.seq is not None and then.seq > MAX_FOLDED:
        raise TooManyEvents(seq=then.seq, most=MAX_FOLDED)


@contextmanager
def queries_at(state: State, then: Moment) -> Iterator[Queries]:
    """The queries of the log up to a moment. Raises `TooManyEvents`."""
    check_foldable(then)
    with store_at(state.engine.store, then) as store:
        yield Queries(store)


class _Threads:
    """Threads that take no more questions once they are closed."""

    def __init__(self, n_threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(n_threads, name)
        self._is_closed = False

    def submit(self, question: Callable[..., T], *arguments: Any) -> Future[T]:
        """Raises `StateClosed`."""
        try:
            return self._threads.submit(question, *arguments)
        except RuntimeError:
            # A thread that the system refuses raises the same type.
            if self._is_closed:
                raise StateClosed from None
            raise

    def end(self) -> None:
        """Cancel the questions that wait."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """As `end`, and wait for the threads: a thread that computes an answer completes it."""
        self.end()
        self._threads.shutdown()


class _Desk(_Threads):
    """Threads for questions of a kind, and a bound on waiting questions."""

    def __init__(self, n_threads: int, name: str, too_many: Callable[[], DatabuildError], most: int) -> None:
        super().__init__(n_threads, name)
        self._too_many = too_many
        self._most = most
        self._n_asked = 0

    async def ask(self, question: Callable[[], T]) -> T:
        """Raises the error of too many, and `StateClosed`."""
        if self._n_asked >= self._most:
            raise self._too_many()
        self._n_asked += 1
        try:
            return await asyncio.wrap_future(self.submit(question))
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if self._is_closed and not (asking is not None and asking.cancelling()):
                raise StateClosed from None
            raise
        finally:
            self._n_asked -= 1


class _Kept(NamedTuple):
    answer: Any
    seq: int
    at: float
    until: float
    is_cheap: bool
