"""The Spark session of one step, shared by its threads.

The first thread that needs the session opens it, so an asset of pandas alone starts no Spark. Operations inside of
`interruptible` carry tags, by which any thread can stop them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock, Thread, local
from typing import Any

from databuild_dagster.bindings.reading.spark_resource import forget_session_of
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger
from databuild_dagster.spark.failures import explain_failure, is_lost
from databuild_dagster.spark.interrupt import interrupt_begun
from databuild_dagster.spark.project_modules import send_project_modules
from databuild_dagster.spark.session import active_in_thread, has_workers_elsewhere, interrupt, tag_operations

_log = logger(__name__)

#: A stopped call may start operations for so long; then all operations with its tag are interrupted once more.
LONGEST_STOP_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1


@dataclass
class _Call:
    """One call's use of Spark, in the thread that makes it."""

    tags: tuple[str, ...]
    held: ExitStack
    session: Any = None


class SparkUse:
    """One session for many threads."""

    def __init__(
        self,
        resource: Any,
        on_session: Callable[[Any], None] = lambda session: None,
        check: Callable[[Any], None] = lambda session: None,
    ) -> None:
        """`check` raises a `DatabuildError` for a new session that this step cannot use."""
        self.resource = resource
        self._on_session = on_session
        self._check = check
        self._session: Any = None
        self._refusal: DatabuildError | None = None
        self._lock = Lock()
        #: Per thread, its current call.
        self._local = local()
        #: Tag to the number of running calls that carry it.
        self._in_use: Counter[str] = Counter()
        self._in_use_lock = Lock()

    @property
    def is_remote(self) -> bool:
        """Whether others run the Spark, as far as the resource says before a session is open."""
        return getattr(self.resource, "mode", None) == "remote"

    @property
    def session(self) -> Any:
        """The session. Inside of `interruptible`, this thread's operations carry the tags.

        Raises errors of opening and of the check.
        """
        with self._lock:
            is_new = self._session is None
            if is_new:
                self._session = self._opened()
            session = self._session
        if is_new:
            self._on_session(session)
        call = getattr(self._local, "call", None)
        if call is not None and call.session is not session:
            call.session = session
            call.held.enter_context(active_in_thread(session))
            for tag in call.tags:
                call.held.enter_context(tag_operations(session, tag))
        if has_workers_elsewhere(session):
            send_project_modules()
        return session

    def _opened(self) -> Any:
        """A session that was checked. A refusal counts for all threads: a launch does not ask again for each of its refs."""
        if self._refusal is not None:
            raise self._refusal
        session = self.resource.spark_session
        try:
            self._check(session)
        except DatabuildError as error:
            if is_lost(error):
                forget_session_of(self.resource, session)
            else:
                self._refusal = error
            raise
        return session

    @contextmanager
    def interruptible(self, *tags: str) -> Iterator[None]:
        """This thread's Spark operations inside of the block can be stopped by any of these tags."""
        with ExitStack() as held:
            self._local.call = _Call(tags, held)
            with self._in_use_lock:
                self._in_use.update(tags)
            try:
                yield
            finally:
                with self._in_use_lock:
                    self._in_use.subtract(tags)

    def interrupt(self, tag: str) -> None:
        """Stop the operations with a tag, from any thread. A server that does not answer has nothing to stop.

        While calls with the tag run, each new operation of theirs is stopped when it begins (`interrupt_begun`).
        """
        until = time.monotonic() + LONGEST_STOP_SECONDS
        try:
            while self._in_use[tag] > 0 and time.monotonic() < until:
                session = self._session
                if session is not None and not interrupt_begun(session, tag):
                    break
                time.sleep(LOOK_EVERY_SECONDS)
            if self._session is not None:
                interrupt(self._session, tag)
        except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
            _log.warning("databuild: the Spark operations of %s cannot be interrupted: %s", tag, explain_failure(error))

    def begin_to_interrupt(self, tag: str) -> None:
        """`interrupt` in a new thread: it may wait, and one server that hangs must not delay other interrupts."""
        Thread(target=self.interrupt, args=(tag,), name="databuild interrupt", daemon=True).start()

    def forget_lost_session(self) -> None:
        """Drop the session that this thread's last call used, unless another thread has replaced it already."""
        call = getattr(self._local, "call", None)
        with self._lock:
            if call is not None and self._session is not None and self._session is call.session:
                forget_session_of(self.resource, self._session)
                self._session = None
