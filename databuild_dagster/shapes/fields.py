"""Records, times and errors as JSON has them (rules 15)."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from databuild_dagster.engine import wording
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.records import Time

T = TypeVar("T")
#: Values of rows, whose readers give them their text.
_NO_RECORDS: Final = (bytes, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)


def when(at: float | None) -> str | None:
    """A time as people and programs read it: ISO 8601, UTC, to the second."""
    return None if at is None else wording.when(at)


def json_of(value: Any) -> Any:
    """Records, however deep in lists and dictionaries, as JSON has them."""
    return msgspec.to_builtins(value, enc_hook=encoded, builtin_types=_NO_RECORDS)


def encoded(value: object) -> str:
    """What JSON has no type for."""
    return wording.when(value) if isinstance(value, Time) else str(value)


def schema_of(kind: type) -> dict[str, str]:
    """The JSON schema of what `encoded` makes."""
    return {"type": "string"}


def extended(kind: type[T], *records: object, **others: object) -> T:
    """A record of type `kind`: `others` are its fields; any further field is an attribute of the first record that has it."""
    own: dict[str, object] = {}
    for record in reversed(records):
        own |= {name: getattr(record, name) for name in get_type_hints(kind) if hasattr(record, name)}
    return kind(**(own | others))


def error_as_json(error: DatabuildError) -> dict[str, str]:
    """An error as JSON has it."""
    return {"type": type(error).__name__, "message": error.message, "hint": error.advice}
