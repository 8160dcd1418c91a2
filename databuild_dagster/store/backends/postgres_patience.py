"""A bound on each wait for a PostgreSQL server (docs/how-to/postgresql.md).

A statement may take long, and a frozen server sends as little as a working server. So a wait that was silent for the
connection timeout asks the server for a sign of life over a second connection, and continues if it answers.

A server that restarts or fails over refuses connections, cuts them, or only reads for a while. It is away for as long as libpq's
ping finds no server that admits anybody, and is tried again for three times the connection timeout.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from databuild_dagster.model.logs import logger
from databuild_dagster.model.wording import one_line

Answer = TypeVar("Answer")

_log = logger(__name__)

#: libpq's parameter: how long a connection may take. It is also the silence after which the server is asked.
PATIENCE = "connect_timeout"

#: libpq's parameter: which of several servers a connection may have.
TARGET = "target_session_attrs"

#: Defaults of parameters that a url leaves out. A host that is gone is noticed by TCP between statements too.
CONNECTION_DEFAULTS: Mapping[str, Any] = {
    PATIENCE: 10,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

#: The wait for a server that is away, in connection timeouts; and the longest pause between two tries, in seconds.
TIMEOUTS_OF_PATIENCE = 3
MAX_PAUSE_SECONDS = 1.0

#: The server ends a transaction that is idle for longer, because it blocks every other writer.
STANDSTILL_SECONDS = 60
#: The bounds that the server holds, as options of the session; `options=` in a url wins over them.
SERVER_DEFAULTS: Mapping[str, str] = {
    "idle_in_transaction_session_timeout": f"{STANDSTILL_SECONDS}s",
    # Two others that stand still, one after the other, are waited for.
    "lock_timeout": f"{2 * STANDSTILL_SECONDS + 30}s",
    "statement_timeout": "15min",
}
#: For a transaction that rebuilds tables: it takes the time that it needs.
UNBOUNDED = tuple(f"SET LOCAL {name} = 0" for name in SERVER_DEFAULTS)


class NoAnswer(psycopg.OperationalError):
    """A server was silent, and did not accept a second connection either."""


class Away(psycopg.OperationalError):
    """A server refused connections, cut them, or only read, for as long as the patience."""


class Rejected(psycopg.OperationalError):
    """A server that admits other connections rejected this connection, for instance its password."""


class Patience:
    """The wait for a server that is away. It begins with the first trouble."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._ends_at: float | None = None
        self._pause = 0.0

    def rest(self, error: psycopg.Error) -> None:
        """Pause before the next try, the first time not at all. Raises `Away`, or a `NoAnswer` as it is, when the wait is over."""
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + _seconds_of(self._parameters)
        elif now >= self._ends_at:
            raise error if isinstance(error, NoAnswer) else Away(one_line(error)) from error
        elif not self._pause:
            _log.warning(
                "databuild: the server of the build state is away, waiting for it for up to %.0f s: %s",
                self._ends_at - now,
                one_line(error),
            )
            self._pause = 0.1
        threading.Event().wait(self._pause)
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)


def _seconds_of(parameters: Mapping[str, Any]) -> float:
    """The bound of a wait. A url without a bound on silence gets a bound too, or a stopped server would be awaited without end."""
    timeout = float(parameters[PATIENCE])
    return TIMEOUTS_OF_PATIENCE * (timeout if timeout > 0 else float(CONNECTION_DEFAULTS[PATIENCE]))


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose waits end when its server does not answer."""

    #: Asks the server for a sign of life, and raises if there is none.
    ask: Callable[[], None] | None = None
    patience_seconds = float("inf")

    def wait(self, gen: Generator[Any, Any, Answer], *args: Any, **more: Any) -> Answer:
        return super().wait(self._watched(gen), *args, **more)

    def _watched(self, gen: Generator[Any, Any, Answer]) -> Generator[Any, Any, Answer]:
        """The same generator; the driver sends it 0 about ten times a second while the server is silent."""
        try:
            awaited = next(gen)
            since = time.monotonic()
            while True:
                ready = yield awaited
                if ready:
                    since = time.monotonic()
                elif time.monotonic() - since > self.patience_seconds:
                    self._look_for_life()
                    since = time.monotonic()
                awaited = gen.send(ready)
        except StopIteration as done:
            answer: Answer = done.value
            return answer

    def _look_for_life(self) -> None:
        try:
            if self.ask is None:
                raise NoAnswer(f"it sent nothing for {self.patience_seconds:.0f} s")
            self.ask()
        except NoAnswer:
            # Without this the end of the transaction would wait in the same way.
            self.close()
            raise


def connected(parameters: Mapping[str, Any], patience: Patience) -> PatientConnection:
    """A connection in autocommit mode. Raises `NoAnswer`, `Away`, `Rejected`, and `psycopg.ProgrammingError` for a wrong url."""
    was_there = False
    while True:
        try:
            raw = _connected(parameters)
        except NoAnswer:
            raise
        except psycopg.OperationalError as error:
            # Not by the words of the error, which are in the language of the server.
            admits = PGconn.ping(make_conninfo(**parameters).encode()) == Ping.OK
            is_there = admits and not _finds_replicas_alone(parameters)
            if is_there and was_there:
                raise Rejected(one_line(error)) from error
            was_there = is_there
            if not is_there:
                patience.rest(error)
        else:
            raw.ask = lambda: _ask(parameters)
            return raw


def _finds_replicas_alone(parameters: Mapping[str, Any]) -> bool:
    """Whether a url that asks for a server that writes is refused although its servers admit connections, as in a failover."""
    if TARGET not in parameters:
        return False
    try:
        _connected({**parameters, TARGET: "any"}).close()
    except psycopg.Error:
        return False
    return True


def _connected(parameters: Mapping[str, Any]) -> PatientConnection:
    try:
        raw = PatientConnection.connect(**parameters, autocommit=True)
    except psycopg.errors.ConnectionTimeout:
        raise NoAnswer(f"it accepted no connection for {parameters[PATIENCE]} s") from None
    # Zero or less means no bound to libpq.
    if (seconds := float(parameters[PATIENCE])) > 0:
        raw.patience_seconds = seconds
    return raw


def _ask(parameters: Mapping[str, Any]) -> None:
    """Raises `NoAnswer`. A refusal, for instance by a server with too many connections, is a sign of life."""
    try:
        with _connected(parameters) as another:
            another.execute("SELECT 1")
    except NoAnswer:
        raise
    except psycopg.Error:
        return


def bounded(query: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a url, and the defaults for what it leaves out."""
    # libpq's own variable wins over our default.
    defaults = {**CONNECTION_DEFAULTS, PATIENCE: os.environ.get("PGCONNECT_TIMEOUT", CONNECTION_DEFAULTS[PATIENCE])}
    options = " ".join(f"-c {name}={value}" for name, value in SERVER_DEFAULTS.items())
    return {**defaults, **query, "options": f"{options} {query.get('options', '')}".strip()}
