"""What a database is made of beside its rows, and what of it is gone: tables, indexes, views, triggers.

Nothing works wrongly at once without an index or a trigger. So it is `check` that has to say so, and `rebuild` that
puts it back: tables, indexes and views because it makes them again, the log's triggers by `guard_log`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from databuild_dagster.store import schema
from databuild_dagster.store.backends.base import Connection, Database
from databuild_dagster.store.invariants import Violation

_CREATE = re.compile(r"\s*CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW|TRIGGER) (?:IF NOT EXISTS )?(\w+)(?:.* ON (\w+))?")
_REBUILD = "run `databuild log rebuild`, which makes it anew"
#: What it means when one of a kind is gone, and what to do.
_GONE = {
    "table": f"is gone, and is computed from the log: {_REBUILD}",
    "index": f"is gone, so what it is for is slow: {_REBUILD}",
    "view": f"is gone, so tools that read it fail: {_REBUILD}",
    "trigger": f"is gone, so nothing keeps others from changing the log: {_REBUILD}, and look at who may write to the database",
}
_LOG_GONE = "is gone, and cannot be computed from anything: put the last copy of the database in its place"


class _Part(NamedTuple):
    kind: str
    name: str
    #: Of an index and a trigger, which go with it.
    table: str | None
    sql: str


def lacking(database: Database, connection: Connection) -> list[Violation]:
    """Parts that are gone, or say something else than ours do."""
    present = database.parts(connection)
    found = []
    for part in _parts(database):
        sql = present.get((part.kind, part.name))
        if part.table is not None and ("table", part.table) not in present:
            continue
        if sql is None:
            found.append(Violation("SPEC 3.1", part.name, _LOG_GONE if _is_log(part) else _GONE[part.kind]))
        elif sql and part.kind in ("view", "trigger") and _plain(sql) != _plain(part.sql):
            found.append(Violation("SPEC 3.1", part.name, f"this {part.kind} was changed: {_REBUILD}"))
        elif part.name in schema.metadata.tables and (columns := _lacking_columns(database, connection, part.name)):
            names = ", ".join(columns)
            what_to_do = _LOG_GONE if _is_log(part) else _GONE["table"]
            found.append(Violation("SPEC 3.1", part.name, f"its column {names} {what_to_do}"))
    return found


def guard_log(database: Database, connection: Connection) -> None:
    """Put the log's triggers in place: gone ones, changed ones, and those that an older version did not have."""
    for statement in schema.GUARDS[database.dialect]:
        connection.execute(statement)


def _parts(database: Database) -> tuple[_Part, ...]:
    """As the DDL makes them."""
    found = ((_CREATE.match(statement), statement) for statement in database.ddl())
    return tuple(_Part(match[1].lower(), match[2], match[3], statement) for match, statement in found if match)


def _is_log(part: _Part) -> bool:
    return part.name in (schema.events.name, schema.meta.name)


def _lacking_columns(database: Database, connection: Connection, table: str) -> list[str]:
    present = database.columns(connection, table)
    return [column.name for column in schema.metadata.tables[table].columns if column.name not in present]


def _plain(sql: str) -> str:
    return " ".join(sql.split())
