"""A copy of some refs and of what is around them, and everything that the rules read of a ref, in a value to compare.

Two refs with equal appearances, around which are refs with equal appearances too, have the same future. A ref with something of
its own, such as an open job run, a taint or a want that also names other refs, is *special*: it is like no other ref.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from databuild_dagster.model.coordination import DelegationOutcome
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER
from databuild_dagster.model.states import ARC, InstanceState, WantState
from databuild_dagster.model.view import Openness
from databuild_dagster.store.backends.base import Connection, Keys
from databuild_dagster.store.format import BITS, one_of
from databuild_dagster.store.format import PREFIX as P
from databuild_dagster.store.queries.asking import grouped
from databuild_dagster.store.queries.canonical import BUILT_FROM_ROOTS
from databuild_dagster.store.store import Store

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
#: Refs that other refs missed in their last call, or have wanted to learn of.
_MISSED_BY: Final = f"""
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
    """All that the rules read of a ref."""

    #: None for a ref that the store does not know.
    ref_id: int | None
    canonical_id: int | None
    #: Equal for refs that are alike, but for their wants' times to live.
    traits: tuple[Any, ...]
    #: The ends of its wants, in the order of the wants in `traits`.
    expiries: tuple[float, ...]
    is_special: bool

    def ends_by(self, horizon: float) -> tuple[float, ...]:
        """The ends of its wants; later ends count as never."""
        return tuple(at if at <= horizon else NEVER for at in self.expiries)


_UNKNOWN: Final = Appearance(None, None, (), (), is_special=False)


class Appearances:
    """Asks for the appearance of refs, in a snapshot of a store."""

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
            *(self._column(_MISSED_BY, ids, ids) if ids else ()),
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


#: Wants that count, or that a taint may open again (rule 5.3).
_WANTS_THAT_HOLD: Final = f"""(
    h.open = {int(Openness.OPEN)} OR (h.open = {int(Openness.SUCCESSFUL)} AND w.keeping IS NULL AND w.expires_at > ?))"""
#: The last want of a lot, by whose end its arc wants it again (rule 10.5).
_LAST_OF_LOT: Final = f"""(
    h.open = {int(Openness.ENDED)} AND w.source = '{ARC}' AND w.state = '{WantState.UPSTREAM_FAILED}' AND h.want_id =
    (SELECT max(l.want_id) FROM {P}holds l WHERE l.ref_id = h.ref_id AND l.open = {int(Openness.ENDED)}))"""

#: The refs next to some refs, by their ids: refs that wait for them, that they miss or missed in their last call, of the
#: same want, and of the same open job run.
_WAITERS: Final = f"SELECT i.ref_id FROM {P}missing m JOIN {P}instances i ON i.id = m.instance_id WHERE m.active = 1 AND m.ref_id {_IN}"
_MISSED: Final = f"""
SELECT m.ref_id FROM {P}refs r JOIN {P}missing m ON m.instance_id = r.canonical_id WHERE r.state IN {_WAITING} AND r.id {_IN}
UNION SELECT m.ref_id FROM {P}refs r JOIN {P}missing m ON m.instance_id = r.learned_id WHERE r.id {_IN}"""
_WANTED_WITH: Final = f"""
SELECT x.ref_id FROM (SELECT DISTINCT h.want_id FROM {P}holds h JOIN {P}wants w ON w.id = h.want_id
    WHERE w.n_refs > 1 AND {_WANTS_THAT_HOLD} AND h.ref_id {_IN}) y JOIN {P}want_refs x ON x.want_id = y.want_id"""
_BUILT_WITH: Final = f"""
SELECT o.ref_id FROM {P}refs r JOIN {P}instances i ON i.id = r.canonical_id JOIN {P}job_runs j ON j.id = i.job_run_id
JOIN {P}instances o ON o.id > j.id AND o.id < ((j.id >> {BITS}) + 1) << {BITS} AND o.job_run_id = j.id
WHERE r.state = '{InstanceState.BUILDING}' AND r.id {_IN}"""
#: The instances with the rows of some refs, and instances built from them, directly or not (rule 7.3).
_BEHIND: Final = f"""
WITH RECURSIVE roots(id) AS (
    SELECT coalesce(i.same_as_id, i.id) FROM {P}refs r JOIN {P}instances i ON i.id = r.canonical_id WHERE r.ref {_IN}
), made(id) AS ({BUILT_FROM_ROOTS}
) SELECT i.id, r.ref FROM made JOIN {P}instances i ON i.id = made.id JOIN {P}refs r ON r.id = i.ref_id LIMIT ?"""


