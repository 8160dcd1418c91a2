"""The common part of the queries: the store, pieces of SQL, and the columns of a statement.

Columns are written once, as an expression for each field of a row type, which also reads the rows. The list of columns and the
reading of rows have the same source, so no column can shift: an expression without a field, and an answer with more or fewer
columns than fields, raise.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from databuild_dagster.model.records import Time, time_of
from databuild_dagster.store.format import BITS, PREFIX
from databuild_dagster.store.store import Store

T = TypeVar("T")
Reader = Callable[[Any], Any]


class Selection(Generic[T]):
    """The columns of a row type, a named tuple or a record: `SELECT {selection.columns} …`, then `selection.rows(answer)`.

    A field without an expression of its own is the column of its name in the table behind `alias`. Enumerations, truth
    values, times and lists of texts are read as their annotations say; `readers` holds what else a field needs.
    """

    def __init__(
        self, row_type: type[T], alias: str, readers: Mapping[str, Reader] | None = None, /, **expressions: str
    ) -> None:
        hints = get_type_hints(row_type)
        assert expressions.keys() <= hints.keys(), f"{row_type.__name__} has no {expressions.keys() - hints.keys()}"
        self.columns = ", ".join(expressions.get(name) or f"{alias}.{name}" for name in hints)
        self._places = {name: place for place, name in enumerate(hints)}
        found = [(place, (readers or {}).get(name) or _reader_of(hints[name])) for name, place in self._places.items()]
        self._readers = [(place, reader) for place, reader in found if reader is not None]
        self._new: Callable[[Iterable[Any]], T] = (
            partial(tuple.__new__, row_type) if issubclass(row_type, tuple) else lambda values: row_type(*values)
        )

    def rows(self, answer: Sequence[tuple[Any, ...]], **readers: Reader) -> list[T]:
        """The rows of an answer; `readers` read fields whose meaning depends on the store.

        Raises `AssertionError` for other columns than the selection's.
        """
        if not answer:
            return []
        assert len(answer[0]) == len(self._places), f"{answer[0]} are not {list(self._places)}"
        all_readers = [*self._readers, *((self._places[name], reader) for name, reader in readers.items())]
        return list(map(partial(self._row, all_readers) if all_readers else self._new, answer))

    def by(self, answer: Sequence[tuple[Any, ...]]) -> list[tuple[Any, T]]:
        """Pairs of the key before the columns and the row: `SELECT key, {selection.columns} …`."""
        return list(zip((row[0] for row in answer), self.rows([row[1:] for row in answer]), strict=True))

    def places(self, *names: str) -> list[int]:
        """The places of some fields in a row of the database."""
        return [self._places[name] for name in names]

    def _row(self, readers: Sequence[tuple[int, Reader]], row: tuple[Any, ...]) -> T:
        values = list(row)
        for place, reader in readers:
            values[place] = reader(values[place])
        return self._new(values)


def _reader_of(hint: Any) -> Reader | None:
    is_optional = get_origin(hint) is UnionType
    (kind,) = [kind for kind in get_args(hint) if kind is not NoneType] if is_optional else [hint]
    if kind is bool:
        return bool
    if kind is Time:
        return time_of
    if get_origin(kind) is tuple:
        return msgspec.json.Decoder(kind).decode
    if isinstance(kind, type) and issubclass(kind, Enum):
        # A look-up takes a third of the time of a call of the enumeration, and planning asks for thousands.
        members: dict[Any, Enum | None] = {member.value: member for member in kind}
        return members.__getitem__ if not is_optional else {**members, None: None}.__getitem__
    return None


#: The largest seq whose row ids fit into the database's integers.
MAX_SEQ = (1 << (62 - BITS)) - 1

#: Counts that people read end here: the next number means "more than so many", and costs no more.
MAX_COUNTED = 10_000

#: The refs of a dataset, by the index over their texts: the asset itself, or the asset with an `@` and a key.
OF_DATASET = "(r.ref = ? OR (r.ref >= ? AND r.ref < ?)) "


def dataset_range(asset: str) -> tuple[str, str, str]:
    return asset, asset + "@", asset + chr(ord("@") + 1)


#: The instances of a ref as the table `chain`, from the newest back to the first.
CHAIN = f"""WITH RECURSIVE chain(id) AS (
            SELECT last_id FROM {PREFIX}refs WHERE ref = {{ref}} AND last_id IS NOT NULL
            UNION ALL SELECT p.previous_id FROM chain CROSS JOIN {PREFIX}instances p ON p.id = chain.id
            WHERE p.previous_id IS NOT NULL
        )"""

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """The values of each key, in order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


class Asking:
    """The queries of one subject to a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """The url of the store."""
        return self._store.url

    def _all(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._store.ask(sql, parameters)
