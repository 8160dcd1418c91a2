"""The processes of one home: found by their environment, killed, frozen and thawed."""

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, LEASE_SECONDS

#: The shortest and the longest freeze. The last heartbeat before it may be one interval old.
FREEZE_SECONDS = (LEASE_SECONDS + HEARTBEAT_SECONDS + 5.0, 2 * LEASE_SECONDS + 5.0)


class Kind(NamedTuple):
    """One kind of process, how often it is chosen, and the words by which it is known."""

    name: str
    weight: int
    words: tuple[str, ...]


RUN_WORKER, DAEMON, WEB, PROXY, CODE, SPARK, COMMAND = KINDS = (
    Kind("run worker", 10, ("multiprocessing.spawn",)),
    Kind("daemon", 2, ("databuild_dagster.bindings.adapter.dev_logs",)),
    Kind("web server", 1, ("databuild_dagster", "dev", "--no-daemon")),
    Kind("code server's proxy", 1, ("code-server", "start")),
    Kind("code server", 3, ("api", "grpc")),
    Kind("Spark server", 5, ("SparkConnectServer",)),
    Kind("command line", 6, ("databuild_dagster",)),
)
SERVICES = (DAEMON, WEB, PROXY, CODE)
DEV = Kind("dagster dev", 0, ("databuild_dagster.bindings.adapter.dagster_web",))


@dataclass(frozen=True)
class Freeze:
    """A process that is stopped from `since` until `until`, in seconds since the epoch."""

    kind: Kind
    pid: int
    since: float
    until: float
    descriptor: int


class Processes:
    """All that was started here, directly or not: no other process has this home."""

    def __init__(self, home: Path, choose: random.Random) -> None:
        self._mark = f"DAGSTER_HOME={home}\0".encode()
        self._random = choose
        self.frozen: list[Freeze] = []
        #: Of each process that was frozen, the first time.
        self.since: dict[int, float] = {}

    def find(self, kind: Kind | None = None) -> list[int]:
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if self._is_ours(pid) and kind_of(words) is not None and kind in (None, kind_of(words)):
                    found.append(pid)
        return found

    def kill(self, kind: Kind | None, *, all_of_them: bool = True) -> list[int]:
        """SIGKILL for all of a kind, or for one of them. Returns the processes that got it."""
        pids = self.find(kind)
        if pids and not all_of_them:
            pids = [self._random.choice(sorted(pids))]
        killed = {pid: self._sent(pid, signal.SIGKILL) for pid in pids}
        for descriptor in filter(None, killed.values()):
            os.close(descriptor)
        return [pid for pid, descriptor in killed.items() if descriptor is not None]

    def freeze(self, kind: Kind, seconds: float) -> list[int]:
        """SIGSTOP for one of a kind, for so long. Returns the process, if there is one."""
        pids = set(self.find(kind)) - {freeze.pid for freeze in self.frozen}
        if not pids or (descriptor := self._sent(pid := self._random.choice(sorted(pids)), signal.SIGSTOP)) is None:
            return []
        now = time.time()
        self.since.setdefault(pid, now)
        self.frozen.append(Freeze(kind, pid, now, now + seconds, descriptor))
        return [pid]

    def thaw(self) -> list[Freeze]:
        """SIGCONT for the processes whose time is over. Returns them; a process that was killed meanwhile stays dead."""
        due = [freeze for freeze in self.frozen if freeze.until < time.time()]
        self.frozen = [freeze for freeze in self.frozen if freeze not in due]
        for freeze in due:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(freeze.descriptor, signal.SIGCONT)
            os.close(freeze.descriptor)
        return due

    def _sent(self, pid: int, number: int) -> int | None:
        """An open descriptor of the process that got the signal; None if it has ended."""
        # By a descriptor: between the look and the signal the id may have become another's.
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                if self._is_ours(pid):
                    signal.pidfd_send_signal(descriptor, number)
                    return descriptor
            except OSError:
                pass
            os.close(descriptor)
        return None

    def _is_ours(self, pid: int) -> bool:
        return self._mark in Path(f"/proc/{pid}/environ").read_bytes() + b"\0"


def kind_of(command_line: str) -> Kind | None:
    """The kind of a process; None for helpers of others, which end with them."""
    words = command_line.split("\0")
    # The words of a command line are a part of those of `dagster dev`.
    for kind in (DEV, *KINDS):
        if all(any(word == item or (len(kind.words) == 1 and item in word) for word in words) for item in kind.words):
            return kind
    return None


def shuffled(choose: random.Random, kinds: Sequence[Kind]) -> list[Kind]:
    """By weight; those that follow are for when nothing of the first kind runs."""
    return sorted(kinds, key=lambda kind: choose.random() ** (1.0 / kind.weight), reverse=True)