class InPlaceOf(NamedTuple):
    """The row ids of refs that an excerpt leaves out, and of their canonical instances, each with the row id in place of it."""

    refs: Mapping[int, int]
    instances: Mapping[int, int]


NOTHING_LEFT_OUT: Final = InPlaceOf({}, {})


class Surroundings:
    """The rows around refs, in a snapshot of a store."""

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self.now = now

    def behind(self, refs: Iterable[Ref], most: int) -> dict[int, Ref]:
        """The live instances of `refs`, and the instances built from them; at most `most`."""
        return dict(self._connection.execute(_BEHIND, (Keys(refs), most)))

    def states(self, refs: Iterable[Ref]) -> dict[Ref, str | None]:
        """The state of each ref that has a row."""
        return dict(self._connection.execute(f"SELECT ref, state FROM {P}refs WHERE ref {_IN}", (Keys(refs),)))

    def next_to(self, refs: Iterable[Ref]) -> set[Ref]:
        """Neighbours of `refs`: dependants that react to a change, and inputs that `refs` wait for."""
        ids = Keys(self._column(f"SELECT id FROM {P}refs WHERE ref {_IN}", Keys(refs)))
        found = {
            *self._column(_WAITERS, ids),
            *self._column(_MISSED, ids, ids),
            *self._column(_WANTED_WITH, self.now, ids),
            *self._column(_BUILT_WITH, ids),
        }
        return set(self._column(f"SELECT ref FROM {P}refs WHERE id {_IN}", Keys(found)))

    def read_by(self, refs: Iterable[Ref]) -> dict[Ref, tuple[Ref, ...]]:
        """The refs that the canonical instance of each was built from; a ref without any is left out."""
        sql = f"""SELECT r.ref, x.ref FROM {P}refs r JOIN {P}instance_inputs n ON n.instance_id = r.canonical_id
            JOIN {P}refs x ON x.id = n.ref_id WHERE r.ref {_IN} ORDER BY x.ref"""
        return grouped(self._connection.execute(sql, (Keys(refs),)))

    def appearances(self, refs: Collection[Ref], behind: Mapping[int, Ref]) -> dict[Ref, Appearance]:
        """The appearance of each of `refs`; `behind` are the instances that a taint may reach."""
        return Appearances(self._connection, self.now, _WANTS_THAT_HOLD).of(refs, behind)

    def _column(self, sql: str, *parameters: Any) -> list[Any]:
        return [value for (value,) in self._connection.execute(sql, parameters)]

    def copy(
        self,
        reached: Collection[Ref],
        around: Collection[Ref],
        behind: Collection[int],
        in_place_of: InPlaceOf = NOTHING_LEFT_OUT,
    ) -> Store:
        """A store in memory with the rows of the given refs; `behind` are instances that a taint may reach. The caller closes it."""
        excerpt = Store("sqlite://", shared=False)
        with excerpt.writing() as work:
            _Copying(self._connection, work.connection, self.now, in_place_of).copy(reached, around, behind)
        return excerpt


