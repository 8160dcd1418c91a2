"""A small Spark server of one process, for tests and scripts; it ends with the process, and its folder is removed."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from threading import Lock

from databuild_dagster.spark.server import stop_server
from databuild_dagster.spark.settings import SparkMode, SparkSettings

#: For small frames, without a UI: it starts sooner, and every shuffle is two tasks.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}
_MASTER = "local[2]"

#: By process id and prefix: a forked child needs its own.
_folders: dict[tuple[int, str], str] = {}
_lock = Lock()


def temporary(settings: SparkSettings) -> SparkSettings:
    """The same settings for a small server of this process; other modes than `shared` end with the process anyway."""
    if SparkMode(settings.mode) is not SparkMode.SHARED:
        return settings
    return replace(settings, home=temporary_home(), master=_MASTER, config={**SMALL, **settings.config})


def temporary_home() -> str:
    """The folder of this process's servers, which are stopped when it ends."""
    return folder_of_process("databuild-spark-", stop_server)


def folder_of_process(prefix: str, at_end: Callable[[str], object] = lambda folder: None) -> str:
    """A temporary folder of this process, the same at each call; removed when it ends, after `at_end`."""
    key = (os.getpid(), prefix)
    with _lock:
        if key not in _folders:
            _folders[key] = tempfile.mkdtemp(prefix=prefix)
            atexit.register(_end, key, at_end)
        return _folders[key]


def _end(key: tuple[int, str], at_end: Callable[[str], object]) -> None:
    if os.getpid() == key[0] and (folder := _folders.pop(key, None)) is not None:
        at_end(folder)
        shutil.rmtree(folder, ignore_errors=True)
