"""The keys of Dagster's dynamic partitions, read from the file of a home without Dagster, whose import takes a second."""

import sqlite3
from contextlib import closing
from pathlib import Path

from databuild_dagster.data.home import moves_events


def dynamic_keys(home: Path, name: str) -> list[str] | None:
    """The keys of the definition of that name, the oldest first; None if only Dagster can read them."""
    if moves_events(home):
        return None
    try:
        url = f"{(home.absolute() / 'history' / 'runs' / 'index.db').as_uri()}?mode=ro"
        with closing(sqlite3.connect(url, uri=True)) as connection:
            sql = "SELECT partition FROM dynamic_partitions WHERE partitions_def_name = ? ORDER BY id"
            return [key for (key,) in connection.execute(sql, (name,))]
    except sqlite3.Error:
        return None
