"""What a reader's filter can match, told from the smallest and the largest value of each column of a file (SPEC 9.8).

A filter is a condition in Spark's SQL. It is split into what can be decided from such figures and what cannot; whatever
is not understood might match. So a wrong guess costs a file read for nothing, and never a row:

| condition                            | a file is passed over if                                   |
|--------------------------------------|------------------------------------------------------------|
| a = v, a <=> v, a IN (v, …)          | v lies outside of [min, max], each v does                  |
| a < v, a <= v, a > v, a >= v, BETWEEN | no value of [min, max] is on that side                     |
| a <> v                               | min and max are v                                          |
| a IS NULL, a IS NOT NULL             | no row is null, all are                                    |
| … AND …, … OR …                      | one of them cannot match, none of them can                 |
| NOT …                                | the opposite of what stands behind it cannot match          |

Values are compared as Spark compares them: NaN is above every number, texts go by their bytes, and where types differ
one is turned into the other as Spark would; where that is not certain, nothing is decided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from databuild_dagster.model.errors import Refused

if TYPE_CHECKING:
    from sqlglot import expressions as x

WHOLE = frozenset({"byte", "short", "integer", "long"})
FLOATING = frozenset({"float", "double"})
#: Digits of Spark's widest decimal.
MAX_DIGITS = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(_DAY.pattern + r"([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?")

#: Types whose values have an order that can be decided here; and decimals of any width.
ORDERED = WHOLE | FLOATING | {"string", "boolean", "date", "timestamp", "timestamp_ntz"}


class BadFilter(Refused):
    """The filter {where!r} cannot be asked: {why}."""

    hint = "Write a condition of Spark's SQL, as in where=\"carrier = 'AA' and dep_delay > 60\"."


class ColumnFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one column in one file. `min` and `max` are as text, None if no row has a value, or unknown."""

    nulls: int
    #: About how many values differ, to a few percent.
    distinct: int | None = None
    min: str | None = None
    max: str | None = None
    #: Too long, or of a type without an order.
    unbounded: bool = False


@dataclass(frozen=True, slots=True)
class FileFigures:
    """What is known of one file: its rows, and its columns by name in lower case, each with its type in Spark's words."""

    rows: int
    columns: Mapping[str, tuple[str, ColumnFigures]]


