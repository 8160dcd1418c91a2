"""A reader's filter, decided from the figures of a file, or applied to a table where there is no Spark (rule 9.8).

A filter is a condition in Spark's SQL. `condition` translates it once, for two kinds of columns:

| columns              | a condition becomes                                   | a part that is not understood          |
|----------------------|-------------------------------------------------------|----------------------------------------|
| `_FigureColumns`     | `_Outcome`: can it be true, can it be false, in a file | may be either, so the file is read     |
| `_ArrowColumns`      | an Arrow expression over the rows of a table           | is refused: only Spark can answer it   |

Figures are the smallest and the largest value of each column of a file. A wrong guess costs a file read for nothing,
never a row.

Values compare as in Spark: NaN is above every number, texts are ordered by their bytes, and values of different types are
converted as Spark would. Where the comparison is not certain, nothing is decided.

The guarantees of pyarrow's datasets were not used. They prune less (no literal whose type differs from the column's, no
`<>`), and their import takes 0.4 s in processes that only plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import reduce
from operator import eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from databuild_dagster.model.errors import Refused

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

WHOLE = frozenset({"byte", "short", "integer", "long"})
FLOATING = frozenset({"float", "double"})
#: Digits of Spark's widest decimal.
MAX_DIGITS = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(_DAY.pattern + r"([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?")
#: The types that each target of a cast of a text may be compared with.
_CAST_TO = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz"}

#: Types whose values have an order that is known here; decimals of any width are ordered too.
ORDERED = WHOLE | FLOATING | {"string", "boolean", "date", "timestamp", "timestamp_ntz"}

_PLACE = "__databuild_place"


class BadFilter(Refused):
    """The filter {where!r} cannot be applied: {why}."""

    hint = "Write one condition of Spark's SQL, such as \"carrier = 'AA' and dep_delay > 60\"."


class FilterLibraryMissing(BadFilter):
    """The filter {where!r} is evaluated without Spark here, which needs sqlglot, and sqlglot is not installed."""

    hint = (
        "Install it: pip install 'databuild-dagster[filters]'. Spark evaluates the filter of a Spark frame without it."
    )


_NEEDS_SPARK = (
    "only Spark can evaluate it, and it is read here without Spark; compare columns with constants of their types"
)


class ColumnFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of a column in a file. `min` and `max` are text; None if no row has a value, or unknown."""

    nulls: int
    #: Number of different values, to a few percent.
    distinct: int | None = None
    min: str | None = None
    max: str | None = None
    #: The values are too long, or their type has no order.
    unbounded: bool = False


@dataclass(frozen=True, slots=True)
class FileFigures:
    """The rows of a file, and its columns by name in lower case, each with its type in Spark's words."""

    rows: int
    columns: Mapping[str, tuple[str, ColumnFigures]]


class Unknown(Exception):
    """The condition cannot be decided here."""


#: Raised for a condition that is not understood, or by a value that does not convert.
_UNDECIDED = (Unknown, ArithmeticError, ValueError, TypeError)


