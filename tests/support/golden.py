"""A golden log: what one version of the code recorded, and the state that it saw in it, as text that a diff can show.

`log.jsonl` has the events as `databuild log events` prints them, times and payloads as stored; `tables.json` every row of
every table as that version computed it; `schema.sql` that version's DDL; `about.json` what the version knew. Together
they are the database that it left behind, and `restore` makes it again.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from databuild_dagster.store import schema

HERE = Path(__file__).parent.parent / "golden"

#: The folder of recorded homes, each with its warehouse beside the four files.
HOMES = "homes"

#: Where the project of a recorded home was. Versions before the first release recorded whole paths.
PROJECT = "/srv/shop"

#: What is recorded of the meta table. The id and the place of a store belong to one file, and a restored one has none.
VERSIONS = ("log_version", "projection_version")

ENVELOPE = ("seq", "at", "type", "version", "command_id", "actor", "payload")

Row = dict[str, Any]


class Golden(NamedTuple):
    """One recording, read."""

    version: str
    #: "event_types", "log_version", "projection_version", "events".
    about: dict[str, Any]
    #: With the payload as the text that was stored.
    log: list[Row]
    tables: dict[str, list[Row]]
    ddl: str


def versions() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/about.json"))


def read(version: str, root: Path = HERE) -> Golden:
    folder = root / version
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return Golden(
        version=version,
        about=json.loads((folder / "about.json").read_text()),
        log=[{**line, "payload": _stored(line["payload"])} for line in lines],
        tables=json.loads((folder / "tables.json").read_text()),
        ddl=(folder / "schema.sql").read_text(),
    )


def record(database: Path, version: str, root: Path = HERE) -> Path:
    """Write down what is in a database that some version of the code has made; its folder. Never over an older one."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        meta = dict(map(tuple, connection.execute(f"SELECT key, value FROM {schema.meta.name}")))
        log = [dict(row) for row in connection.execute(f"SELECT * FROM {schema.events.name} ORDER BY seq")]
        objects = [tuple(row) for row in connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY rowid")]
        projections = [name for kind, name, _ in objects if kind == "table" and name not in _LOG]
        tables = {name: _rows(connection, name) for name in sorted(projections)}
    about = {
        "version": version,
        "events": len(log),
        "event_types": sorted({event["type"] for event in log}),
        **{key: int(meta[key]) for key in VERSIONS},
    }
    folder = root / version
    folder.mkdir(parents=True)
    (folder / "about.json").write_text(json.dumps(about, indent=2) + "\n")
    (folder / "log.jsonl").write_text("".join(_line(event) for event in log))
    (folder / "tables.json").write_text(_one_row_a_line(tables))
    (folder / "schema.sql").write_text("".join(f"{sql.strip()};\n" for _, _, sql in objects if sql))
    return folder


def restore(golden: Golden, database: Path) -> None:
    """The database as that version left it."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(golden.ddl)
        _insert(connection, schema.meta.name, [{"key": key, "value": str(golden.about[key])} for key in VERSIONS])
        _insert(connection, schema.events.name, golden.log)
        for table, rows in golden.tables.items():
            _insert(connection, table, rows)


def homes() -> list[str]:
    return sorted(path.parent.name for path in (HERE / HOMES).glob("*/about.json"))


def restore_home(version: str, project: Path) -> Path:
    """The home of a version below a folder, as if its project had always been there."""
    home = project / ".dagster_home"
    shutil.copytree(HERE / HOMES / version, home)
    for path in home.rglob("*.json*"):
        path.write_text(path.read_text().replace(PROJECT, str(project)))
    restore(read(home.name, project), home / "databuild.db")
    shutil.copy(HERE / HOMES / "definitions.py", project)
    (project / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n")
    return home


_LOG = (schema.meta.name, schema.events.name)


def _rows(connection: sqlite3.Connection, table: str) -> list[Row]:
    key = [name for *_, name in _primary_key(connection, table)]
    return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY {', '.join(key)}")]


def _primary_key(connection: sqlite3.Connection, table: str) -> list[tuple[int, str]]:
    columns = connection.execute("SELECT pk, name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return [tuple(column) for column in columns]


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    for row in rows:
        marks = ", ".join(f":{name}" for name in row)
        connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", row)


def _stored(payload: Row) -> str:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def _line(event: Row) -> str:
    payload = json.loads(event["payload"])
    assert _stored(payload) == event["payload"], f"seq {event['seq']} does not come out as it went in"
    return json.dumps({**{name: event[name] for name in ENVELOPE}, "payload": payload}, ensure_ascii=False) + "\n"


def _one_row_a_line(tables: dict[str, list[Row]]) -> str:
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for name, rows in tables.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"
