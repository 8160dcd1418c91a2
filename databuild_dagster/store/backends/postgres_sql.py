"""PostgreSQL's spelling of the store's statements: a table of rules, applied in order, once per statement.

Text between quotes is data and stays as it is.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from databuild_dagster.store import schema


class Bulk(NamedTuple):
    """A statement for many rows: an array for each parameter, and the types of their elements."""

    sql: str
    types: tuple[str, ...]
    #: Places of the parameters that name a row. Two writes of a row depend on their order, so a statement cannot have both.
    #: Empty for new rows.
    key: tuple[int, ...] = ()


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    spelling: str


def _rule(pattern: str, spelling: str) -> _Rule:
    return _Rule(re.compile(pattern), spelling)


_PERCENT = _rule(r"%", "%%")

_RULES = (
    # Many keys are an array.
    _rule(r"NOT IN \(SELECT value FROM json_each\((\?|:\w+)\)\)", r"<> ALL(\1)"),
    _rule(r"IN \(SELECT value FROM json_each\((\?|:\w+)\)\)", r"= ANY(\1)"),
    # The first rows for each row of a join: a list that is not an array would be computed for each pair.
    _rule(r"IN \(SELECT \* FROM \(", "= ANY(ARRAY("),
    # A comparison in which NULL equals NULL.
    _rule(r"\bIS NOT (?!NULL\b|DISTINCT\b)", "IS DISTINCT FROM "),
    _rule(r"\bIS (?!NOT\b|NULL\b|DISTINCT\b)", "IS NOT DISTINCT FROM "),
    # CROSS JOIN is SQLite's order of joins; PostgreSQL plans its own.
    _rule(r"\bCROSS JOIN\b", "JOIN"),
    # A bound for PostgreSQL's plan alone: SQLite would take it for its index, in the place of a narrower one.
    _rule(r"\(\+([\w.]+)\)", r"\1"),
    # A list as JSON text.
    _rule(r"json_group_array\(([\w.]+)\)", r"coalesce(json_agg(\1)::text, '[]')"),
    # Parameters without and with names.
    _PERCENT,
    _rule(r"\?", "%s"),
    _rule(r"(?<![:\w]):(\w+)", r"%(\1)s"),
)

_QUOTED = re.compile(r"('(?:[^']|'')*')")

_INSERT = re.compile(r"INSERT INTO (\w+) \(([^)]*)\) VALUES \(([^)]*)\)$")
_UPDATE = re.compile(r"UPDATE (\w+) SET (\w+ = \?(?:, \w+ = \?)*) WHERE (\w+ = \?(?: AND \w+ = \?)*)$")

_TYPES: dict[type[sa.types.TypeEngine[Any]], str] = {sa.Integer: "bigint", sa.Float: "float8", sa.Text: "text"}


@lru_cache(maxsize=4096)
def translated(sql: str) -> str:
    """The statement in PostgreSQL's spelling, with psycopg's parameters."""
    parts = _QUOTED.split(sql)
    for place, part in enumerate(parts):
        # psycopg reads percent signs within quotes too.
        rules = (_PERCENT,) if place % 2 else _RULES
        for rule in rules:
            part = rule.pattern.sub(rule.spelling, part)
        parts[place] = part
    return "".join(parts)


@lru_cache(maxsize=4096)
def in_bulk(sql: str) -> Bulk | None:
    """The statement for many rows; None if its rows have to be written row by row."""
    if (found := _INSERT.match(sql)) is not None:
        table, listed, marks = found.groups()
        names = listed.split(", ")
        given = [name for name, mark in zip(names, marks.split(", "), strict=True) if mark == "?"]
        values = [name if mark == "?" else mark for name, mark in zip(names, marks.split(", "), strict=True)]
        types = _types(table, given)
        return Bulk(f"INSERT INTO {table} ({listed}) SELECT {', '.join(values)} FROM {_unnest(types, given)}", types)
    if (found := _UPDATE.match(sql)) is not None:
        table, assignments, conditions = found.groups()
        assigned = [assignment.removesuffix(" = ?") for assignment in assignments.split(", ")]
        asked = [condition.removesuffix(" = ?") for condition in conditions.split(" AND ")]
        names = [*(f"new_{name}" for name in assigned), *(f"old_{name}" for name in asked)]
        types = _types(table, [*assigned, *asked])
        news = ", ".join(f"{name} = v.new_{name}" for name in assigned)
        olds = " AND ".join(f"t.{name} = v.old_{name}" for name in asked)
        key = tuple(len(assigned) + place for place, name in enumerate(asked) if name not in assigned)
        return Bulk(f"UPDATE {table} AS t SET {news} FROM {_unnest(types, names)} WHERE {olds}", types, key)
    return None


def _unnest(types: Sequence[str], names: Sequence[str]) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for kind in types)
    return f"unnest({arrays}) AS v({', '.join(names)})"


def _types(table: str, names: Sequence[str]) -> tuple[str, ...]:
    columns = schema.metadata.tables[table].columns
    return tuple(next(word for kind, word in _TYPES.items() if isinstance(columns[name].type, kind)) for name in names)
