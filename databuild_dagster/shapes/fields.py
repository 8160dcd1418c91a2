"""The fields of a shape: attributes of a record, times, pauses and errors as JSON has them (rules 15)."""

from __future__ import annotations

import datetime
import decimal
from enum import Enum
from typing import Any, Final, TypeVar, cast, get_type_hints

import msgspec

from databuild_dagster.engine import wording
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.records import Time
from databuild_dagster.model.rows import NEVER, PauseRow

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


def extended(kind: type[T], record: object, **others: object) -> T:
    """A record of a kind: `others` are fields as they are, and attributes of a record all further ones."""
    names = get_type_hints(kind)
    return kind(**{name: others[name] if name in others else getattr(record, name) for name in names})


def picked(record: object, *names: str) -> dict[str, Any]:
    """These attributes of a record as JSON has them: the value of an enum, and a time (`…_at`) as text."""
    found = {name: getattr(record, name) for name in names}
    for name, value in found.items():
        if isinstance(value, Enum):
            found[name] = value.value
        elif name.endswith("_at"):
            found[name] = when(value)
    return found


def shaped(shape: type[T], record: object, **others: object) -> T:
    """A record in a shape: `others` are fields as they are, and the attributes of the record all further ones, as `picked`."""
    found = picked(record, *(name for name in shape.__annotations__ if name not in others)) | others
    return cast(T, {name: found[name] for name in shape.__annotations__})


def pause_as_dict(pause: PauseInForce | PauseRow) -> dict[str, Any]:
    """A pause as JSON has it; `until` is null without an end."""
    return {
        **picked(pause, "reason", "actor", "paused_at"),
        "until": None if pause.until == NEVER else when(pause.until),
    }


def error_as_json(error: DatabuildError) -> dict[str, str]:
    """An error as JSON has it."""
    return {"type": type(error).__name__, "message": error.message, "hint": error.advice}
