"""The parameters of a url: their types, their bounds, and a sentence for an invalid value."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from databuild_dagster.engine.wording import TIME, seconds_of, time_from, time_of
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.records import Asked
from databuild_dagster.model.refs import MAX_REF_BYTES, parse_ref

#: Bytes of a query string.
MAX_QUERY_BYTES: Final = 4_096
#: Values of a parameter that may be given several times.
MAX_VALUES: Final = 500
MAX_TEXT: Final = MAX_REF_BYTES
MAX_SEQ: Final = 2**53
#: Of a whole number that a command takes, such as a priority.
MAX_NUMBER: Final = 1_000_000
_TRUE: Final = ("1", "true", "yes")
_FALSE: Final = ("0", "false", "no", "")


class QueryTooLong(InvalidRequest):
    """The query of this url has {value:,} bytes, which is not possible: at most {most:,} are read."""

    hint = "Leave out some of its filters."


class UnknownParameter(InvalidRequest):
    """{what} is {value!r}, which is not possible: this url has the parameters {names}."""

    hint = "Check its spelling; /databuild/api/v1/openapi.json describes every url."


class MissingParameter(InvalidRequest):
    """{what} is {value!r}, which is not possible: it is required."""

    hint = "Add it to the url."


class RepeatedParameter(InvalidRequest):
    """{what} is given {value:,} times, which is not possible: {most:,} at most."""

    hint = "/databuild/api/v1/openapi.json describes every url."


@dataclass(frozen=True)
class Parameter:
    """A parameter: how its text is read, and its schema in the OpenAPI document."""

    name: str
    description: str
    read: Callable[[str, str], Any]
    schema: Mapping[str, Any]
    default: Any = None
    required: bool = False
    #: Whether it may be given several times; its value is then a tuple.
    is_list: bool = False
    #: Whether its value in a body of JSON is any JSON; of a form, the value is the text of the JSON.
    is_json: bool = False


def read_parameters(parameters: Sequence[Parameter], query: Sequence[tuple[str, str]], n_bytes: int) -> dict[str, Any]:
    """The value of each parameter by its name. Raises `InvalidRequest`."""
    if n_bytes > MAX_QUERY_BYTES:
        raise QueryTooLong(what="the query", value=n_bytes, most=MAX_QUERY_BYTES)
    known = {parameter.name: parameter for parameter in parameters}
    texts: dict[str, str] = {}
    for name, text in query:
        if name not in known:
            raise UnknownParameter(what="a parameter", value=_shown(name), names=", ".join(known) or "(none)")
        if name in texts:
            raise RepeatedParameter(what=name, value=sum(name == other for other, _ in query), most=1)
        texts[name] = text
    found = {}
    for name, parameter in known.items():
        text = texts.get(name, "")
        if text == "" and parameter.required:
            raise MissingParameter(what=name, value=text)
        found[name] = parameter.default if text == "" else parameter.read(name, text)
    return found


def read_fields(parameters: Sequence[Parameter], fields: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The value of each parameter by its name; a name may be repeated only if its parameter is a list. Raises `InvalidRequest`."""
    known = {parameter.name: parameter for parameter in parameters}
    texts: dict[str, list[str]] = {}
    for name, value in fields:
        if name not in known:
            raise UnknownParameter(what="a field", value=_shown(name), names=", ".join(known))
        if value != "":
            texts.setdefault(name, []).append(value)
    found: dict[str, Any] = {}
    for name, parameter in known.items():
        given = texts.get(name, [])
        most = MAX_VALUES if parameter.is_list else 1
        if len(given) > most:
            raise RepeatedParameter(what=name, value=len(given), most=most)
        if not given and parameter.required:
            raise MissingParameter(what=name, value="")
        values = tuple(parameter.read(name, value) for value in given)
        if parameter.is_list:
            found[name] = values
        else:
            found[name] = values[0] if values else parameter.default
    return found


def text(name: str, description: str, *, required: bool = False, most: int = MAX_TEXT) -> Parameter:
    """Any text of so many characters at most."""
    schema = {"type": "string", "maxLength": most}
    return Parameter(name, description, lambda name, value: _text(name, value, most), schema, required=required)


