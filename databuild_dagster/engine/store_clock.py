"""The clock of a log: its server's, or this machine's where the log is a file of this machine (decision 0061).

Several hosts share a log on a server, and any of their clocks may be wrong. The server's is the one clock that all of them can read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.wording import when
from databuild_dagster.model.logs import logger
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.errors import StoreUnusable

#: A machine's clock may differ by so much and is used as it is: Dagster's records and files have its times.
TOLERATED_SECONDS: Final = 1.0
#: The server's clock is read again after so long, and when this machine's was set or the machine was suspended.
AGAIN_SECONDS: Final = 600.0

#: The stores for which this process has warned of its clock.
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
        elif abs(ahead) > LEASE_SECONDS and self._url not in _warned:
            _warned.add(self._url)
            _log.warning(
                "databuild: This machine's clock shows %s, and that of the database server %s. The server's time is used; set "
                "the clock of the one that is wrong.",
                when(wall),
                when(server),
            )
        return _Reading(wall, self._steady(), ahead)
