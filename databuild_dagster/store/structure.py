"""Missing parts of a database: tables, indexes, views, triggers.

Without an index or a trigger no result is wrong at once, so `check` reports it. `rebuild` makes tables, indexes and views
again, and the log's triggers by `guard_log`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from databuild_dagster.store import schema
from databuild_dagster.store.backends.base import Connection, Database
from databuild_dagster.store.format import EVENTS, META
from databuild_dagster.store.invariants import Violation

_CREATE = re.compile(r"\s*CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW|TRIGGER) (?:IF NOT EXISTS )?(\w+)(?:.* ON (\w+))?")
_REBUILD = "run `databuild log rebuild`, which makes it again"
#: By kind, the effect of a missing part and the remedy.
_GONE = {
    "table": f"is gone, and is computed from the log: {_REBUILD}",
    "index": f"is gone, so its queries are slow: {_REBUILD}",
    "view": f"is gone, so tools that read it fail: {_REBUILD}",
    "trigger": f"is gone, so the log is not protected against changes: {_REBUILD}, and check who may write to the database",
}
_LOG_GONE = "is gone, and cannot be computed: restore the last copy of the database"


class _Part(NamedTuple):
    kind: str
    name: str
    #: The table of an index or a trigger.
    table: str | None
    sql: str


def lacking(database: Database, connection: Connection) -> list[Violation]:
    """Parts that are gone or changed."""
    present = database.parts(connection)
    found = []
    for part in _parts(database):
        sql = present.get((part.kind, part.name))
        if part.table is not None and ("table", part.table) not in present:
            continue
        if sql is None:
            found.append(Violation("rule 3.1", part.name, _LOG_GONE if _is_log(part) else _GONE[part.kind]))
        elif sql and part.kind in ("view", "trigger") and _plain(sql) != _plain(part.sql):
            found.append(Violation("rule 3.1", part.name, f"this {part.kind} was changed: {_REBUILD}"))
        elif part.name in schema.metadata.tables and (columns := _lacking_columns(database, connection, part.name)):
            names = ", ".join(columns)
            what_to_do = _LOG_GONE if _is_log(part) else _GONE["table"]
            found.append(Violation("rule 3.1", part.name, f"its column {names} {what_to_do}"))
    return found


def guard_log(database: Database, connection: Connection) -> None:
    """Make the log's triggers that are gone, changed, or new since an older version."""
    for statement in schema.GUARDS[database.dialect]:
        connection.execute(statement)


def _parts(database: Database) -> tuple[_Part, ...]:
    """The parts that the DDL makes."""
    found = ((_CREATE.match(statement), statement) for statement in database.ddl())
    return tuple(_Part(match[1].lower(), match[2], match[3], statement) for match, statement in found if match)


def _is_log(part: _Part) -> bool:
    return part.name in (EVENTS, META)


def _lacking_columns(database: Database, connection: Connection, table: str) -> list[str]:
    present = database.columns(connection, table)
    return [column.name for column in schema.metadata.tables[table].columns if column.name not in present]


def _plain(sql: str) -> str:
    return " ".join(sql.split())
