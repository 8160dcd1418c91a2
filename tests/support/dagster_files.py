"""Dagster creates its SQLite files once per process; tests get copies of them.

Dagster keeps the events of every run in a file of its own, whose tables Alembic creates: 0.1 s of processor per run, half
of the cost of a run of one small asset. A fresh home costs 0.25 s. A copy has the same bytes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import dagster as dg
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

_make = SqliteEventLogStorage._initdb
_read_scripts = ScriptDirectory.from_config


def copy_dagster_files() -> None:
    """From now on the file of a run is a copy, and Alembic reads Dagster's migrations once. Idempotent."""
    SqliteEventLogStorage._initdb = _copy_or_make  # type: ignore[method-assign,assignment]
    ScriptDirectory.from_config = _known_scripts  # type: ignore[method-assign]


@contextmanager
def fresh_instance(home: str | Path | None = None, **options: Any) -> Iterator[dg.DagsterInstance]:
    """An instance as of `dagster.instance_for_test`, on a copy of a home: of one whose tables are empty, or of the given one."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copied = Path(folder, "home")
        shutil.copytree(home or _empty_home(), copied)
        with dg.instance_for_test(temp_dir=str(copied), **options) as instance:
            yield instance


def _copy_or_make(storage: SqliteEventLogStorage, engine: Engine, for_index_shard: bool = False) -> None:
    path = engine.url.database
    assert path is not None
    if for_index_shard or os.path.exists(path):
        return _make(storage, engine, for_index_shard)
    copied = f"{path}.{os.getpid()}"
    Path(copied).write_bytes(_file_of_a_run(storage))
    try:
        os.link(copied, path)
    except FileExistsError:
        return _make(storage, engine)
    finally:
        os.unlink(copied)


_file: list[bytes] = []


def _file_of_a_run(storage: SqliteEventLogStorage) -> bytes:
    if not _file:
        with TemporaryDirectory() as folder:
            path = Path(folder, "run.db")
            # SQLite removes the write-ahead log when the last connection closes.
            engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
            _make(storage, engine)
            engine.dispose()
            _file.append(path.read_bytes())
    return _file[0]


@cache
def _empty_home() -> str:
    home = mkdtemp()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with dg.instance_for_test(temp_dir=home) as instance:
        instance.get_runs(limit=1)
    for file in Path(home).rglob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return home


_scripts: dict[str | None, ScriptDirectory] = {}


def _known_scripts(config: Config) -> ScriptDirectory:
    place = config.get_main_option("script_location")
    if place not in _scripts:
        _scripts[place] = _read_scripts(config)
    return _scripts[place]
