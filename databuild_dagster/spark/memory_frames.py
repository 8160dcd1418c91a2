"""Frames in the memory of this process: pandas, Polars and Arrow.

Each frame converts from and to an Arrow table, so that files are read and written in the same way for all. The classes are
recognized by their names: this module imports neither pandas nor Polars nor Arrow when it is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from databuild_dagster.spark.errors import PolarsMissing

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


#: The key of pandas' description in the metadata of a schema.
_PANDAS: Final = b"pandas"
#: pandas' nullable types, with the type that a file has for each.
_NULLABLE: Final = {
    **{f"Int{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    "Float32": "float",
    "Float64": "double",
    "boolean": "bool",
    "string": "string",
}


class FrameKind(Enum):
    """The library of a frame; the value is what `read(…, format=)` calls it."""

    SPARK = "spark"
    PANDAS = "pandas"
    POLARS = "polars"
    ARROW = "arrow"

    @property
    def shown(self) -> str:
        """The class, for people."""
        return _SHOWN[self]


_SHOWN = {
    FrameKind.SPARK: "Spark DataFrame",
    FrameKind.PANDAS: "pandas DataFrame",
    FrameKind.POLARS: "Polars DataFrame",
    FrameKind.ARROW: "Arrow Table",
}

#: Classes by the start of their module and their name. A subclass is recognized by its bases.
_BY_NAME = (
    ("pyspark.sql", "DataFrame", FrameKind.SPARK),
    ("pandas", "DataFrame", FrameKind.PANDAS),
    ("polars", "DataFrame", FrameKind.POLARS),
    ("pyarrow", "Table", FrameKind.ARROW),
)


def frame_kind(of: type) -> FrameKind | None:
    """The kind of a class of frames, None if it is not a class of frames."""
    return next((kind for base in of.__mro__ if (kind := frame_kind_by_name(base.__module__, base.__name__))), None)


def frame_kind_by_name(module: str, name: str) -> FrameKind | None:
    """The kind of a class of frames by its name alone, for source text; None if no class of frames has the name."""
    for known_module, known_name, kind in _BY_NAME:
        if name == known_name and (module == known_module or module.startswith(f"{known_module}.")):
            return kind
    return None


def from_arrow(table: pa.Table, kind: FrameKind) -> Any:
    """The rows as a frame of a kind in memory. Raises `PolarsMissing`."""
    match kind:
        case FrameKind.PANDAS:
            return _to_pandas(table)
        case FrameKind.ARROW:
            # Spark's description of the columns is of the file, not of a table that its reader goes on with.
            return table.replace_schema_metadata(None)
        case FrameKind.POLARS:
            try:
                import polars
            except ImportError as error:
                raise PolarsMissing() from error
            return polars.from_arrow(table)
        case FrameKind.SPARK:
            raise AssertionError("a frame of Spark is not in the memory of this process")


def to_arrow(frame: Any) -> pa.Table:
    """A frame in memory as an Arrow table, with the named levels of a pandas index. Raises what Arrow raises."""
    import pyarrow as pa

    match frame_kind(type(frame)):
        case FrameKind.ARROW:
            table: pa.Table = frame
        case FrameKind.POLARS:
            table = _of_polars(frame)
        case _:
            table = pa.Table.from_pandas(_with_index(frame), preserve_index=False)
    return table


def nullable_types(table: pa.Table) -> dict[str, str]:
    """The columns of an Arrow table that pandas made of its own nullable types, each with the type's name, such as `Int64`."""
    described = json.loads((table.schema.metadata or {}).get(_PANDAS, b"{}")).get("columns", [])
    return {column["field_name"]: column["numpy_type"] for column in described if column["numpy_type"] in _NULLABLE}


def pandas_metadata(types: Mapping[str, str]) -> dict[bytes, bytes]:
    """The description of columns with pandas' own types that pandas and Arrow read; empty without such columns."""
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind.lower(), "numpy_type": kind, "metadata": None}
        for name, kind in types.items()
    ]
    return (
        {_PANDAS: json.dumps({"index_columns": [], "column_indexes": [], "columns": columns}).encode()}
        if columns
        else {}
    )


def blank_columns(frame: Any) -> list[str]:
    """The columns of a pandas frame whose type says nothing: pandas makes floats of what has no value at all."""
    if frame_kind(type(frame)) is not FrameKind.PANDAS:
        return []
    kinds = [
        (place, name) for place, name in enumerate(frame.columns) if str(frame.dtypes.iloc[place]).startswith("float")
    ]
    return [name for place, name in kinds if frame.iloc[:, place].isna().all()]


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    """A column has the nullable type of pandas that its writer gave it, or that keeps its numbers: beside a null, pandas' usual
    integers become floats, which have 53 bits."""
    found = {field.name: str(field.type) for field in table.schema}
    # Readers unite files: a wider type than the writer's is what it is.
    types = {name: kind for name, kind in nullable_types(table).items() if found.get(name) == _NULLABLE[kind]}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if found[name] == "int64" and name not in types and _is_more_than_a_float(column):
            types[name] = "Int64"
    frame: pd.DataFrame = table.replace_schema_metadata(pandas_metadata(types)).to_pandas()
    return frame


def _is_more_than_a_float(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    if not column.null_count or column.null_count == len(column):
        return False
    ends = pc.min_max(column).as_py()
    return bool(max(-ends["min"], ends["max"]) > 2**53)


def _of_polars(frame: pl.DataFrame) -> pa.Table:
    import polars

    for name, kind in frame.schema.items():
        if kind == polars.Object:
            # Polars gives their addresses.
            raise TypeError(f"column {name} holds Python objects")
    return frame.to_arrow()


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named) if named else frame


def column_names(frame: Any) -> list[str]:
    """The names of the columns of any frame."""
    # The `columns` of an Arrow table are their values.
    return list(frame.column_names if frame_kind(type(frame)) is FrameKind.ARROW else frame.columns)


def has_no_rows(frame: Any) -> bool:
    """Whether any frame is empty. For Spark this is a job."""
    match frame_kind(type(frame)):
        case FrameKind.SPARK:
            return bool(frame.isEmpty())
        case _:
            return len(frame) == 0


def united_in_memory(frames: Sequence[Any]) -> Any:
    """The union by column name of `frames`: at least one, all of the same kind."""
    if len(frames) == 1:
        return frames[0]
    match kind := frame_kind(type(frames[0])):
        case FrameKind.PANDAS:
            import pandas as pd

            return pd.concat(frames, ignore_index=True)
        case FrameKind.POLARS | FrameKind.ARROW:
            import pyarrow as pa

            return from_arrow(pa.concat_tables(map(to_arrow, frames), promote_options="permissive"), kind)
        case _:
            raise AssertionError(f"{type(frames[0])} is no frame in memory")


def with_text(frame: Any, column: str, text: str) -> Any:
    """A frame in memory with `text` in every row of a further column."""
    kind = frame_kind(type(frame))
    if kind is FrameKind.PANDAS:
        return frame.assign(**{column: text})
    assert kind is not None, f"{type(frame)} is no frame"
    import pyarrow as pa

    table = to_arrow(frame)
    return from_arrow(table.append_column(column, pa.array([text] * table.num_rows, pa.string())), kind)
