"""The cursors of followers, kept where Dagster's daemon keeps its own: all processes of a deployment share them."""

import msgspec
from dagster import DagsterInstance

from databuild_dagster.engine.follower import AnyCursor, Cursor

_PREFIX = "databuild/"


class DagsterCursors:
    """A `CursorStorage` in a Dagster instance."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance

    def load(self, name: str, kind: type[AnyCursor]) -> AnyCursor | None:
        key = _PREFIX + name
        kept = self._instance.daemon_cursor_storage.get_cursor_values({key}).get(key)
        return None if kept is None else msgspec.json.decode(kept, type=kind)

    def store(self, name: str, cursor: Cursor) -> None:
        text = msgspec.json.encode(cursor).decode()
        self._instance.daemon_cursor_storage.set_cursor_values({_PREFIX + name: text})
