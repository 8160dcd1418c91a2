"""Columns of every type of Arrow, with their edges, and what a plain reader makes of their values."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

#: Moments beside which calendars and clocks change: the first and the last year, Julian and Gregorian days, 1970, two nights in Berlin.
MOMENTS = [
    datetime(1, 1, 1),
    datetime(1500, 2, 28, 1, 2, 3, 4),
    datetime(1582, 10, 4, 23, 59, 59, 999999),
    datetime(1582, 10, 15),
    datetime(1900, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(2024, 3, 31, 1, 30),
    datetime(2024, 10, 27, 0, 30),
    datetime(2024, 10, 27, 1, 30),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
DAYS = [moment.date() for moment in MOMENTS] + [date(2024, 2, 29)]
#: What nanoseconds in 64 bits reach.
NEAR = [moment for moment in MOMENTS if 1700 < moment.year < 2200]
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "a", "ä€😀", " x ", "null", "NaN", "1", "x" * 300, "a\nb", "quote'\"`"]


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [least, most, 0, 1, *(edge for edge in (2**53 + 1, -(2**53) - 1) if least <= edge <= most)]
    return st.sampled_from(edges) | st.integers(least, most)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = Decimal("9" * (precision - scale) + "." + "9" * scale)
    return st.sampled_from([most, most.copy_negate(), Decimal(0), Decimal((0, (1,), -scale))])


def _moments(unit: str, *, zone: bool) -> st.SearchStrategy[datetime]:
    found = NEAR if unit == "ns" else MOMENTS
    whole = {"s": 1_000_000, "ms": 1000}.get(unit, 1)
    cut = [moment.replace(microsecond=moment.microsecond - moment.microsecond % whole) for moment in found]
    return st.sampled_from([moment.replace(tzinfo=UTC) for moment in cut] if zone else cut)


#: By name: the type, and a strategy of its values.
PLAIN: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), _integers(bits, signed=True)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), _integers(bits, signed=False)) for bits in (8, 16, 32, 64)},
    "float16": (pa.float16(), st.sampled_from(FLOATS)),
    "float32": (pa.float32(), st.sampled_from([*FLOATS, 3.4028234663852886e38]) | st.floats(width=32)),
    "float64": (pa.float64(), st.sampled_from([*FLOATS, 1.7976931348623157e308]) | st.floats()),
    "decimal(5,2)": (pa.decimal128(5, 2), _decimals(5, 2)),
    "decimal(38,0)": (pa.decimal128(38, 0), _decimals(38, 0)),
    "decimal(38,18)": (pa.decimal128(38, 18), _decimals(38, 18)),
    "decimal of 256 bits": (pa.decimal256(50, 5), _decimals(30, 5)),
    "string": (pa.string(), st.sampled_from(TEXTS)),
    "large string": (pa.large_string(), st.sampled_from(TEXTS)),
    "string view": (pa.string_view(), st.sampled_from(TEXTS)),
    "category": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(TEXTS[:3])),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "large binary": (pa.large_binary(), st.binary(max_size=4)),
    "bytes of one length": (pa.binary(2), st.binary(min_size=2, max_size=2)),
    "date": (pa.date32(), st.sampled_from(DAYS)),
    "date in milliseconds": (pa.date64(), st.sampled_from(DAYS)),
    **{
        f"timestamp[{unit}]{' UTC' if zone else ''}": (
            pa.timestamp(unit, "UTC" if zone else None),
            _moments(unit, zone=zone),
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in (True, False)
    },
    "timestamp in Berlin": (pa.timestamp("us", "Europe/Berlin"), _moments("us", zone=True)),
    "time": (pa.time64("us"), st.sampled_from([time(0), time(23, 59, 59, 999999)])),
    "duration": (pa.duration("us"), st.sampled_from([timedelta(0), timedelta(days=-1, microseconds=1)])),
    "null": (pa.null(), st.none()),
}


def _nested(inner: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    kind, values = inner
    some = st.none() | values
    return st.sampled_from(
        [
            (pa.list_(kind), st.lists(some, max_size=2)),
            (pa.large_list(kind), st.lists(some, max_size=2)),
            (pa.list_(kind, 2), st.lists(some, min_size=2, max_size=2)),
            (pa.struct([("a", kind), ("b", pa.int64())]), st.fixed_dictionaries({"a": some, "b": st.integers(0, 9)})),
            (pa.map_(pa.string(), kind), st.lists(st.tuples(st.just("k"), some), max_size=1)),
        ]
    )


types = st.sampled_from(list(PLAIN.values()))
any_type = st.one_of(types, types, types.flatmap(_nested), types.flatmap(_nested).flatmap(_nested))


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column of one to four values of any type."""
    kind, values = draw(any_type)
    found = draw(st.lists(st.none() | values, min_size=1, max_size=4))
    if pa.types.is_dictionary(kind):
        return pa.array(found, kind.value_type).dictionary_encode()
    return pa.array(found, kind)


def plain(value: Any) -> Any:
    """A value as all readers should have it: naive times are in UTC, floats compare by their text, and numbers by their value."""
    match value:
        case float():
            return repr(value)
        case datetime():
            return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
        case Decimal():
            return value.normalize() if value else Decimal(0)
        case bytes():
            return bytes(value)
        case dict():
            return {name: plain(member) for name, member in value.items()}
        case list() | tuple():
            return [plain(member) for member in value]
        case _:
            return value


def of_pandas(value: Any) -> Any:
    """What pandas has in a cell, as Python has it."""
    if isinstance(value, np.ndarray):
        return [of_pandas(item) for item in value]
    if isinstance(value, dict):
        return {name: of_pandas(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [of_pandas(item) for item in value]
    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    if isinstance(value, pd.Timedelta):
        return value.to_pytimedelta()
    return value.item() if isinstance(value, np.generic) else value


def loose(value: Any) -> Any:
    """A plain value without the difference that pandas does not know: of NaN, null and, beside them, whole floats and integers."""
    match value:
        case None | "nan":
            return None
        case str() if value.removesuffix(".0").lstrip("-").isdigit():
            return int(value.removesuffix(".0"))
        case dict():
            return {name: loose(member) for name, member in value.items()}
        case list():
            return [loose(member) for member in value]
        case _:
            return value
