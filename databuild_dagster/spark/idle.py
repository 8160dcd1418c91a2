"""Ends a local Spark server that nothing has used for some time: `python -m databuild_dagster.spark.idle FOLDER`.

The process is beside each server. It ends the server while it holds the lock of the clients alone: a process that attaches meanwhile
waits for this lock, finds no server then, and starts one. In the first quiet minute it lets Spark's classes be archived.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from databuild_dagster.spark import server

POLL_SECONDS = 2.0
#: A server that nothing has used for this long can bear the archiving beside it.
QUIET_SECONDS = 60.0


def watch(folder: Path) -> None:
    """Return when the server of the folder has ended, by itself or because it was idle or the folder was removed."""
    known = server.load(folder)
    with suppress(FileNotFoundError):
        _watch(folder)
    # No process can find the server of a home that was removed.
    if known is not None and not folder.exists():
        server.end(known)


def _watch(folder: Path) -> None:
    archiving: subprocess.Popen[bytes] | None = None
    # Its starter may have ended already, long after it attached.
    server.note_use(folder)
    while (record := server.load(folder)) is not None and server.is_running(record):
        with server.if_without_clients(folder) as without_clients:
            idle_seconds = server.seconds_without_use(folder) if without_clients else server.note_use(folder)
            if 0 < record.idle_seconds <= idle_seconds:
                server.stop(folder)
                return
        lacks_archive = bool(record.archive) and not os.path.exists(record.archive)
        if lacks_archive and archiving is None and idle_seconds >= QUIET_SECONDS:
            command = [sys.executable, "-m", "databuild_dagster.spark.class_archive", record.archive]
            archiving = subprocess.Popen(command, start_new_session=True)
        time.sleep(min(POLL_SECONDS, record.idle_seconds / 4 or POLL_SECONDS))


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