def ref(name: str, description: str, *, required: bool = False) -> Parameter:
    """A partition ref."""
    schema = {"type": "string", "maxLength": MAX_TEXT, "examples": ["sales@2024-01-31"]}
    return Parameter(name, description, lambda name, value: parse_ref(_text(name, value)), schema, required=required)


def several(one: Parameter) -> Parameter:
    """The parameter, made to accept several values."""
    schema = {"type": "array", "items": dict(one.schema), "maxItems": MAX_VALUES}
    return replace(one, schema=schema, default=(), is_list=True)


def duration(name: str, description: str, default: float | None, shown_default: str | None = None) -> Parameter:
    """A span of time in seconds, such as 12h; None for `none`."""
    schema: dict[str, Any] = {"type": "string", "maxLength": 20, "examples": ["12h"]}
    if shown_default is not None:
        schema["default"] = shown_default
    return Parameter(name, description, _by(seconds_of), schema, default)


def moment_to_come(name: str, description: str) -> Parameter:
    """A time from now on, or its distance from now, as seconds since 1970 UTC."""
    return _moment(name, description, 1)


def moment_past(name: str, description: str) -> Parameter:
    """A time, or its distance from now into the past, as seconds since 1970 UTC."""
    return _moment(name, description, -1)


def _moment(name: str, description: str, direction: int) -> Parameter:
    schema = {"type": "string", "maxLength": 40, "examples": ["2026-11-21T14:00:00Z", "12h"]}
    return Parameter(name, description, _by(lambda value: time_from(value, time.time(), direction)), schema)


def asked(field: Asked) -> Parameter:
    """The parameter of a field that a person gives."""
    name, sentence = field.name, field.sentence.format(refs="the partitions")
    match field.kind:
        case "text":
            return replace(text(name, sentence), default=field.default)
        case "number":
            return number(name, sentence, field.default, -MAX_NUMBER, MAX_NUMBER)
        case "flag":
            return flag(name, sentence)
        case "duration":
            return duration(name, sentence, field.default, field.shown_default)
        case "time":
            schema = {"type": "string", "maxLength": 40, "examples": [TIME]}
            return Parameter(name, sentence, _by(time_of), schema, field.default)


def json_value(name: str, description: str) -> Parameter:
    """Any value of JSON; of a form its text."""
    return Parameter(name, description, _by(_parsed), {}, is_json=True)


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON.") from None


def _by(reader: Callable[[str], Any]) -> Callable[[str, str], Any]:
    """A reader that raises `ValueError` with a sentence."""

    def read(name: str, value: str) -> Any:
        try:
            return reader(value)
        except ValueError as error:
            raise InvalidRequest(what=name, value=_shown(value), why=str(error).removesuffix(".")) from None

    return read


def number(name: str, description: str, default: int | None, least: int, most: int) -> Parameter:
    """A whole number within bounds."""
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default

    def read(name: str, value: str) -> int:
        digits = value.removeprefix("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(most))
        if not is_number or not least <= int(value) <= most:
            raise InvalidRequest(what=name, value=_shown(value), why=f"it must be a number from {least} to {most}")
        return int(value)

    return Parameter(name, description, read, schema, default)


def flag(name: str, description: str) -> Parameter:
    """True or false, which is the default."""

    def read(name: str, value: str) -> bool:
        if value.lower() not in (*_TRUE, *_FALSE):
            raise InvalidRequest(what=name, value=_shown(value), why="it must be true or false")
        return is_true(value)

    return Parameter(name, description, read, {"type": "boolean", "default": False}, default=False)


def is_true(value: str) -> bool:
    return value.lower() in _TRUE


def choice(name: str, description: str, values: Sequence[str], *, required: bool = False) -> Parameter:
    """A parameter whose value is among `values`, in any case of letters."""

    def read(name: str, value: str) -> str:
        found = next((known for known in values if known.lower() == value.lower()), None)
        if found is None:
            raise InvalidRequest(what=name, value=_shown(value), why=f"it must be one of {', '.join(values)}")
        return found

    return Parameter(name, description, read, {"type": "string", "enum": list(values)}, required=required)


def _text(name: str, value: str, most: int = MAX_TEXT) -> str:
    if len(value) > most or not value.isprintable():
        why = f"it must be at most {most} printable characters"
        raise InvalidRequest(what=name, value=_shown(value), why=why)
    return value


def _shown(value: str) -> str:
    return value if len(value) <= 100 else f"{value[:100]}…"
