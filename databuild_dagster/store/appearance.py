"""Everything that the rules read of a ref beside the refs around it, in one value that can be compared.

Two refs with equal appearances, around which are refs with equal appearances too, have the same future. A ref with something of
its own, such as an open job run, a taint or a want that names others with it, is *special*: it is like no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.format import PREFIX as P
from databuild_dagster.store.format import one_of

_IN: Final = "IN (SELECT value FROM json_each(?))"
_WAITING: Final = one_of((InstanceState.UPSTREAM_BUILDING, InstanceState.UPSTREAM_FAILED))

#: The last column is 1 for a special ref.
_REFS: Final = f"""
SELECT r.ref, r.id, r.canonical_id, r.dataset_id, r.state, r.priority, r.deadline, r.misses, r.attempts, r.fail_fast,
    r.n_open_wants, r.due, r.origin, i.code_version, i.manifest_state, i.was_live,
    CASE WHEN coalesce(r.state, '{InstanceState.LIVE}') <> '{InstanceState.LIVE}' OR r.retry_at IS NOT NULL
        OR r.learned_id IS NOT NULL OR r.n_waiters > 0 OR r.n_joined > 0 OR coalesce(r.last_id, 0) <> coalesce(r.canonical_id, 0)
        OR coalesce(i.n_taints, 0) > 0 OR i.same_as_id IS NOT NULL THEN 1 ELSE 0 END
FROM {P}refs r LEFT JOIN {P}instances i ON i.id = r.canonical_id WHERE r.ref {_IN}"""
#: Refs that others missed in their last call, or have wanted to learn of.
_MISSED: Final = f"""
SELECT x.ref FROM {P}refs r JOIN {P}missing m ON m.instance_id = r.canonical_id JOIN {P}refs x ON x.id = m.ref_id
WHERE r.state IN {_WAITING} AND r.id {_IN}
UNION SELECT x.ref FROM {P}refs r JOIN {P}missing m ON m.instance_id = r.learned_id JOIN {P}refs x ON x.id = m.ref_id
WHERE r.id {_IN}"""
#: Refs that were built from an instance that was replaced since.
_FROM_REPLACED: Final = f"""
SELECT DISTINCT r.ref FROM {P}refs r JOIN {P}instance_inputs n ON n.instance_id = r.canonical_id
JOIN {P}refs x ON x.id = n.ref_id AND x.canonical_id <> n.input_id WHERE r.ref {_IN}"""
#: Refs whose rows are in other files too.
_SAME_ROWS: Final = f"""
SELECT r.ref FROM {P}refs r JOIN {P}instances o ON o.same_as_id = r.canonical_id WHERE r.ref {_IN}"""
_ASIDE: Final = f"SELECT name FROM {P}set_aside WHERE reason IS NOT NULL"


class Appearance(NamedTuple):
    """What the rules read of one ref."""

    #: None for a ref that the store does not know.
    ref_id: int | None
    canonical_id: int | None
    #: Equal for refs that are alike, but for their wants' times to live.
    traits: tuple[Any, ...]
    #: The ends of its wants, in the order of the wants in `traits`.
    expiries: tuple[float, ...]
    is_special: bool

    def ends_by(self, horizon: float) -> tuple[float, ...]:
        """The ends of its wants; later ones are no ends."""
        return tuple(at if at <= horizon else NEVER for at in self.expiries)


_UNKNOWN: Final = Appearance(None, None, (), (), is_special=False)


class Appearances:
    """Asks for the appearance of refs, in one snapshot of a store."""

    def __init__(self, connection: Connection, now: float, holding: str) -> None:
        """`holding` is the condition for wants `w` and their links `h` that count; it asks for the time."""
        self._connection = connection
        self._now = now
        self._wants = f"""
            SELECT r.ref, h.open, w.state, w.source, w.priority, w.deadline, w.fail_fast, w.withdrawn, w.reopened,
                CASE WHEN w.expires_at <= ? THEN 1 ELSE 0 END, w.expires_at,
                CASE WHEN w.n_refs > 1 OR w.keeping IS NOT NULL THEN 1 ELSE 0 END
            FROM {P}refs r JOIN {P}holds h ON h.ref_id = r.id JOIN {P}wants w ON w.id = h.want_id
            WHERE {holding} AND r.ref {_IN}"""

    def of(self, refs: Collection[Ref], behind: Mapping[int, Ref]) -> dict[Ref, Appearance]:
        """The appearance of each ref; `behind` are instances that a taint may cover, by row id."""
        keys = Keys(refs)
        rows = {row[0]: row[1:] for row in self._connection.execute(_REFS, (keys,))}
        wants: dict[Ref, list[tuple[Any, ...]]] = defaultdict(list)
        for ref, *want in self._connection.execute(self._wants, (self._now, self._now, keys)):
            wants[ref].append(tuple(want))
        special = self._special(keys, [row[0] for row in rows.values() if row[-1]])
        special.update(ref for row_id, ref in behind.items() if ref in rows and rows[ref][1] != row_id)
        return {
            ref: _appearance(rows[ref], wants.get(ref, ()), ref in special) if ref in rows else _UNKNOWN for ref in refs
        }

    def _special(self, keys: Keys, special_ids: list[int]) -> set[Ref]:
        ids = Keys(special_ids)
        return {
            *self._column(_FROM_REPLACED, keys),
            *self._column(_SAME_ROWS, keys),
            *self._column(_ASIDE),
            *(self._column(_MISSED, ids, ids) if ids else ()),
        }

    def _column(self, sql: str, *parameters: Any) -> list[Any]:
        return [value for (value,) in self._connection.execute(sql, parameters)]


def _appearance(row: tuple[Any, ...], wants: Iterable[tuple[Any, ...]], is_special: bool) -> Appearance:
    ref_id, canonical_id, *traits, is_special_row = row
    held = sorted(wants)
    return Appearance(
        ref_id,
        canonical_id,
        (*traits, *(want[:-2] for want in held)),
        tuple(want[-2] for want in held),
        bool(is_special or is_special_row or any(want[-1] for want in held)),
    )
