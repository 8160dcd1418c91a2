"""The rows of a table that a filter lets through, where there is no Spark to ask (SPEC 9.8).

As much of Spark's SQL as `filters` understands, with Spark's answers: NaN is above every number, and null is
neither true nor false. For the rest there is Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from databuild_dagster.warehouse.filters import FLIPPED, FLOATING, WHOLE, BadFilter, Filter, Unknown, literal_value

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc


_PLACE = "__databuild_place"


def matching_rows(table: pa.Table, wanted: Filter) -> pa.Table:
    """Raises `BadFilter` for a column that is not there, and for what only Spark understands."""
    import pyarrow as pa

    try:
        return table.filter(_Condition(table.schema, wanted).of(wanted.tree))
    except (Unknown, ArithmeticError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        why = error.args[0] if isinstance(error, Unknown) and error.args else "only Spark understands it"
        raise BadFilter(where=wanted.where, why=why) from error


def matching_places(frame: Any, wanted: Filter) -> list[int]:
    """The places of the rows that match in a frame of pandas'; what is missing is null, NaN too. Raises `BadFilter`."""
    import pyarrow as pa

    named = [column for column in frame.columns if str(column).lower() in wanted.columns]
    table = pa.Table.from_pandas(frame[named], preserve_index=False)
    # In the end, so that no column that the filter names can be meant.
    places = table.append_column(_PLACE, pa.array(range(len(frame)), pa.int64()))
    return list(matching_rows(places, wanted).column(_PLACE).to_pylist())


class _Condition:
    """The filter as Arrow has it, over the columns of one table."""

    def __init__(self, schema: pa.Schema, wanted: Filter) -> None:
        self._fields = {field.name.lower(): field for field in schema}
        self._names = [field.name.lower() for field in schema]
        self._zone = wanted.zone

    def of(self, node: Any) -> pc.Expression:
        from sqlglot import expressions as x

        match node:
            case x.Paren():
                return self.of(node.this)
            case x.And():
                return self.of(node.this) & self.of(node.expression)
            case x.Or():
                return self.of(node.this) | self.of(node.expression)
            case x.Not():
                return ~self.of(node.this)
            case x.Between() if not node.args.get("symmetric"):
                return self._compared("GTE", node.this, node.args["low"]) & self._compared(
                    "LTE", node.this, node.args["high"]
                )
            case x.In() if node.expressions:
                first, *others = (self._compared("EQ", node.this, each) for each in node.expressions)
                for other in others:
                    first = first | other
                return first
            case x.Is() if isinstance(node.expression, x.Null):
                return self._column(node.this)[0].is_null()
            case x.Column():
                return self._compared("EQ", node, x.Boolean(this=True))
        if type(node).__name__ in _SIDES:
            if isinstance(node.this, x.Column):
                return self._compared(type(node).__name__, node.this, node.expression)
            return self._compared(FLIPPED.get(type(node).__name__, type(node).__name__), node.expression, node.this)
        raise Unknown

    def _compared(self, side: str, column: Any, literal: Any) -> pc.Expression:
        import pyarrow as pa
        import pyarrow.compute as pc

        found, type_name = self._column(column)
        value, _ = literal_value(literal, type_name, self._zone)
        if type_name in FLOATING or (type_name in WHOLE and isinstance(value, float)):
            found, value = found.cast(pa.float64()), float(value)
        elif type_name in WHOLE:
            if value != value.to_integral_value():
                raise Unknown
            value = int(value)
        elif isinstance(value, bytes):
            value = value.decode()
        condition = _SIDES[side](found, pc.scalar(value))
        if type_name in FLOATING and side in ("GT", "GTE"):
            return condition | pc.is_nan(found)
        return condition

    def _column(self, node: Any) -> tuple[pc.Expression, str]:
        import pyarrow.compute as pc
        from sqlglot import expressions as x

        if not isinstance(node, x.Column) or node.table:
            raise Unknown
        name = node.name.lower()
        if self._names.count(name) != 1:
            raise Unknown(f"there is no column {node.name!r} among {', '.join(self._names)}")
        field = self._fields[name]
        return pc.field(field.name), _type_name(field.type)


_SIDES: dict[str, Any] = {
    "EQ": lambda column, value: column == value,
    "NEQ": lambda column, value: column != value,
    "LT": lambda column, value: column < value,
    "LTE": lambda column, value: column <= value,
    "GT": lambda column, value: column > value,
    "GTE": lambda column, value: column >= value,
}


def _type_name(data_type: pa.DataType) -> str:
    """In Spark's words. Raises `Unknown`."""
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
