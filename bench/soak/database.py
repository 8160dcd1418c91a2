"""A PostgreSQL server that is away for some seconds: its postmaster is killed, or all of its processes are frozen."""

import signal
import time

from tests.support.postgres import PostgresServer


class Database:
    """One server and one schema. A trouble ends by `mend`, when its time is over."""

    def __init__(self) -> None:
        self.server = PostgresServer(durable=True)
        self.url = self.server.fresh_url()
        self._is_frozen = False
        self._until: float | None = None

    @property
    def is_well(self) -> bool:
        return self._until is None

    def kill(self, seconds: float) -> int:
        """The process that was hit."""
        pid = self.server.kill()
        self._is_frozen, self._until = False, time.monotonic() + seconds
        return pid

    def freeze(self, seconds: float) -> int:
        pid = self.server.signal(signal.SIGSTOP)
        self._is_frozen, self._until = True, time.monotonic() + seconds
        return pid

    def mend(self) -> bool:
        """Whether a trouble ended now."""
        if self._until is None or time.monotonic() < self._until:
            return False
        if self._is_frozen:
            self.server.signal(signal.SIGCONT)
        else:
            self.server.start_again()
        self._until = None
        return True

    def stop(self) -> None:
        if not self.is_well and self._is_frozen:
            self.server.signal(signal.SIGCONT)
        self.server.stop()
