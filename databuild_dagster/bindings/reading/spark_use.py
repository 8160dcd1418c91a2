"""The Spark session of one step, and what its threads run in it.

The session is opened by the thread that first needs it, so an asset of pandas alone starts no Spark. What a thread runs
inside `interruptible` carries tags, by which any thread can stop it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock, Thread, local
from typing import Any

from databuild_dagster.bindings.reading.spark_resource import forget_session_of
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.interrupt import interrupt_begun
from databuild_dagster.spark.session import interrupt, tag_operations

_log = logging.getLogger(__name__)

#: How long a call that is to stop may go on asking Spark for more; after that all that carries its tag is interrupted once.
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

    def __init__(self, resource: Any, on_session: Callable[[Any], None] = lambda session: None) -> None:
        self.resource = resource
        #: Receives the session when it is open.
        self._on_session = on_session
        self._session: Any = None
        self._lock = Lock()
        #: Of each thread, the call that it is in.
        self._local = local()
        #: How many running calls carry a tag.
        self._in_use: Counter[str] = Counter()
        self._in_use_lock = Lock()

    @property
    def session(self) -> Any:
        """The Spark session; inside `interruptible` what this thread runs in it carries the tags. Raises what
        opening it raises."""
        with self._lock:
            is_new = self._session is None
            if is_new:
                self._session = self.resource.spark_session
            session = self._session
        if is_new:
            self._on_session(session)
        call = getattr(self._local, "call", None)
        if call is not None and call.session is not session:
            call.session = session
            for tag in call.tags:
                call.held.enter_context(tag_operations(session, tag))
        return session

    @contextmanager
    def interruptible(self, *tags: str) -> Iterator[None]:
        """What this thread runs in Spark inside the block can be stopped by any of its tags."""
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
        """Stop what runs with the tag, from any thread; a server that does not answer has nothing to stop.

        As long as calls with the tag go on, what Spark begins for them is stopped as it begins (`interrupt_begun`).
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
        except Exception as error:  # PySpark's, grpc's and py4j's have no class in common.
            _log.warning("databuild: what runs as %s could not be interrupted: %s", tag, explain_failure(error))

    def begin_to_interrupt(self, tag: str) -> None:
        """`interrupt` in a thread of its own: it may wait, and a server that hangs must not stop whoever stops others."""
        Thread(target=self.interrupt, args=(tag,), name="databuild interrupt", daemon=True).start()

    def forget_lost_session(self) -> None:
        """The session that this thread's last call used is not used again; who was faster has another by now."""
        call = getattr(self._local, "call", None)
        with self._lock:
            if call is not None and self._session is not None and self._session is call.session:
                forget_session_of(self.resource, self._session)
                self._session = None
