"""The last event of each log that processes of a home have seen, in a file outside the database (decision 0062).

A log that went back, to a replica that lagged or to a restored copy, does not show it by itself. The file says so to processes
that begin later. A home that was copied has another folder, so that the file of the original says nothing there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

import msgspec

#: The file in a home.
WITNESS_NAME = "databuild.seen"
#: Logs that the file has; a take-over begins another log.
MOST_LOGS = 20


class Mark(NamedTuple):
    """An event of a log: its place, and the id of its command, which no other event has (rule 3.1)."""

    seq: int
    command_id: str


#: Of a process that has seen no event.
NOTHING_SEEN = Mark(0, "")


class _Witness(msgspec.Struct):
    folder: int
    #: By the ids of their stores, the last noted one at the end.
    logs: dict[str, Mark]


class Witness:
    """The file of one home and one store."""

    def __init__(self, home: str, store_id: str) -> None:
        self._home = home
        self._path = os.path.join(home, WITNESS_NAME)
        self._store_id = store_id

    def last_seen(self) -> Mark:
        return self._read().logs.get(self._store_id, NOTHING_SEEN)

    def note(self, mark: Mark) -> None:
        """Note the last event that a process has seen. A home that cannot be written has no witness."""
        with suppress(OSError):
            logs = self._read().logs
            before = logs.pop(self._store_id, NOTHING_SEEN)
            logs[self._store_id] = max(before, mark, key=lambda seen: seen.seq)
            kept = dict(list(logs.items())[-MOST_LOGS:])
            new = f"{self._path}.{os.getpid()}"
            with open(new, "wb") as file:
                file.write(msgspec.json.encode(_Witness(os.stat(self._home).st_ino, kept)))
            os.replace(new, self._path)

    def _read(self) -> _Witness:
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError), open(self._path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_Witness)
            if found.folder == os.stat(self._home).st_ino:
                return found
        return _Witness(0, {})