class Unknown(Exception):
    """It cannot be decided here, so it might match."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A reader's condition. `zone` is what times without one are in."""

    where: str
    tree: Any
    zone: str = "UTC"

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it names, in lower case."""
        from sqlglot import expressions as x

        return frozenset(column.name.lower() for column in self.tree.find_all(x.Column)) if self.tree else frozenset()

    def might_match(self, file: FileFigures) -> bool:
        """Whether a row of the file may be one that the filter lets through."""
        # What a backslash means within a text, Spark's settings tell.
        return "\\" in self.where or _might(self.tree, file, self.zone)


def parsed_filter(where: str, zone: str = "UTC", *, spark_decides: bool = False) -> Filter:
    """Raises `BadFilter` for what is no condition.

    With `spark_decides`, what is not understood here might be understood by Spark, and passes no file over.
    """
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    if not where.strip():
        raise BadFilter(where=where, why="it is empty")
    try:
        statements = parse(f"SELECT 1 WHERE {where}\n", read="spark")
    except SqlglotError as error:
        if spark_decides:
            return Filter(where, None, zone)
        why = str(error).splitlines()[0].split(". Line")[0]
        raise BadFilter(where=where, why=f"it is not understood ({why})") from None
    query = statements[0] if len(statements) == 1 else None
    condition = query.args.get("where") if isinstance(query, exp.Select) else None
    # More than a WHERE would be a GROUP BY, a LIMIT, or another clause that Spark would not take either.
    parts = set() if query is None else {part for part, said in query.args.items() if said}
    if condition is None or parts != {"expressions", "where"}:
        raise BadFilter(where=where, why="it is more, or less, than one condition")
    return Filter(where, condition.this, zone)


def _might(node: x.Expression, file: FileFigures, zone: str) -> bool:
    """Whether the condition may be true for some row; of what is not understood it may."""
    try:
        return _rule_of(node)(node, file, zone)
    except (Unknown, ArithmeticError, ValueError, TypeError):
        return True


def _rule_of(node: x.Expression) -> Callable[[Any, FileFigures, str], bool]:
    from sqlglot import expressions as x

    for kinds, rule in (
        ((x.Paren,), lambda node, file, zone: _might(node.this, file, zone)),
        ((x.And,), lambda node, file, zone: _might(node.this, file, zone) and _might(node.expression, file, zone)),
        ((x.Or,), lambda node, file, zone: _might(node.this, file, zone) or _might(node.expression, file, zone)),
        ((x.Not,), _not),
        ((x.EQ, x.NEQ, x.LT, x.LTE, x.GT, x.GTE, x.NullSafeEQ), _compared),
        ((x.Between,), _between),
        ((x.In,), _in),
        ((x.Is,), _is),
        ((x.Column,), _alone),
    ):
        # By the very class: a subclass may mean something else.
        if type(node) in kinds:
            return rule
    raise Unknown


def _not(node: x.Not, file: FileFigures, zone: str) -> bool:
    """By the opposite of what stands behind it: null is neither true nor its opposite."""
    from sqlglot import expressions as x

    inner = node.this
    while isinstance(inner, x.Paren):
        inner = inner.this
    opposites = {x.EQ: x.NEQ, x.NEQ: x.EQ, x.LT: x.GTE, x.GTE: x.LT, x.GT: x.LTE, x.LTE: x.GT}
    if type(inner) in opposites:
        return _compared(opposites[type(inner)](this=inner.this, expression=inner.expression), file, zone)
    if isinstance(inner, x.And | x.Or):
        parts = [_might(x.Not(this=part), file, zone) for part in (inner.this, inner.expression)]
        return any(parts) if isinstance(inner, x.And) else all(parts)
    if isinstance(inner, x.Not):
        return _might(inner.this, file, zone)
    if isinstance(inner, x.Is) and isinstance(inner.expression, x.Null):
        _, figures = _column(inner.this, file)
        return figures.nulls < file.rows
    raise Unknown


#: Of (smallest, largest, value), whether some value between the two may compare so.
_SIDES: dict[str, Callable[[Any, Any, Any], bool]] = {
    "EQ": lambda low, high, value: low <= value <= high,
    "NullSafeEQ": lambda low, high, value: low <= value <= high,
    "NEQ": lambda low, high, value: not low == value == high,
    "LT": lambda low, high, value: low < value,
    "LTE": lambda low, high, value: low <= value,
    "GT": lambda low, high, value: high > value,
    "GTE": lambda low, high, value: high >= value,
}
#: The side of a comparison whose two ends are exchanged, where it is another one.
FLIPPED = {"LT": "GT", "GT": "LT", "LTE": "GTE", "GTE": "LTE"}


def _compared(node: x.Binary, file: FileFigures, zone: str) -> bool:
    from sqlglot import expressions as x

    side, column, other = type(node).__name__, node.this, node.expression
    if not isinstance(column, x.Column):
        side, column, other = FLIPPED.get(side, side), other, column
    return _on_side(side, column, other, file, zone)


def _between(node: x.Between, file: FileFigures, zone: str) -> bool:
    if node.args.get("symmetric"):
        raise Unknown
    low, high = node.args["low"], node.args["high"]
    return _or_unknown("GTE", node.this, low, file, zone) and _or_unknown("LTE", node.this, high, file, zone)


def _in(node: x.In, file: FileFigures, zone: str) -> bool:
    if not node.expressions or node.args.get("query") or node.args.get("unnest"):
        raise Unknown
    return any(_or_unknown("EQ", node.this, each, file, zone) for each in node.expressions)


def _is(node: x.Is, file: FileFigures, zone: str) -> bool:
    from sqlglot import expressions as x

    if not isinstance(node.expression, x.Null):
        raise Unknown
    _, figures = _column(node.this, file)
    return figures.nulls > 0


def _alone(node: x.Column, file: FileFigures, zone: str) -> bool:
    """`WHERE canceled`"""
    from sqlglot import expressions as x

    return _on_side("EQ", node, x.Boolean(this=True), file, zone)


def _or_unknown(side: str, column: Any, other: Any, file: FileFigures, zone: str) -> bool:
    try:
        return _on_side(side, column, other, file, zone)
    except (Unknown, ArithmeticError, ValueError, TypeError):
        return True


def _on_side(side: str, column: Any, other: Any, file: FileFigures, zone: str) -> bool:
    type_name, figures = _column(column, file)
    value, as_compared = literal_value(other, type_name, zone)
    if figures.unbounded:
        raise Unknown
    if figures.min is None or figures.max is None:
        # No row has a value, and null compares with nothing.
        return False
    low, high = (as_compared(typed_value(text, type_name)) for text in (figures.min, figures.max))
    return _SIDES[side](low, high, value)


def _column(node: Any, file: FileFigures) -> tuple[str, ColumnFigures]:
    from sqlglot import expressions as x

    # `a.b` may be a field of a struct.
    if not isinstance(node, x.Column) or node.table or node.name.lower() not in file.columns:
        raise Unknown
    return file.columns[node.name.lower()]


class _Number(float):
    """In Spark's order: NaN is above every number, and equal to itself."""

    def _key(self) -> tuple[bool, float]:
        return (True, 0.0) if math.isnan(self) else (False, float(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and self._key() == other._key()

    def __lt__(self, other: float) -> bool:
        return self._key() < _Number(other)._key()

    def __le__(self, other: float) -> bool:
        return self._key() <= _Number(other)._key()

    def __gt__(self, other: float) -> bool:
        return self._key() > _Number(other)._key()

    def __ge__(self, other: float) -> bool:
        return self._key() >= _Number(other)._key()

    __hash__ = float.__hash__


def typed_value(text: str, type_name: str) -> Any:
    """A figure as a value that compares as Spark's. Raises `Unknown`."""
    if type_name in WHOLE:
        return int(text)
    if type_name in FLOATING:
        return _Number(text)
    if type_name.startswith("decimal"):
        return Decimal(text)
    match type_name:
        case "string":
            return text.encode()
        case "boolean":
            return text == "true"
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            # In microseconds since 1970 UTC.
            return _EPOCH + timedelta(microseconds=int(text))
        case "timestamp_ntz":
            return datetime.fromisoformat(text)
    raise Unknown


def literal_value(node: Any, type_name: str, zone: str) -> tuple[Any, Callable[[Any], Any]]:
    """The value that a literal is beside a column of that type, and what makes a figure comparable with it.

    Raises `Unknown`.
    """
    from sqlglot import expressions as x

    same: Callable[[Any], Any] = lambda figure: figure  # noqa: E731
    while isinstance(node, x.Paren):
        node = node.this
    if isinstance(node, x.Boolean):
        if type_name != "boolean":
            raise Unknown
        return bool(node.this), same
    if isinstance(node, x.Cast):
        # DATE '2013-01-31' and TIMESTAMP '…'; a cast of anything else is Spark's business.
        target = node.to.this.name
        if not isinstance(node.this, x.Literal) or not node.this.is_string:
            raise Unknown
        kinds = {
            "DATE": {"date"},
            "TIMESTAMP": {"timestamp"},
            "TIMESTAMPTZ": {"timestamp"},
            "TIMESTAMPNTZ": {"timestamp_ntz"},
        }
        if type_name not in kinds.get(target, ()):
            raise Unknown
        return _moment(node.this.this, type_name, zone), same
    if isinstance(node, x.Literal) and node.is_string:
        if type_name == "string":
            return node.this.encode(), same
        return _moment(node.this, type_name, zone), same
    return _number(node, type_name)


def _number(node: Any, type_name: str) -> tuple[Any, Callable[[Any], Any]]:
    from sqlglot import expressions as x

    sign = 1
    while isinstance(node, x.Neg | x.Paren):
        sign = -sign if isinstance(node, x.Neg) else sign
        node = node.this
    if not isinstance(node, x.Literal) or node.is_string:
        raise Unknown
    try:
        value = sign * Decimal(node.this)
    except InvalidOperation:
        raise Unknown from None
    if type_name not in WHOLE | FLOATING and not _DECIMAL.fullmatch(type_name):
        raise Unknown
    if "e" in node.this.lower() or type_name in FLOATING:
        # With a double on either side both are doubles.
        return _Number(value), _Number
    if type_name in WHOLE or _is_exact(type_name, value):
        return value, Decimal
    raise Unknown


def _is_exact(type_name: str, value: Decimal) -> bool:
    """Whether Spark has a decimal wide enough for both, so that it rounds neither."""
    width = _DECIMAL.fullmatch(type_name)
    return width is not None and int(width[1]) + len(value.as_tuple().digits) <= MAX_DIGITS


def _moment(text: str, type_name: str, zone: str) -> Any:
    """Only what is written out in full: Spark knows more forms than we do. Raises `Unknown`."""
    if type_name == "date" and _DAY.fullmatch(text):
        return date.fromisoformat(text)
    if type_name not in ("timestamp", "timestamp_ntz") or not _TIME.fullmatch(text):
        raise Unknown
    found = datetime.fromisoformat(text)
    if type_name == "timestamp_ntz":
        if found.tzinfo is not None:
            raise Unknown
        return found
    if found.tzinfo is None:
        try:
            found = found.replace(tzinfo=ZoneInfo(zone))
        except (KeyError, ValueError, OSError):
            raise Unknown from None
    return found.astimezone(UTC)