class _Copying:
    """Copies rows from a source database into a target database."""

    def __init__(self, source: Connection, target: Connection, now: float, in_place_of: InPlaceOf) -> None:
        self._source, self._target = source, target
        self._now = now
        self._in_place_of = in_place_of

    def copy(self, reached: Collection[Ref], around: Collection[Ref], behind: Collection[int]) -> None:
        # The trigger admits the next number only, and the first event here is the last one of the log.
        self._target.execute(f"DROP TRIGGER {P}events_only_next")
        self._rows("events", f"seq = (SELECT max(seq) FROM {P}events)")
        for table, which in (("datasets", "1 = 1"), ("arcs", "1 = 1"), ("pauses", "ended_seq IS NULL")):
            self._rows(table, which)
        self._rows("set_aside", "reason IS NOT NULL")
        reached_ids = self._copy_builds(reached, around, behind)
        self._copy_wants(reached_ids)
        self._rows("delegations", f"outcome = '{DelegationOutcome.WAITING}' AND ref_id {_IN}", reached_ids)

    def _copy_builds(self, reached: Collection[Ref], around: Collection[Ref], behind: Collection[int]) -> Keys:
        """Refs, their instances, and what made the instances; returns the ids of the reached refs."""
        all_refs = self._rows("refs", f"ref {_IN}", Keys({*reached, *around, *self._refs_of(behind)}))
        known = set(reached)
        mine = [row for row in all_refs if row["ref"] in known]
        canonical = Keys(row["canonical_id"] for row in mine if row["canonical_id"] is not None)
        read = {input_id for _, _, input_id in self._inputs(canonical)}
        named = (row[name] for row in all_refs for name in ("canonical_id", "last_id", "learned_id"))
        ids = Keys({*(row_id for row_id in named if row_id is not None), *behind, *read})
        instances = self._rows("instances", f"id {_IN}", ids)
        runs = self._rows("job_runs", f"id {_IN}", Keys({row["job_run_id"] for row in instances}))
        self._rows("launches", f"id {_IN}", Keys({row["launch_id"] for row in runs}))
        waiting = Keys({row[name] for row in mine for name in ("canonical_id", "learned_id") if row[name] is not None})
        self._rows("missing", f"instance_id {_IN}", waiting)
        copied = set(ids)
        self._insert("instance_inputs", [row for row in self._inputs(ids) if row[2] in copied])
        carried = self._rows("taint_instances", f"canceled_at IS NULL AND instance_id {_IN}", ids)
        self._rows("taints", f"id {_IN}", Keys({row["taint_id"] for row in carried}))
        return Keys(row["id"] for row in mine)

    def _copy_wants(self, ref_ids: Keys) -> None:
        sql = f"""SELECT DISTINCT h.want_id FROM {P}holds h JOIN {P}wants w ON w.id = h.want_id
            WHERE ({_WANTS_THAT_HOLD} OR {_LAST_OF_LOT}) AND h.ref_id {_IN}"""
        wants = Keys(self._column(sql, self._now, ref_ids))
        self._rows("wants", f"id {_IN}", wants)
        self._rows("want_refs", f"want_id {_IN}", wants)
        self._rows("holds", f"ref_id {_IN} AND +want_id {_IN}", ref_ids, wants)
        self._rows("kept_for", f"want_id {_IN}", wants)

    def _inputs(self, instance_ids: Keys) -> list[tuple[int, int, int]]:
        """The inputs of instances (instance, ref, input), each once; an input that is left out is replaced as `in_place_of` says."""
        refs, instances = self._in_place_of
        sql = f"SELECT instance_id, ref_id, input_id FROM {P}instance_inputs WHERE instance_id {_IN}"
        found = self._source.execute(sql, (instance_ids,))
        if not refs:
            return [tuple(row) for row in found]
        # By the key of the table: a ref is one input of an instance, whichever of its instances.
        by_key = {}
        for instance_id, ref_id, input_id in found:
            if input_id in instances:
                by_key[instance_id, refs[ref_id]] = instances[input_id]
            else:
                by_key.setdefault((instance_id, ref_id), input_id)
        return [(*key, input_id) for key, input_id in by_key.items()]

    def _refs_of(self, instance_ids: Iterable[int]) -> list[Ref]:
        sql = f"SELECT r.ref FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id WHERE i.id {_IN}"
        return self._column(sql, Keys(instance_ids))

    def _column(self, sql: str, *parameters: Any) -> list[Any]:
        return [value for (value,) in self._source.execute(sql, parameters)]

    def _rows(self, name: str, which: str, *parameters: Any) -> list[dict[str, Any]]:
        """Copy the rows of a table for which a condition holds, and return them."""
        from databuild_dagster.store.schema import metadata

        columns = metadata.tables[P + name].columns.keys()
        named = ", ".join(columns)
        rows = self._source.execute(f"SELECT {named} FROM {P}{name} WHERE {which}", parameters).fetchall()
        self._insert(name, [tuple(row) for row in rows])
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _insert(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows with all columns of a table."""
        if rows:
            values = ", ".join("?" * len(rows[0]))
            self._target.executemany(f"INSERT INTO {P}{name} VALUES ({values})", rows)
