"""A small Spark server of a single process, for tests and scripts; it ends with the process, and its folder is removed."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.spark.server import check_owner, stop_server
from databuild_dagster.spark.settings import SparkMode, SparkSettings, is_set_by_session

#: For small frames, without a UI: it starts sooner, and every shuffle is two tasks.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}
_MASTER = "local[2]"
#: This environment variable, which the pytest plugin sets, names the mode of temporary sessions: `shared` or `sail`.
TEST_SPARK: Final = "DATABUILD_TEST_SPARK"

#: A file that the folder's process holds locked until it ends, however it ends.
_OWNER = "owner.lock"
#: By process id and prefix: a forked child needs its own.
_folders: dict[tuple[int, str], str] = {}
_lock = Lock()


def temporary(settings: SparkSettings) -> SparkSettings:
    """The same settings for a small server of this process; the sessions of other modes end with the process anyway.

    `TEST_SPARK` puts Sail in the place of a shared server; settings that are fixed when Spark starts are left out then.
    """
    if SparkMode(settings.mode) is SparkMode.SHARED and os.environ.get(TEST_SPARK) == SparkMode.SAIL:
        config = {key: value for key, value in {**SMALL, **settings.config}.items() if is_set_by_session(key)}
        settings = replace(settings, mode=SparkMode.SAIL, config=config)
    if settings.is_sail:
        return replace(settings, home=temporary_home())
    if SparkMode(settings.mode) is not SparkMode.SHARED:
        return settings
    return replace(settings, home=temporary_home(), master=_MASTER, config={**SMALL, **settings.config})


def temporary_home() -> str:
    """The folder of this process's servers, which are stopped when it ends."""
    return folder_of_process("databuild-spark-", stop_server)


def folder_of_process(prefix: str, at_end: Callable[[str], object] = lambda folder: None) -> str:
    """A temporary folder of this process, the same at each call; removed when it ends, after `at_end`.

    The folders of killed processes are removed in the same way.
    """
    key = (os.getpid(), prefix)
    with _lock:
        if key not in _folders:
            _remove_abandoned(prefix, at_end)
            folder = tempfile.mkdtemp(prefix=prefix)
            # It has its name once it is locked: a file of that name without a lock has lost its process.
            unnamed = os.path.join(folder, "new")
            descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.rename(unnamed, os.path.join(folder, _OWNER))
            _folders[key] = folder
            atexit.register(_end, key, at_end)
        return _folders[key]


def _remove_abandoned(prefix: str, at_end: Callable[[str], object]) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_OWNER}"):
        # Another user's, or being removed by another process.
        with suppress(OSError, DatabuildError):
            check_owner(path.parent)
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                at_end(str(path.parent))
                _remove(str(path.parent))


def _end(key: tuple[int, str], at_end: Callable[[str], object]) -> None:
    if os.getpid() == key[0] and (folder := _folders.pop(key, None)) is not None:
        at_end(folder)
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder at once: the process beside a server may make a lock file there until it finds that the folder is gone."""
    gone = f"{folder}.gone"
    with suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