@dataclass(frozen=True, slots=True)
class Filter:
    """A reader's condition. `zone` is the time zone of times that name none."""

    where: str
    #: None if only Spark can read the text: then every file may match.
    tree: Any
    zone: str = "UTC"

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the condition names, in lower case."""
        if self.tree is None:
            return frozenset()
        from sqlglot import expressions as x

        return frozenset(column.name.lower() for column in self.tree.find_all(x.Column))

    def might_match(self, file: FileFigures) -> bool:
        """Whether the filter may let a row of the file through."""
        # Spark's settings decide what a backslash within a text means.
        return (
            self.tree is None or "\\" in self.where or condition(self.tree, _FigureColumns(file, self.zone)).can_be_true
        )


def parsed_filter(where: str, zone: str = "UTC", *, spark_decides: bool = False) -> Filter:
    """Parse a condition. Raises `BadFilter`, and `FilterLibraryMissing` without sqlglot.

    With `spark_decides`, text that does not parse is left to Spark, and every file is read; without sqlglot, all text.
    """
    if not where.strip():
        raise BadFilter(where=where, why="it is empty")
    try:
        from sqlglot import exp, parse
        from sqlglot.errors import ParseError, SqlglotError
    except ImportError as error:
        if spark_decides:
            return Filter(where, None, zone)
        raise FilterLibraryMissing(where=where) from error
    try:
        statements = parse(f"SELECT 1 WHERE {where}\n", read="spark")
    except SqlglotError as error:
        if spark_decides:
            return Filter(where, None, zone)
        # sqlglot's own text names its classes. A quote that is not closed has no place.
        near = error.errors[0].get("highlight") if isinstance(error, ParseError) and error.errors else None
        why = f"it is incomplete or wrong at {near!r}" if near else "a quote in it is not closed"
        raise BadFilter(where=where, why=why) from None
    query = statements[0] if len(statements) == 1 else None
    found = query.args.get("where") if isinstance(query, exp.Select) else None
    # More than a WHERE would be a GROUP BY, a LIMIT, or another clause that Spark would not take either.
    parts = set() if query is None else {part for part, value in query.args.items() if value}
    if found is None or parts != {"expressions", "where"}:
        raise BadFilter(where=where, why="it is not one condition")
    return Filter(where, found.this, zone)


def condition(node: Any, columns: _FigureColumns | _ArrowColumns) -> Any:
    """A node of the filter's tree in the terms of `columns`, whose answers combine by `&`, `|` and `~`."""
    try:
        return _translated(node, columns)
    except _UNDECIDED as error:
        return columns.unknown(error)


def _translated(node: Any, columns: _FigureColumns | _ArrowColumns) -> Any:
    from sqlglot import expressions as x

    def compared(side: str, literal: Any) -> Any:
        try:
            return columns.compared(side, node.this, literal)
        except _UNDECIDED as error:
            return columns.unknown(error)

    # By the very class: a subclass may mean something else.
    kind = type(node)
    if kind is x.Paren:
        return condition(node.this, columns)
    if kind is x.And:
        return condition(node.this, columns) & condition(node.expression, columns)
    if kind is x.Or:
        return condition(node.this, columns) | condition(node.expression, columns)
    if kind is x.Not:
        return ~condition(node.this, columns)
    if kind is x.Between and not node.args.get("symmetric"):
        return compared("GTE", node.args["low"]) & compared("LTE", node.args["high"])
    if kind is x.In and node.expressions and not node.args.get("query") and not node.args.get("unnest"):
        return reduce(or_, (compared("EQ", literal) for literal in node.expressions))
    if kind is x.Is and isinstance(node.expression, x.Null):
        return columns.is_null(node.this)
    if kind is x.Column:
        # `WHERE canceled`
        return columns.compared("EQ", node, x.Boolean(this=True))
    side = kind.__name__
    if side not in _COMPARE and side != "NullSafeEQ":
        raise Unknown
    if isinstance(node.this, x.Column):
        return columns.compared(side, node.this, node.expression)
    return columns.compared(_FLIPPED.get(side, side), node.expression, node.this)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {"EQ": eq, "NEQ": ne, "LT": lt, "LTE": le, "GT": gt, "GTE": ge}
#: The same comparison with its two ends exchanged.
_FLIPPED = {"LT": "GT", "GT": "LT", "LTE": "GTE", "GTE": "LTE"}


class _Outcome(NamedTuple):
    """The possible values of a condition over the rows of a file. Null is neither true nor false."""

    can_be_true: bool
    can_be_false: bool

    def __and__(self, other: _Outcome) -> _Outcome:
        return _Outcome(self.can_be_true and other.can_be_true, self.can_be_false or other.can_be_false)

    def __or__(self, other: _Outcome) -> _Outcome:
        return _Outcome(self.can_be_true or other.can_be_true, self.can_be_false and other.can_be_false)

    def __invert__(self) -> _Outcome:
        return _Outcome(self.can_be_false, self.can_be_true)


