"""Whose a folder of Spark servers is, and whose a server: another user's could neither be trusted nor write for this one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from databuild_dagster.spark.errors import ServerOfAnotherUser, StrangeFolder
from databuild_dagster.store.processes import PROCESSES


def check_owner(folder: Path) -> None:
    """Raise `StrangeFolder` for a folder of the temp folder that another user prepared, with a server of theirs in it."""
    with suppress(FileNotFoundError):
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            raise StrangeFolder(folder=folder, why="it is a link or a file")
        if found.st_uid != os.getuid():
            raise StrangeFolder(folder=folder, why=f"it belongs to the user with id {found.st_uid}")


def check_usable(folder: Path) -> None:
    """Raise `StrangeFolder` for a folder that this process may not use, such as another user's."""
    with suppress(FileNotFoundError):
        owner = os.stat(folder).st_uid
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise StrangeFolder(folder=folder, why=f"it belongs to the user with id {owner}")


def check_server(folder: Path, pid: int) -> None:
    """Raise `ServerOfAnotherUser` for a server that would write into folders which this process makes."""
    theirs = PROCESSES.user_of(pid)
    # Without an answer it has ended.
    if theirs is not None and theirs != os.getuid():
        raise ServerOfAnotherUser(folder=folder, pid=pid, theirs=theirs, ours=os.getuid())
