"""A small Spark server of one process, for tests and scripts; it ends with the process, and its folder is removed."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
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

#: By process id: a forked child needs its own.
_homes: dict[int, str] = {}
_lock = Lock()


def temporary(settings: SparkSettings) -> SparkSettings:
    """The same settings for a small server of this process; other modes than `shared` end with the process anyway."""
    if SparkMode(settings.mode) is not SparkMode.SHARED:
        return settings
    return replace(settings, home=temporary_home(), master=_MASTER, config={**SMALL, **settings.config})


def temporary_home() -> str:
    """The folder of this process's servers, which are stopped when it ends."""
    with _lock:
        pid = os.getpid()
        if pid not in _homes:
            _homes[pid] = tempfile.mkdtemp(prefix="databuild-spark-")
            atexit.register(_end, pid)
        return _homes[pid]


def _end(pid: int) -> None:
    if os.getpid() == pid and (home := _homes.pop(pid, None)) is not None:
        stop_server(home)
        shutil.rmtree(home, ignore_errors=True)