#: Of (smallest, largest, value), whether some value between the two may compare so, and whether some may not.
_OUTCOMES: dict[str, Callable[[Any, Any, Any], _Outcome]] = {
    "EQ": lambda low, high, value: _Outcome(low <= value <= high, not low == value == high),
    "LT": lambda low, high, value: _Outcome(low < value, high >= value),
    "LTE": lambda low, high, value: _Outcome(low <= value, high > value),
    "NEQ": lambda low, high, value: ~_OUTCOMES["EQ"](low, high, value),
    "GTE": lambda low, high, value: ~_OUTCOMES["LT"](low, high, value),
    "GT": lambda low, high, value: ~_OUTCOMES["LTE"](low, high, value),
}


@dataclass(frozen=True, slots=True)
class _FigureColumns:
    """The columns of a file of which only figures are known."""

    file: FileFigures
    zone: str

    def compared(self, side: str, column: Any, literal: Any) -> _Outcome:
        type_name, figures = self._column(column)
        value, in_order = _literal_value(literal, type_name, self.zone)
        if figures.unbounded:
            raise Unknown
        null_safe = side == "NullSafeEQ"
        if figures.min is None or figures.max is None:
            # No row has a value: null compares with nothing, and is not the same as a literal.
            return _Outcome(False, null_safe)
        low, high = (in_order(_typed_value(text, type_name)) for text in (figures.min, figures.max))
        found = _OUTCOMES["EQ" if null_safe else side](low, high, in_order(value))
        return found._replace(can_be_false=found.can_be_false or (null_safe and figures.nulls > 0))

    def is_null(self, column: Any) -> _Outcome:
        _, figures = self._column(column)
        return _Outcome(figures.nulls > 0, figures.nulls < self.file.rows)

    def unknown(self, error: Exception) -> _Outcome:
        return _Outcome(True, True)

    def _column(self, node: Any) -> tuple[str, ColumnFigures]:
        found = self.file.columns.get(_plain_name(node))
        if found is None:
            raise Unknown
        return found


def matching_rows(table: pa.Table, wanted: Filter) -> pa.Table:
    """The rows of a table that a filter lets through. Raises `BadFilter` for an absent column, and for what only Spark
    understands."""
    import pyarrow as pa

    try:
        return table.filter(condition(wanted.tree, _ArrowColumns(table.schema, wanted.zone)))
    except (*_UNDECIDED, KeyError, pa.ArrowException) as error:
        why = error.args[0] if isinstance(error, Unknown) and error.args else _NEEDS_SPARK
        raise BadFilter(where=wanted.where, why=why) from error


def matching_mask(table: pa.Table, wanted: Filter) -> pa.ChunkedArray:
    """For each row of a table, whether a filter lets it through: true or false, never null. Raises `BadFilter`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pa.chunked_array([pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))])
    found = matching_rows(table.append_column(_PLACE, places), wanted).column(_PLACE)
    return pc.is_in(places, value_set=found.combine_chunks())


def matching_places(frame: Any, wanted: Filter) -> list[int]:
    """The places of the matching rows in a pandas frame; a missing value is null, NaN too. Raises `BadFilter`."""
    import pyarrow as pa

    named = [column for column in frame.columns if str(column).lower() in wanted.columns]
    table = pa.Table.from_pandas(frame[named], preserve_index=False)
    # The last column, so that the filter cannot mean it.
    places = table.append_column(_PLACE, pa.array(range(len(frame)), pa.int64()))
    return list(matching_rows(places, wanted).column(_PLACE).to_pylist())


class _ArrowColumns:
    """The columns of a table, as Arrow expressions."""

    def __init__(self, schema: pa.Schema, zone: str) -> None:
        self._fields = {field.name.lower(): field for field in schema}
        self._names = [field.name.lower() for field in schema]
        self._zone = zone

    def compared(self, side: str, column: Any, literal: Any) -> pc.Expression:
        import pyarrow as pa
        import pyarrow.compute as pc

        if side not in _COMPARE:
            raise Unknown
        found, type_name = self._column(column)
        value, _ = _literal_value(literal, type_name, self._zone)
        if isinstance(value, float):
            found = found.cast(pa.float64())
        elif type_name in WHOLE:
            if value != value.to_integral_value():
                raise Unknown
            value = int(value)
        expression = _COMPARE[side](found, pc.scalar(value))
        return expression | pc.is_nan(found) if type_name in FLOATING and side in ("GT", "GTE") else expression

    def is_null(self, column: Any) -> pc.Expression:
        return self._column(column)[0].is_null()

    def unknown(self, error: Exception) -> pc.Expression:
        raise error

    def _column(self, node: Any) -> tuple[pc.Expression, str]:
        import pyarrow.compute as pc

        name = _plain_name(node)
        if self._names.count(name) != 1:
            raise Unknown(f"there is no column {node.name!r} among {', '.join(self._names)}")
        field = self._fields[name]
        return pc.field(field.name), _type_name(field.type)


def _plain_name(node: Any) -> str:
    """The name of a column in lower case. Raises `Unknown` for `a.b`, which may be a field of a struct."""
    from sqlglot import expressions as x

    if not isinstance(node, x.Column) or node.table:
        raise Unknown
    return node.name.lower()


def _type_name(data_type: pa.DataType) -> str:
    """An Arrow type in Spark's words. Raises `Unknown`."""
    import pyarrow as pa

    for is_type, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "long"),
        (pa.types.is_floating, "double"),
        (pa.types.is_string, "string"),
        (pa.types.is_date32, "date"),
    ):
        if is_type(data_type):
            return name
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    raise Unknown


