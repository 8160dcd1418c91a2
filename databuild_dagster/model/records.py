"""Parts of the records that people and programs read (rules 15), and of the commands that they give.

A noun is declared once, as a `msgspec.Struct`. Its fields in their order are its JSON; a field that a table shows has a `Column`.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.rows import NEVER

T = TypeVar("T")
#: Characters of a message that a table shows of it, and the sign that there is more.
MAX_MESSAGE: Final = 100
CUT: Final = "…"


class Time(float):
    """Seconds since 1970 UTC. JSON has it as ISO 8601, to the second."""


def time_of(at: float | None) -> Time | None:
    """A time as records have it; None for no time, and for a time that never comes."""
    return None if at is None or at == NEVER else Time(at)


def headline(message: str) -> str:
    """The beginning of a long message, with a sign that there is more."""
    first, *more = message.strip().splitlines() or [""]
    return f"{first[: MAX_MESSAGE - 1]}{CUT}" if more or len(first) > MAX_MESSAGE else first


class Column(NamedTuple):
    """A column of a table: it shows a field of the JSON records, so that JSON has all that the table has."""

    title: str = ""
    #: The field's name, by default the title with underscores.
    field: str = ""
    #: The text of the field's value, and the text without --wide.
    text: Callable[[Any], Any] | None = None
    narrow: Callable[[Any], Any] | None = None
    wide_only: bool = False
    #: The text where the record has null.
    none: str = "-"


def columns_of(record: type, *first: str) -> list[Column]:
    """The columns of a record's annotations: the fields `first`, then the other fields in their order."""
    found = [
        column._replace(title=column.title or name, field=name)
        for name, hint in get_type_hints(record, include_extras=True).items()
        for column in getattr(hint, "__metadata__", ())
    ]
    return sorted(found, key=lambda column: first.index(column.field) if column.field in first else len(first))


class Asked(NamedTuple):
    """A field that a person gives: an option, and a parameter of an action. `{refs}` in its sentence is the refs of the command."""

    kind: Literal["text", "number", "flag", "duration", "time"]
    sentence: str
    shown_default: str | None = None
    field: str = ""
    default: Any = None

    @property
    def name(self) -> str:
        return self.field.removesuffix("_seconds")


def asked_of(command: type[msgspec.Struct], *only: str) -> list[Asked]:
    """The fields of a command's annotations, or `only` some of them."""
    hints = get_type_hints(command, include_extras=True)
    return [
        asked._replace(field=field.name, default=field.default)
        for field in msgspec.structs.fields(command)
        for asked in getattr(hints[field.name], "__metadata__", ())
        if not only or field.name in only
    ]


def extended(kind: type[T], *records: object, **others: object) -> T:
    """A record of type `kind`: `others` are its fields; any further field is an attribute of the first record that has it."""
    own: dict[str, object] = {}
    for record in reversed(records):
        own |= {name: getattr(record, name) for name in get_type_hints(kind) if hasattr(record, name)}
    return kind(**(own | others))


def error_as_json(error: DatabuildError) -> dict[str, str]:
    """An error as JSON has it."""
    return {"type": type(error).__name__, "message": error.message, "hint": error.advice}
