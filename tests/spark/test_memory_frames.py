"""Frames of pandas, Polars and Arrow: from files and to files, with the same rows."""

from datetime import UTC, date, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from databuild_dagster.spark.errors import ColumnsAlike, NotAFrame, UnsupportedColumn
from databuild_dagster.spark.frames import no_rows, read_arrow, united
from databuild_dagster.spark.keyed import rows_of, values_of, with_key
from databuild_dagster.spark.memory_frames import FrameKind, column_names, frame_kind, from_arrow, has_no_rows, to_arrow

IN_MEMORY = [FrameKind.PANDAS, FrameKind.POLARS, FrameKind.ARROW]
ROWS = pa.table({"n": [1, 2, None], "s": ["x", None, "x"]})


def test_polars_types_that_spark_lacks_are_stored_as_the_next_wider(warehouse: Any, write: Any) -> None:
    frame = pl.DataFrame(
        {
            "unsigned": pl.Series([1, 2], dtype=pl.UInt32),
            "huge": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
            "category": pl.Series(["a", "b"], dtype=pl.Categorical),
            "lists": [["x"], None],
            "structs": [{"a": "y"}, {"a": None}],
            "nothing": [None, None],
            "day": [date(2024, 1, 1), None],
            "time": [datetime(2024, 1, 1, 12, tzinfo=UTC), None],
            "raw": [b"1", None],
        }
    )

    table = read_arrow(warehouse, [write(frame)])

    assert {field.name: str(field.type) for field in table.schema} == {
        "unsigned": "int64",
        "huge": "decimal128(20, 0)",
        "category": "string",
        "lists": "list<element: string>",
        "structs": "struct<a: string>",
        "nothing": "string",
        "day": "date32[day]",
        "time": "timestamp[us, tz=UTC]",
        "raw": "binary",
    }
    back = from_arrow(table, FrameKind.POLARS)
    assert back["huge"].to_list() == [2**64 - 1, None]
    assert back.drop("huge").rows() == frame.drop("huge").with_columns(category=pl.col("category").cast(str)).rows()


def test_a_column_that_no_file_can_have_is_named_in_one_sentence(write: Any) -> None:
    with pytest.raises(UnsupportedColumn, match="cannot be written"):
        write(pl.DataFrame({"o": [object()]}, schema={"o": pl.Object}))


@pytest.mark.parametrize(
    ("frame", "one", "other"),
    [
        pytest.param(pd.DataFrame({"id": [1], "ID": [2]}), "id", "ID", id="pandas"),
        pytest.param(pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), "x", "x", id="Arrow"),
        pytest.param(pl.DataFrame({"in": [{"day": 1, "Day": 2}]}), "day", "Day", id="members of a struct"),
    ],
)
def test_columns_whose_names_are_one_for_spark_are_refused(write: Any, frame: Any, one: str, other: str) -> None:
    with pytest.raises(ColumnsAlike) as refused:
        write(frame)

    assert (refused.value.facts["one"], refused.value.facts["other"]) == (one, other)


NULLABLE = pd.DataFrame(
    {
        "Int8": pd.array([1, None], "Int8"),
        "Int64": pd.array([2**53 + 1, None], "Int64"),
        "Float32": pd.array([1.5, None], "Float32"),
        "boolean": pd.array([True, None], "boolean"),
        "string": pd.array(["", None], "string"),
        "numpy": [2**53 + 1, -1],
    }
)


def test_the_nullable_types_of_pandas_survive_a_round_trip(warehouse: Any, write: Any) -> None:
    manifest = write(NULLABLE)

    found = from_arrow(read_arrow(warehouse, [manifest]), FrameKind.PANDAS)

    pd.testing.assert_frame_equal(found, NULLABLE)


def test_an_integer_beside_a_null_is_never_rounded(warehouse: Any, write: Any) -> None:
    """pandas' usual type for both is a float, which has 53 bits."""
    manifest = write(pa.table({"large": [2**53 + 1, None], "small": [1, None]}))

    found = from_arrow(read_arrow(warehouse, [manifest]), FrameKind.PANDAS)

    assert found["large"].iloc[0] == 2**53 + 1
    assert found["small"].dtype == "float64"


def test_a_column_that_became_wider_has_the_type_of_all_its_files(warehouse: Any, write: Any) -> None:
    narrow = write(pd.DataFrame({"n": pd.array([1, None], "Int8")}))
    wide = write(pd.DataFrame({"n": pd.array([2**53 + 1], "Int64")}))

    found = from_arrow(read_arrow(warehouse, [narrow, wide]), FrameKind.PANDAS)

    assert found["n"].dropna().tolist() == [1, 2**53 + 1]


def test_a_lazy_frame_is_no_frame(write: Any) -> None:
    with pytest.raises(NotAFrame, match="LazyFrame"):
        write(pl.LazyFrame({"n": [1]}))


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_what_parts_and_batches_need_holds_for_each_kind(kind: FrameKind) -> None:
    frame = from_arrow(ROWS, kind)

    keyed = with_key(frame, "north")
    both = united([keyed, with_key(frame, "south")])

    assert frame_kind(type(both)) is kind
    assert column_names(both) == ["n", "s", "partition_key"]
    assert to_arrow(both)["partition_key"].to_pylist() == ["north"] * 3 + ["south"] * 3
    assert set(values_of(frame, "s", "orders", 10)) == {"x", None}
    assert to_arrow(rows_of(frame, "s", "x")).num_rows == 2
    assert to_arrow(rows_of(frame, "s", None)).num_rows == 1
    assert has_no_rows(rows_of(frame, "s", "y"))
    assert column_names(no_rows(kind, pytest.fail, "a")) == ["a"]


def test_the_class_of_a_frame_is_recognized_by_its_bases() -> None:
    class Mine(pd.DataFrame):
        pass

    assert frame_kind(Mine) is FrameKind.PANDAS
    assert frame_kind(dict) is None