#: How the text of a figure becomes a value, by type; a timestamp is in microseconds since 1970 UTC.
_VALUE_OF: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(WHOLE, int),
    **dict.fromkeys(FLOATING, float),
    "string": str,
    "boolean": "true".__eq__,
    "date": date.fromisoformat,
    "timestamp": lambda text: _EPOCH + timedelta(microseconds=int(text)),
    "timestamp_ntz": datetime.fromisoformat,
}


def _typed_value(text: str, type_name: str) -> Any:
    """A figure as a value of its type. Raises `Unknown`."""
    value_of = Decimal if type_name.startswith("decimal") else _VALUE_OF.get(type_name)
    if value_of is None:
        raise Unknown
    return value_of(text)


def _as_double(number: Any) -> tuple[bool, float]:
    """A number in Spark's order of doubles: NaN is above every number, and equal to itself."""
    value = float(number)
    return (True, 0.0) if math.isnan(value) else (False, value)


def _as_it_is(value: Any) -> Any:
    return value


def _literal_value(node: Any, type_name: str, zone: str) -> tuple[Any, Callable[[Any], Any]]:
    """A literal as it compares with a column of that type, and the key that brings values of both in Spark's order.

    Raises `Unknown`.
    """
    from sqlglot import expressions as x

    while isinstance(node, x.Paren):
        node = node.this
    if isinstance(node, x.Boolean):
        if type_name != "boolean":
            raise Unknown
        return bool(node.this), _as_it_is
    if isinstance(node, x.Cast):
        # DATE '2013-01-31' and TIMESTAMP '…'; any other cast is Spark's business.
        is_text = isinstance(node.this, x.Literal) and node.this.is_string
        if not is_text or _CAST_TO.get(node.to.this.name) != type_name:
            raise Unknown
        return _moment(node.this.this, type_name, zone), _as_it_is
    if isinstance(node, x.Literal) and node.is_string:
        if type_name == "string":
            return node.this, str.encode
        return _moment(node.this, type_name, zone), _as_it_is
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
    width = _DECIMAL.fullmatch(type_name)
    if type_name not in WHOLE | FLOATING and width is None:
        raise Unknown
    if "e" in node.this.lower() or type_name in FLOATING:
        # With a double on either side both are doubles.
        return float(value), _as_double
    # Spark rounds neither if it has a decimal wide enough for both.
    if width is None or int(width[1]) + len(value.as_tuple().digits) <= MAX_DIGITS:
        return value, Decimal
    raise Unknown


def _moment(text: str, type_name: str, zone: str) -> Any:
    """A day or a time that is written out in full: Spark knows more forms than we do. Raises `Unknown`."""
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
