"""Partitions compared with what they were: equal or not, rows, columns, and values by the columns of a key.

Two instances are compared by the content hash of their rows, without a look at files if their builds recorded the hash, or if the
manifests list the same bytes. Where it differs, the schemas are compared, then each column by a hash of its own, and with a key each
row. Rows are read here, by Arrow, one partition at a time; the pair of one instance is not read at all.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from databuild_dagster.calls.contents import NO_ROWS, REMOVED_NOTE, unreadable_note
from databuild_dagster.data.read_plan import Moment
from databuild_dagster.features.compare.content_hash import CannotHash, hash_of, lanes_of_rows
from databuild_dagster.features.compare.differences import ColumnChange, column_changes
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    import pyarrow as pa

#: How a checksum begins that is one of the bytes of a file; an object store has others.
OF_BYTES: Final = "sha256:"
#: Instances of a ref that are searched for the predecessor.
MAX_BEFORE: Final = 100

#: `same` is one instance, `equal` two with equal rows; `unknown` has a note. `new` is what `added` is in an environment.
Outcome = Literal["same", "equal", "different", "added", "new", "removed", "missing", "unknown"]


class NoSuchKey(Refused):
    """{ref} has no column {column!r}, which is to be part of the key."""

    hint = "`databuild show {ref}` lists its columns."


#: A number, or a time as text.
End = int | float | Decimal | str


class Span(msgspec.Struct, frozen=True):
    """The number of nulls of a column, and its least and greatest number or time; None for columns of other types."""

    nulls: int
    least: End | None
    greatest: End | None


class ValueChange(msgspec.Struct, frozen=True):
    """A column whose values differ; `rows` is in how many rows of both sides, None without a key."""

    name: str
    rows: int | None
    a: Span
    b: Span


class PartitionDifference(msgspec.Struct, frozen=True):
    """A partition then (`a`) and now (`b`). The rows that were added, removed and changed are None without a key."""

    ref: Ref
    outcome: Outcome
    a: str | None = None
    b: str | None = None
    rows_a: int | None = None
    rows_b: int | None = None
    added: int | None = None
    removed: int | None = None
    changed: int | None = None
    columns: Sequence[ColumnChange] = ()
    values: Sequence[ValueChange] = ()
    note: str | None = None
    #: The rows are equal by the hashes that the builds recorded of rows or files, so that no file was read (rule 4.6).
    by_hash: bool = False


class Counts(msgspec.Struct, frozen=True):
    """The number of refs of each outcome."""

    counts: dict[Outcome, int]
    #: Of the equal refs, those whose files were not read.
    by_hash: int

    @property
    def sentence(self) -> str:
        """The counts in words."""
        outcomes = {str(outcome): n for outcome, n in self.counts.items()}
        outcomes |= {"equal": outcomes.get("equal", 0) - self.by_hash, "equal by hash": self.by_hash}
        return ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(outcomes.items()) if n) or "no partitions"


class RangeDifference(Counts, frozen=True):
    """The counts, and the refs that are neither the same, nor equal, nor missing on both sides."""

    partitions: list[PartitionDifference]


class Pair(NamedTuple):
    """The instances of a ref then and now; None where readers saw no data."""

    ref: Ref
    a: str | None
    b: str | None


def differences_of(
    queries: Queries, refs: Sequence[Ref], then: Moment | None, key: Sequence[str]
) -> Iterator[PartitionDifference]:
    """Each ref compared with what readers saw then; without a moment, with the last live instance before its canonical one.

    A partition that cannot be read here has a note. Raises `NoSuchKey`.
    """
    return compared(list(_pairs(queries, refs, then)), queries, queries, key)


def compared(
    pairs: Sequence[Pair], before: Queries, after: Queries, key: Sequence[str]
) -> Iterator[PartitionDifference]:
    """The differences of pairs, whose instances may be in different logs. Raises `NoSuchKey`."""
    old = before.instances.content_hashes([pair.a for pair in pairs if pair.a is not None])
    new = after.instances.content_hashes([pair.b for pair in pairs if pair.b is not None])
    for pair in pairs:
        if pair.a is None or pair.b is None:
            outcome: Outcome = "missing" if pair.a == pair.b else "added" if pair.a is None else "removed"
            yield PartitionDifference(pair.ref, outcome, pair.a, pair.b)
        elif pair.a == pair.b:
            yield PartitionDifference(pair.ref, "same", pair.a, pair.b)
        elif pair.a in old and old[pair.a] == new.get(pair.b):
            yield PartitionDifference(pair.ref, "equal", pair.a, pair.b, by_hash=True)
        else:
            found = PartitionDifference(pair.ref, "different", pair.a, pair.b)
            try:
                one, other = (_stored("Before", before, pair.ref, pair.a), _stored("After", after, pair.ref, pair.b))
                yield _difference(found, one, other, key)
            except _UnknownError as why:
                yield replace(found, outcome="unknown", note=str(why))


def summed(differences: Iterable[PartitionDifference]) -> RangeDifference:
    """The differences of a range."""
    counts: Counter[Outcome] = Counter()
    partitions = []
    by_hash = 0
    for difference in differences:
        counts[difference.outcome] += 1
        by_hash += difference.by_hash
        if difference.outcome not in ("same", "equal", "missing"):
            partitions.append(difference)
    return RangeDifference(dict(counts), by_hash, partitions)


def _pairs(queries: Queries, refs: Sequence[Ref], then: Moment | None) -> Iterator[Pair]:
    now = queries.canonical.of(refs)
    before = queries.canonical.at(refs, then.seq) if then is not None and then.seq is not None else None
    for ref in refs:
        b = now[ref].uuid if now[ref].live_at is not None else None
        if before is not None:
            yield Pair(ref, before[ref].uuid if before[ref].live_at is not None else None, b)
        else:
            yield Pair(ref, _one_before(queries, ref, b), b)


def _one_before(queries: Queries, ref: Ref, uuid: str | None) -> str | None:
    """The last live instance before one; before none, which is no longer live, the newest."""
    found = [instance for instance in queries.instances.history(ref, MAX_BEFORE) if instance.live_at is not None]
    uuids = [instance.uuid for instance in found]
    place = uuids.index(uuid) if uuid in uuids else len(uuids) if uuid is None else 0
    return uuids[place - 1] if place else None


class _UnknownError(Exception):
    """The rows of a side are not known; the text says of which and why."""


class _Stored(NamedTuple):
    """The data of a side."""

    side: str
    warehouse: Warehouse
    manifest: Manifest


def _stored(side: str, queries: Queries, ref: Ref, uuid: str) -> _Stored:
    """Raises `_UnknownError`."""
    instance, asset = queries.instances.get(uuid, most_inputs=0), asset_of(ref)
    if instance is None or instance.manifest_uri is None:
        raise _UnknownError(f"{side}: Its data is in a place that is not databuild's.")
    if instance.manifest_state == REMOVED:
        raise _UnknownError(f"{side}: {REMOVED_NOTE}")
    with _reading(side):
        warehouse = Warehouse.of_manifest(instance.manifest_uri, asset)
        return _Stored(side, warehouse, read_manifest(warehouse, asset, uuid))


def _rows(stored: _Stored) -> "pa.Table":
    """Raises `_UnknownError`."""
    from databuild_dagster.spark.frames import read_arrow

    with _reading(stored.side):
        return read_arrow(stored.warehouse, [stored.manifest])


@contextmanager
def _reading(side: str) -> Iterator[None]:
    try:
        yield
    except NO_ROWS as error:
        raise _UnknownError(f"{side}: {unreadable_note(error)}") from error


def _difference(found: PartitionDifference, one: _Stored, other: _Stored, key: Sequence[str]) -> PartitionDifference:
    """Raises `_UnknownError`, `NoSuchKey`."""
    if _files_are_equal(one.manifest, other.manifest):
        return replace(found, outcome="equal", by_hash=True)
    before, after = _rows(one), _rows(other)
    columns = column_changes(one.manifest.schema.columns, other.manifest.schema.columns)
    found = replace(found, rows_a=before.num_rows, rows_b=after.num_rows, columns=columns)
    try:
        if not columns and hash_of(before.to_batches()) == hash_of(after.to_batches()):
            return replace(found, outcome="equal")
        if key and before.num_rows and after.num_rows:
            return _with_reason(_by_key(found, before, after, key), before, after)
        values = [_change(before, after, name) for name in _common(before, after) if _differs(before, after, name)]
    except CannotHash as error:
        return replace(found, outcome="unknown", note=error.message)
    return _with_reason(replace(found, values=values), before, after)


def _files_are_equal(one: Manifest, other: Manifest) -> bool:
    """The files have the same bytes, in any order, and are read alike."""
    files = [sorted((file.checksum, file.bytes, file.rows) for file in manifest.files) for manifest in (one, other)]
    is_of_bytes = all(checksum.startswith(OF_BYTES) for checksum, _, _ in files[0])
    return is_of_bytes and files[0] == files[1] and (one.schema, one.format) == (other.schema, other.format)


def _with_reason(found: PartitionDifference, before: "pa.Table", after: "pa.Table") -> PartitionDifference:
    """With a note where neither a column nor a value differs by itself."""
    if found.note or found.columns or found.values or found.added or found.removed or before.num_rows != after.num_rows:
        return found
    has_order = before.column_names == after.column_names
    return replace(found, note="Values are in other rows." if has_order else "The columns have another order.")


def _common(before: "pa.Table", after: "pa.Table") -> list[str]:
    return [name for name in after.column_names if name in before.column_names]


def _differs(before: "pa.Table", after: "pa.Table", name: str) -> bool:
    one, other = (hash_of(table.select([name]).to_batches()) for table in (before, after))
    return one != other


def _by_key(
    difference: PartitionDifference, before: "pa.Table", after: "pa.Table", key: Sequence[str]
) -> PartitionDifference:
    import numpy as np

    for column in key:
        sides = [column in table.column_names for table in (before, after)]
        if not any(sides):
            raise NoSuchKey(ref=difference.ref, column=column)
        if not all(sides):
            return replace(difference, note=f"The key {column} is a column {'before' if sides[0] else 'after'} alone.")
    one, other = lanes_of_rows(before, key), lanes_of_rows(after, key)
    firsts = [np.unique(lanes.keys[:, 0], return_index=True) for lanes in (one, other)]
    for table, (found, _) in zip((before, after), firsts, strict=True):
        if len(found) != table.num_rows:
            note = f"{table.num_rows - len(found)} of {table.num_rows} rows have a key that another row has."
            return replace(difference, note=note)
    _, of_one, of_other = np.intersect1d(firsts[0][0], firsts[1][0], assume_unique=True, return_indices=True)
    at, to = firsts[0][1][of_one], firsts[1][1][of_other]
    # Rows were found by half of the hash of their key.
    same_key = one.keys[at, 1] == other.keys[to, 1]
    at, to = at[same_key], to[same_key]
    differs = {
        name: (one.columns[name][at] != other.columns[name][to]).any(axis=1)
        for name in _common(before, after)
        if name not in key
    }
    any_differs = np.zeros(len(at), bool)
    for found in differs.values():
        any_differs |= found
    return replace(
        difference,
        added=after.num_rows - len(at),
        removed=before.num_rows - len(at),
        changed=int(any_differs.sum()),
        values=[_change(before, after, name, int(found.sum())) for name, found in differs.items() if found.any()],
    )


def _change(before: "pa.Table", after: "pa.Table", name: str, rows: int | None = None) -> ValueChange:
    return ValueChange(name, rows, _span(before.column(name)), _span(after.column(name)))


def _span(column: "pa.ChunkedArray") -> Span:
    import pyarrow.compute as pc
    import pyarrow.types as types

    # The ends of a text are rows of somebody, which do not belong into a pull request.
    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_temporal)
    if not any(is_kind(column.type) for is_kind in kinds):
        return Span(column.null_count, None, None)
    ends = pc.min_max(column)
    return Span(column.null_count, *(_plain(ends[name].as_py()) for name in ("min", "max")))


def _plain(value: Any) -> End | None:
    is_number = isinstance(value, int | Decimal) or (isinstance(value, float) and math.isfinite(value))
    return value if value is None or is_number else str(value)
