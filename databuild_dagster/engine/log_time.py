"""The clock of a log, and the time of its decisions, which is never before its last event (rule 3.1, decision 0061).

Several hosts share a log on a server, and any of their clocks may be wrong. The server's clock is the only clock that all hosts can
read. Where the log is a file of this machine, this machine's clock is used.

Times in the log never go back; clocks do. A single command by a clock that runs ahead leaves the log ahead of every correct
clock. With the clock alone, retries and ends of wants, which count from the log's times, would be late by the difference;
the log's last time alone would not advance without events. So time advances from there, by the steady clock.

| the clock is                    | now is                                                                     |
|---------------------------------|----------------------------------------------------------------------------|
| not before the log's last event | the clock                                                                  |
| less than a second before it    | that event's time: two machines never quite agree                          |
| further behind                  | that event's time and 90 % of the time since, until the clock is as far    |

The lower pace lets the clock catch up. Each tick notes the time beside the heartbeats for processes that begin later, so
that their wants do not expire at birth. Heartbeats, Dagster's records and files use the machine's clock.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from databuild_dagster.engine.holders import in_words, this_machine
from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.wording import when
from databuild_dagster.model.logs import logger
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.store.queries.queries import EventQueries

#: A machine's clock may differ from the server's by so much, and be this far behind the log, and is used as it is: Dagster's
#: records and files have its times.
TOLERATED_SECONDS: Final = 1.0
#: The server's clock is read again after so long, and when this machine's was set or the machine was suspended.
AGAIN_SECONDS: Final = 600.0

#: Seconds of the log for each second, while the clock catches up.
PACE = 0.9

#: Names of the noted time of the log: for any machine, and for this machine since it started.
_SHARED = "time of the log"
_OWN = f"time of the log since the start of {'/'.join(this_machine())}"

#: The stores for which this process has warned of its clock, and that it is behind their log.
_warned_of_clock: set[str] = set()
_warned: set[str] = set()
_log = logger(__name__)


class _Reading(NamedTuple):
    """This machine's clocks at the time of a reading, and the seconds by which the server's is ahead."""

    wall: float
    steady: float
    ahead: float


class StoreClock:
    """The time in seconds since 1970 UTC, for `Engine.clock`. Thread-safe: a reading is replaced as a whole."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        url: str,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heartbeats, self._url, self._wall, self._steady = heartbeats, url, wall, steady
        self._last: _Reading | None = None

    def __call__(self) -> float:
        if not self._heartbeats.on_server:
            return self._wall()
        wall, steady, last = self._wall(), self._steady(), self._last
        if last is not None:
            passed = steady - last.steady
            was_set = abs(wall - last.wall - passed) > TOLERATED_SECONDS
        if last is None or was_set or passed > AGAIN_SECONDS:
            self._last = last = self._read(last)
            wall = self._wall()
        return wall + last.ahead

    def _read(self, last: _Reading | None) -> _Reading:
        before = self._wall()
        try:
            server = self._heartbeats.server_time()
        except StoreUnusable:
            # The caller meets it at its next query. Until then the last known difference is the best guess.
            return _Reading(self._wall(), self._steady(), 0.0 if last is None else last.ahead)
        wall = self._wall()
        ahead = server - (before + wall) / 2
        if abs(ahead) <= TOLERATED_SECONDS + (wall - before) / 2:
            ahead = 0.0
        elif abs(ahead) > LEASE_SECONDS and self._url not in _warned_of_clock:
            _warned_of_clock.add(self._url)
            _log.warning(
                "databuild: This machine's clock shows %s, and that of the database server %s. The server's time is used; set "
                "the clock of the one that is wrong.",
                when(wall),
                when(server),
            )
        return _Reading(wall, self._steady(), ahead)


class LogTime:
    """The time of a log in a process."""

    def __init__(self, heartbeats: Heartbeats, events: EventQueries) -> None:
        self._heartbeats = heartbeats
        self._events = events
        #: Seconds to add to the paced steady clock; None while the clock is not behind.
        self._ahead: float | None = None

    def now(self, head_at: float, clock: float, steady: float) -> float:
        """The time, where the log ends at `head_at`; `steady` is a steady clock."""
        ahead, passed = self._ahead, steady * PACE
        if ahead is None:
            if head_at - clock <= TOLERATED_SECONDS:
                return max(clock, head_at)
            ahead = self._noted(passed)
            if said := clock_is_behind(self._events, head_at, clock):
                _log.warning("databuild: %s", said)
        ahead = max(ahead, head_at - passed)
        now = max(clock, head_at, passed + ahead)
        self._ahead = ahead if now > clock else None
        return now

    def note(self, now: float) -> None:
        """Note the time for processes that begin later, if the clock is behind."""
        if (ahead := self._ahead) is not None:
            self._heartbeats.beat([_SHARED], now)
            self._heartbeats.beat([_OWN], ahead)

    def _noted(self, passed: float) -> float:
        noted = self._heartbeats.last([_SHARED, _OWN])
        return max(noted.get(_SHARED, 0.0) - passed, noted.get(_OWN, -passed))


def clock_is_behind(events: EventQueries, head_at: float, clock: float) -> str | None:
    """A warning if the clock is behind the log by more than a lease; once for each process and store."""
    url = events.url
    if head_at - clock <= LEASE_SECONDS or url in _warned:
        return None
    _warned.add(url)
    return (
        f"The clock shows {when(clock)}, {head_at - clock:.0f} s before the last event of the log: {_first_ahead(events, clock)} "
        "Time continues from the last event until the clock has caught up; check the clocks of all machines that build."
    )


def _first_ahead(events: EventQueries, clock: float) -> str:
    """The first event that the clock has not come to: the clock of the process that recorded it ran ahead, or this clock is slow."""
    ahead = events.after(events.seq_at(clock + LEASE_SECONDS), most=1)
    if not ahead:
        return "this one is slow."
    event = ahead[0]
    holder = getattr(event.fact, "holder", None) or getattr(event.fact, "owner", None)
    by = f"{event.actor}, {in_words(holder)}," if isinstance(holder, str) else event.actor
    return f"the clock of {by} ran ahead at event {event.seq}, {when(event.at)}, or this one is slow."


def forget_warned(url: str) -> None:
    """Let this process warn for a store once more."""
    _warned.discard(url)
