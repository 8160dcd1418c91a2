"""Equal rows have one content hash, whatever holds them; any other value, place, name or type changes it.

CI draws some pairs of tables, and `make values-long` 100,000.
"""

from __future__ import annotations

import os
import random
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from databuild_dagster.features.compare.content_hash import CannotHash, ContentHash, check_hashable, hash_of
from tests.values.columns import columns, plain

#: The hash of rows that a log may have is the same in each later version.
KEPT = "arrow-1:3:f286abe34b97930b1fd5f589bfc7949c"

PAIRS = int(os.environ.get("DATABUILD_PAIRS", "200"))
#: What the name of a type says of a layout, or of the values of a dictionary.
LAYOUT = re.compile(r"large_|_view|fixed_size_(?=list)|(?<=>)\[\d+\]|dictionary<values=(\w+), indices=\w+, ordered=\d>")


def hashed(table: pa.Table) -> ContentHash:
    return hash_of(table.to_batches())


def test_the_hash_of_a_table_stays_the_same_in_later_versions() -> None:
    table = pa.table(
        {
            "day": pa.array([1, 2, None], pa.date32()),
            "name": ["a", "longer than a word", ""],
            "price": pa.array([1.5, float("nan"), -0.0]),
            "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
            "where": pa.array([{"lat": 1, "lon": None}, None, {"lat": 0, "lon": 0}]),
        }
    )

    assert str(hashed(table)) == KEPT
    assert ContentHash.parsed(KEPT) == hashed(table)


@settings(max_examples=100)
@given(st.lists(columns(), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_order_of_rows_batches_and_layout_do_not_change_the_hash(drawn: list[pa.Array], chance: random.Random) -> None:
    rows = min(map(len, drawn))
    table = pa.table({f"c{n}": column[:rows] for n, column in enumerate(drawn)})
    order = list(range(rows))
    chance.shuffle(order)
    cut = chance.randint(0, rows)

    shuffled = pa.table({name: _taken(table[name], order) for name in table.column_names})
    other_layout = pa.table({name: _in_another_layout(table[name]) for name in table.column_names})

    assert hashed(shuffled) == hashed(table)
    assert hashed(table.slice(0, cut)) + hashed(table.slice(cut)) == hashed(table)
    assert hashed(other_layout) == hashed(table)


@pytest.mark.timeout(900 + PAIRS // 20)
def test_two_tables_have_one_hash_exactly_if_they_have_equal_rows() -> None:
    """Each of all tables that are drawn, compared with every other one."""
    rows_of: dict[ContentHash, str] = {}
    hash_of_rows: dict[str, ContentHash] = {}

    @settings(max_examples=PAIRS, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(columns(), min_size=1, max_size=3), st.lists(st.integers(0, 3), max_size=5))
    def compare(drawn: list[pa.Array], chosen: list[int]) -> None:
        n = min(map(len, drawn))
        table = pa.table({f"c{number}": column[:n] for number, column in enumerate(drawn)})
        rows = [row % n for row in chosen]
        other = pa.table({name: _taken(table[name], rows) for name in table.column_names})
        for one in (table, other):
            try:
                text = _rows(one)
            except OverflowError:  # The last moment of UTC is in the year 10000 of Berlin.
                reject()
            found = hashed(one)
            assert rows_of.setdefault(found, text) == text
            # No rows have one hash, whatever their columns.
            assert not one.num_rows or hash_of_rows.setdefault(text, found) == found

    compare()
    print(f"{PAIRS} pairs, {len(rows_of)} different tables")


@pytest.mark.parametrize("inner", [pa.map_(pa.string(), pa.null()), pa.list_(pa.null(), 1)], ids=str)
def test_lists_of_nulls_have_one_hash_wherever_their_buffers_begin(inner: pa.DataType) -> None:
    item = [("k", None)] if pa.types.is_map(inner) else [None]
    lists = pa.array([[item], [item, None], None, [item]], pa.list_(inner))

    within = pa.concat_arrays([lists, lists]).slice(len(lists))

    assert hashed(pa.table({"c": within})) == hashed(pa.table({"c": lists}))


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["value", "null", "swap", "row", "column"]))
def test_a_single_change_of_a_table_changes_its_hash(row: int, column: int, change: str) -> None:
    values: list[list[Any]] = [[10 * c + r for r in range(4)] for c in range(4)]
    before = hashed(pa.table({f"c{n}": pa.array(found, pa.int64()) for n, found in enumerate(values)}))

    names = [f"c{n}" for n in range(4)]
    match change:
        case "value":
            values[column][row] += 1
        case "null":
            values[column][row] = None
        case "swap":
            # Each column keeps its values, and each row its sum.
            values[column][row], values[column][row - 1] = values[column][row - 1], values[column][row]
        case "row":
            values = [found + found[row : row + 1] for found in values]
        case _:
            names[column], names[column - 1] = names[column - 1], names[column]

    after = pa.table(dict(zip(names, (pa.array(found, pa.int64()) for found in values), strict=True)))
    assert hashed(after) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([None, 1]), pa.array([1, None])),
        (pa.array([["a"], ["b"]]), pa.array([["a", "b"], []])),
        (pa.array([["a", "b"]]), pa.array([["ab"]])),
        (pa.array(["a\0"]), pa.array(["a"])),
        (pa.array([""]), pa.array([None], pa.string())),
        (pa.array([[]], pa.list_(pa.int64())), pa.array([[0]], pa.list_(pa.int64()))),
        (pa.array([{"a": None}]), pa.array([None], pa.struct([("a", pa.null())]))),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
        (pa.array(["a"]), pa.array([b"a"])),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)
def test_values_that_look_alike_have_different_hashes(one: pa.Array, other: pa.Array) -> None:
    # Beside a key, so that a row is more than its value.
    keys = pa.array(range(len(one)))

    assert hashed(pa.table({"k": keys, "c": one})) != hashed(pa.table({"k": keys, "c": other}))


def test_a_union_has_no_hash_and_is_named() -> None:
    union = pa.field("mixed", pa.list_(pa.dense_union([pa.field("a", pa.int64())])))

    with pytest.raises(CannotHash) as refused:
        check_hashable(pa.schema([union]))

    assert refused.value.facts["column"] == "mixed"


def _taken(column: pa.ChunkedArray, rows: list[int]) -> pa.ChunkedArray:
    """These rows, each in a batch of its own; Arrow's own function knows no views."""
    return pa.chunked_array([chunk for row in rows for chunk in column.slice(row, 1).chunks], column.type)


def _in_another_layout(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values behind other buffers."""
    type = column.type
    if pa.types.is_dictionary(type):
        return column.cast(type.value_type)
    if pa.types.is_string(type):
        return column.dictionary_encode()
    # Arrow casts lists of nulls to arrays that are not valid.
    if pa.types.is_list(type) and not re.search(r"[:,] null\b", str(type)):
        return column.cast(pa.large_list(type.value_type))
    if pa.types.is_integer(type):
        return pa.chunked_array([pc.run_end_encode(column.combine_chunks())])
    # A slice of a longer array: its buffers begin before its values.
    return pa.concat_tables([pa.table({"c": column}), pa.table({"c": column})]).combine_chunks()["c"].slice(len(column))


def _rows(table: pa.Table) -> str:
    """Types without their layout, and rows in any order."""
    if not table.num_rows:
        return ""
    types = [(field.name, LAYOUT.sub(r"\1", str(field.type))) for field in table.schema]
    return f"{types} {sorted(repr(plain(row)) for row in table.to_pylist())}"
