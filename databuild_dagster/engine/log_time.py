"""What time it is for whatever the log decides: never before its last event, and going on from there (SPEC 3.1).

Times in the log never go back; clocks do. A single command by a clock that ran ahead leaves the log ahead of every clock
once that one is set right. The clock alone would let retries and ends of wants, which are counted from the log's times,
wait for as long as it was ahead; the log's last time alone would stand still until something happens. So time goes on
from there, by what a clock measures that nobody sets.

| the clock is                    | now is                                                                        |
|---------------------------------|-------------------------------------------------------------------------------|
| not before the log's last event | the clock                                                                     |
| less than a second before it    | that event's time: two machines never quite agree                             |
| further behind                  | that event's time and most of what has passed since, until the clock is there |

It goes a little slower than the clock, so that the clock comes up with it and nothing stays ahead for ever. How far it has
come is noted beside the heartbeats by whoever ticks, for processes that begin later: what they want may not have expired
at birth. Only where the clock is behind is any of this looked at. Who asks the machine alone (heartbeats, what Dagster
has recorded, files) asks the clock.
"""

from __future__ import annotations

import logging

from databuild_dagster.engine.holders import this_machine
from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.wording import when
from databuild_dagster.store.backends.heartbeats import Heartbeats

#: So far behind the log a clock may be without anybody seeing to it.
TOLERATED_SECONDS = 1.0
#: Seconds of the log for each that passes, while the clock comes up.
PACE = 0.9

#: Up to where the time of the log has come, for any machine, and for this one since it started.
_SHARED = "time of the log"
_OWN = f"time of the log since the start of {'/'.join(this_machine())}"

#: The stores of whose log this process has warned that the clock is behind it.
_warned: set[str] = set()
_log = logging.getLogger(__name__)


class LogTime:
    """Of one log, as one process sees it."""

    def __init__(self, heartbeats: Heartbeats, url: str) -> None:
        self._heartbeats = heartbeats
        self._url = url
        #: What is to be added to the time measured here; None while the clock is not behind.
        self._ahead: float | None = None

    def now(self, head_at: float, clock: float, steady: float) -> float:
        """The time, where the log ends at `head_at`; `steady` goes on evenly, from anywhere."""
        ahead, passed = self._ahead, steady * PACE
        if ahead is None:
            if head_at - clock <= TOLERATED_SECONDS:
                return max(clock, head_at)
            ahead = self._noted(passed)
            if said := clock_is_behind(self._url, head_at, clock):
                _log.warning("databuild: %s", said)
        ahead = max(ahead, head_at - passed)
        now = max(clock, head_at, passed + ahead)
        self._ahead = ahead if now > clock else None
        return now

    def note(self, now: float) -> None:
        """For those who look for the first time, where the clock is behind."""
        if (ahead := self._ahead) is not None:
            self._heartbeats.beat([_SHARED], now)
            self._heartbeats.beat([_OWN], ahead)

    def _noted(self, passed: float) -> float:
        noted = self._heartbeats.last([_SHARED, _OWN])
        return max(noted.get(_SHARED, 0.0) - passed, noted.get(_OWN, -passed))


def clock_is_behind(url: str, head_at: float, clock: float) -> str | None:
    """A sentence for people if the clock is behind the log by more than a lease; once for each process and store."""
    if head_at - clock <= LEASE_SECONDS or url in _warned:
        return None
    _warned.add(url)
    return (
        f"This machine's clock says {when(clock)}, {head_at - clock:.0f} s before the last event of the log: some clock "
        "ran ahead, or this one is slow. Time goes on from that event until the clock has come up with it; look at the "
        "clocks of all machines that build."
    )


def forget_warned(url: str) -> None:
    """Have this process warn of a store's clock once more."""
    _warned.discard(url)
