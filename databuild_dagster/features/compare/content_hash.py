"""A content hash of rows: `arrow-1`, the number of rows and the sum, modulo 2^128, of a hash of each row.

The hash of a row covers, per column in order: position, name, type, whether the value is null, and the value. It depends neither on
the order of rows nor on files, row groups, compression or dictionaries. Two hashes are equal if the rows are, up to the payload of a
NaN; hashes that differ say that something differs, `0.0` and `-0.0` too. It is no defense against somebody who looks for two tables
with one hash.

A value becomes two lanes of 64 bits, each mixed by the finalizer of MurmurHash3 with constants of the lane. A string, a list or a
struct is the sum of its mixed words, items or fields, each with its position, mixed again with the length: no step adds what a next step
does not mix, so that values which change places between rows or columns change the hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from databuild_dagster.model.errors import Refused

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Lane = NDArray[np.uint64]

NAME: Final = "arrow-1"
#: Rows of a batch, so that the arrays of one column stay small.
BATCH_ROWS: Final = 1 << 16
_MODULUS: Final = 1 << 128
#: Of each lane, what its words are multiplied with before they are mixed; and the weight of a position.
_LANES: Final = ((0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93), (0xC2B2AE3D27D4EB4F, 0xA0761D6478BD642F))
_NULL: Final = 0x6E756C6C
_WORD: Final = 8


class CannotHash(Refused):
    """The column {column!r} has the type {type}, whose values have no content hash."""

    hint = "Cast the column to another type, or leave same_data= out."


class ContentHash(NamedTuple):
    """The hash of a table. Hashes of two implementations (`name`) are never compared."""

    rows: int
    #: Below 2^128.
    sum: int
    name: str = NAME

    def __str__(self) -> str:
        return f"{self.name}:{self.rows}:{self.sum:032x}"

    @classmethod
    def parsed(cls, text: str) -> ContentHash:
        """The hash that `str` wrote. Raises `ValueError`."""
        name, rows, total = text.split(":")
        return cls(int(rows), int(total, 16), name)

    def __add__(self, other: object) -> ContentHash:
        """The hash of the rows of both."""
        assert isinstance(other, ContentHash), other
        assert other.name == self.name, f"{self.name} is not {other.name}"
        return ContentHash(self.rows + other.rows, (self.sum + other.sum) % _MODULUS, self.name)


def hash_of(batches: Iterable[pa.RecordBatch]) -> ContentHash:
    """The hash of all rows of batches of one schema. Raises `CannotHash`."""
    return sum(map(_hash_of_batch, batches), start=ContentHash(0, 0))


def check_hashable(schema: pa.Schema) -> None:
    """Raises `CannotHash` for the first column whose type has no hash."""
    for field in schema:
        _check(field.name, field.type)


class RowLanes(NamedTuple):
    """For each row 128 bits of its key, as two numbers, and 128 bits of each other column."""

    keys: NDArray[np.uint64]
    columns: dict[str, NDArray[np.uint64]]


def lanes_of_rows(table: pa.Table, key: Sequence[str]) -> RowLanes:
    """What tells rows of two tables apart, without their values. Raises `CannotHash`."""
    check_hashable(table.schema)
    keys: list[Any] = []
    columns: dict[str, list[Any]] = {name: [] for name in table.column_names if name not in key}
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        keys.append(_lanes_of(batch, key))
        for name, found in columns.items():
            found.append(_lanes_of(batch, [name]))
    return RowLanes(_stacked(keys), {name: _stacked(found) for name, found in columns.items()})


def _lanes_of(batch: pa.RecordBatch, names: Sequence[str]) -> NDArray[np.uint64]:
    fields = [(name, batch.schema.field(name).type, batch.column(name)) for name in names]
    first, second = _sum_of_fields(fields, batch.num_rows)
    return np.column_stack([_mixed(first, 0), _mixed(second, 0)])


def _stacked(parts: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.concatenate(parts) if parts else np.zeros((0, 2), np.uint64)


def _hash_of_batch(batch: pa.RecordBatch) -> ContentHash:
    total = 0
    for first in range(0, batch.num_rows, BATCH_ROWS):
        part = batch.slice(first, BATCH_ROWS)
        check_hashable(part.schema)
        lanes = _sum_of_fields(
            [(field.name, field.type, column) for field, column in zip(part.schema, part.columns, strict=True)],
            part.num_rows,
        )
        high, low = (_exact_sum(_mixed(lane, 0)) for lane in lanes)
        total += (high << 64) + low
    return ContentHash(batch.num_rows, total % _MODULUS)


def _exact_sum(lane: Lane) -> int:
    halves = (lane & np.uint64(0xFFFFFFFF), lane >> np.uint64(32))
    return int(halves[0].sum()) + (int(halves[1].sum()) << 32)


def _mixed(lane: Lane, seed: int) -> Lane:
    """The finalizer of MurmurHash3, a bijection of 64 bits, after a seed was added."""
    mixed = lane + np.uint64(seed)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


def _sum_of_fields(fields: list[tuple[str, pa.DataType, pa.Array]], n: int) -> tuple[Lane, Lane]:
    """Per row, the sum over its fields of what a field has, mixed with its position, name and type."""
    sums = (np.zeros(n, np.uint64), np.zeros(n, np.uint64))
    for position, (name, type, given) in enumerate(fields):
        values = _stored(given)
        lanes, is_null = _lanes(values), _nulls(values)
        for number, (total, lane) in enumerate(zip(sums, lanes, strict=True)):
            seed = _seed(number, position, name, _canonical_name(type))
            mixed = _mixed(lane, seed)
            if is_null is not None:
                mixed[is_null] = _mixed(np.array([seed], np.uint64), _NULL)[0]
            total += mixed
    return sums


def _seed(*facts: object) -> int:
    digest = hashlib.blake2b(repr(facts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _nulls(values: pa.Array) -> NDArray[np.bool_] | None:
    if not values.null_count:
        return None
    nulls: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _lanes(values: pa.Array) -> tuple[Lane, Lane]:
    """The lanes of each stored value; those of a null mean nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    type, n = values.type, len(values)
    if pa.types.is_null(type):
        return np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    if pa.types.is_struct(type):
        fields = [(field.name, field.type, values.field(k)) for k, field in enumerate(type)]
        # `field` knows no null of the struct, which hides its fields.
        return _remixed(*_sum_of_fields(fields, n), np.zeros(n, np.uint64))
    if pa.types.is_dictionary(type):
        indices = pc.fill_null(values.indices, 0).to_numpy(zero_copy_only=False)
        if not len(values.dictionary):
            return np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        first, second = _lanes(_stored(values.dictionary))
        return first[indices], second[indices]
    if pa.types.is_map(type) or _is_list(type):
        return _of_lists(values)
    if pa.types.is_large_binary(type):
        return _of_bytes(values)
    if pa.types.is_floating(type):
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        words = np.where(np.isnan(numbers), np.float64("nan"), numbers).view(np.uint64)
        return _whitened(words)
    if pa.types.is_boolean(type):
        return _whitened(values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    return _of_fixed_width(values)


def _stored(values: pa.Array) -> pa.Array:
    """The values in one of the few layouts that are hashed: a layout does not change a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    type = values.type
    if isinstance(type, pa.BaseExtensionType):
        return _stored(values.storage)
    if pa.types.is_run_end_encoded(type):
        return _stored(pc.run_end_decode(values))
    if pa.types.is_dictionary(type) and values.dictionary.null_count:
        return _stored(values.dictionary_decode())
    if _is_text(type) or _is_binary(type):
        return values.cast(pa.large_binary())
    return values


def _is_text(type: pa.DataType) -> bool:
    import pyarrow as pa

    return type in (pa.string(), pa.large_string(), pa.string_view())


def _is_binary(type: pa.DataType) -> bool:
    import pyarrow as pa

    return type in (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_list(type: pa.DataType) -> bool:
    import pyarrow.types as types

    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_kind(type) for is_kind in kinds)


def _whitened(words: Lane) -> tuple[Lane, Lane]:
    first, second = (_mixed(words * np.uint64(factor), 0) for factor, _ in _LANES)
    return first, second


def _remixed(first: Lane, second: Lane, lengths: Lane) -> tuple[Lane, Lane]:
    a, b = (
        _mixed(lane + lengths * np.uint64(factor), weight)
        for lane, (factor, weight) in zip((first, second), _LANES, strict=True)
    )
    return a, b


def _of_fixed_width(values: pa.Array) -> tuple[Lane, Lane]:
    """Integers, dates, times, decimals and binaries of one width, by their bytes."""
    width = values.type.bit_width // 8
    buffer = values.buffers()[1]
    n = len(values)
    if buffer is None or not n or not width:
        return np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    raw = np.frombuffer(buffer, np.uint8)[values.offset * width : (values.offset + n) * width].reshape(n, width)
    n_words = -(-width // _WORD)
    padded = np.zeros((n, n_words * _WORD), np.uint8)
    padded[:, :width] = raw
    words = padded.view(np.uint64)
    if n_words == 1:
        return _whitened(words[:, 0])
    positions = np.tile(np.arange(n_words, dtype=np.uint64), n)
    first, second = _positioned(_whitened(words.reshape(-1)), positions)
    lengths = np.full(n, n_words, np.uint64)
    return _remixed(first.reshape(n, n_words).sum(axis=1), second.reshape(n, n_words).sum(axis=1), lengths)


def _positioned(lanes: tuple[Lane, Lane], positions: Lane) -> tuple[Lane, Lane]:
    first, second = (
        _mixed(lane + positions * np.uint64(weight), factor)
        for lane, (factor, weight) in zip(lanes, _LANES, strict=True)
    )
    return first, second


def _of_bytes(values: pa.Array) -> tuple[Lane, Lane]:
    """Strings: words of eight bytes, the last one filled up with zeros, and the length."""
    offsets, buffer = _offsets(values), values.buffers()[2]
    n, starts, lengths = len(values), offsets[:-1], np.diff(offsets)
    n_words = -(-lengths // _WORD)
    ends = np.cumsum(n_words)
    words = np.zeros(int(ends[-1]) if n else 0, np.uint64)
    if len(words):
        data = np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]
        # Where each byte goes: its place, moved by what the strings before it were filled up with.
        moved = (ends - n_words) * _WORD - (starts - offsets[0])
        words.view(np.uint8)[np.arange(len(data)) + np.repeat(moved, lengths)] = data
    return _of_items(_whitened(words), n_words, lengths)


def _of_lists(values: pa.Array) -> tuple[Lane, Lane]:
    """Lists and maps, without a cast: Arrow aborts the process when it casts some lists of lists of nulls."""
    import pyarrow as pa

    type, n = values.type, len(values)
    if pa.types.is_fixed_size_list(type):
        offsets = np.arange(values.offset, values.offset + n + 1, dtype=np.int64) * type.list_size
    else:
        offsets = values.offsets.to_numpy().astype(np.int64) if n else np.zeros(1, np.int64)
    if pa.types.is_map(type):
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
    else:
        entries = values.values
    items = entries.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    first, second = _sum_of_fields([("item", items.type, items)], len(items))
    lengths = np.diff(offsets)
    return _of_items((first, second), lengths, lengths)


def _offsets(values: pa.Array) -> NDArray[np.int64]:
    n = len(values)
    if not n:
        return np.zeros(1, np.int64)
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + n + 1]


def _of_items(items: tuple[Lane, Lane], counts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[Lane, Lane]:
    """Of each value the sum of its items, each mixed with its position, and then with its length."""
    ends = np.cumsum(counts)
    positions = np.arange(len(items[0]), dtype=np.uint64) - np.repeat(ends - counts, counts).astype(np.uint64)
    sums = []
    for lane in _positioned(items, positions):
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lane, dtype=np.uint64)])
        sums.append(running[ends] - running[ends - counts])
    return _remixed(sums[0], sums[1], lengths.astype(np.uint64))


def _canonical_name(type: pa.DataType) -> str:
    """The name of a type without its layout."""
    import pyarrow as pa

    if isinstance(type, pa.BaseExtensionType):
        return f"{type.extension_name}({_canonical_name(type.storage_type)})"
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return _canonical_name(type.value_type)
    if pa.types.is_struct(type):
        return f"struct<{', '.join(f'{field.name!r}: {_canonical_name(field.type)}' for field in type)}>"
    if pa.types.is_map(type):
        return f"map<{_canonical_name(type.key_type)}, {_canonical_name(type.item_type)}>"
    if _is_list(type):
        return f"list<{_canonical_name(type.value_type)}>"
    if _is_text(type):
        return "string"
    if _is_binary(type):
        return "binary"
    return str(type)


def _check(column: str, type: Any) -> None:
    import pyarrow as pa

    # Arrow casts a view whose items are not in order wrongly.
    if pa.types.is_list_view(type) or pa.types.is_large_list_view(type):
        raise CannotHash(column=column, type=str(type))
    if isinstance(type, pa.BaseExtensionType):
        return _check(column, type.storage_type)
    if pa.types.is_union(type):
        raise CannotHash(column=column, type=str(type))
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return _check(column, type.value_type)
    for k in range(type.num_fields):
        _check(column, type.field(k).type)
    return None
