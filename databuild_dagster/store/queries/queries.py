"""All queries to the state, by subject; each larger subject has a module. They read by keys and partial indexes.

Here: registered datasets and arcs (rule 10.5), and the event log by seq, by time and by public names (rule 3.1).
"""

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from databuild_dagster.model.command_ids import CONTINUATION
from databuild_dagster.model.datasets import DatasetSpec, dataset_from
from databuild_dagster.model.errors import UnknownAsset
from databuild_dagster.model.events import Event
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.places import Places
from databuild_dagster.store.queries.asking import Asking, Selection
from databuild_dagster.store.queries.canonical import CanonicalQueries
from databuild_dagster.store.queries.ids import IdQueries
from databuild_dagster.store.queries.instances import InstanceQueries
from databuild_dagster.store.queries.job_runs import JobRunQueries, LaunchQueries
from databuild_dagster.store.queries.planning import PlanningQueries
from databuild_dagster.store.queries.wants import WantQueries
from databuild_dagster.store.store import Store, again_if_cut


class ArcView(NamedTuple):
    """An arc in force, and the event up to which it has been followed."""

    asset: str
    seq: int
    #: The registration by which it is in force.
    since: int


_ARC = Selection(ArcView, "a")


class Firing(NamedTuple):
    """The newest source instance that woke an arc."""

    arc: str
    ref: Ref
    uuid: str
    #: The time of its data; None for an instance that is not live.
    live_at: float | None
    #: The event that recorded the firing.
    seq: int


class LateInput(NamedTuple):
    """An input that got new data after an instance was built from its old data."""

    #: The instance with the old data.
    built_ref: Ref
    built_uuid: str
    built_at: float
    #: The input, with its new instance.
    ref: Ref
    uuid: str
    arrived_at: float


_FIRING = Selection(Firing, "f", arc="a.asset", ref="r.ref", uuid="i.uuid", live_at="i.live_at")
_LATE = Selection(
    LateInput,
    "n",
    built_ref="b.ref",
    built_uuid="i.uuid",
    built_at="i.live_at",
    ref="r.ref",
    arrived_at="coalesce(e.at, n.live_at)",
)


class DatasetQueries(Asking):
    """Datasets and arcs."""

    def get(self, asset: str) -> DatasetSpec | None:
        rows = self._all(f"SELECT spec FROM {PREFIX}datasets WHERE asset = ? AND removed = 0", asset)
        return dataset_from(rows[0][0]) if rows else None

    def known(self, asset: str) -> DatasetSpec:
        """Raises `UnknownAsset`, with near names."""
        found = self.get(asset)
        if found is None:
            raise UnknownAsset(asset=asset, names=[spec.asset for spec in self.all().values()])
        return found

    def all(self, location: str | None = None) -> dict[int, DatasetSpec]:
        """Registered datasets by row id, of a location or of all."""
        sql = f"SELECT id, spec FROM {PREFIX}datasets WHERE removed = 0 AND (CAST(? AS TEXT) IS NULL OR location = ?) ORDER BY id"
        return {row_id: dataset_from(spec) for row_id, spec in self._all(sql, location, location)}

    def arcs(self) -> list[ArcView]:
        """The arcs in force, in the order of their registration (rule 10.5)."""
        sql = f"SELECT {_ARC.columns} FROM {PREFIX}arcs a WHERE removed = 0 ORDER BY id"
        return _ARC.rows(self._all(sql))

    def is_arc(self, asset: str) -> bool:
        """Whether an asset is an arc in force."""
        sql = f"""
            SELECT 1 FROM {PREFIX}arcs a JOIN {PREFIX}datasets d ON d.asset = a.asset
            WHERE a.asset = ? AND a.removed = 0 AND d.removed = 0"""
        return bool(self._all(sql, asset))

    def ref_counts(self) -> list[tuple[str, str, int]]:
        """(asset, canonical state, how many refs), without missing refs. Looks at every ref."""
        sql = f"""
            SELECT d.asset, r.state, count(*) FROM {PREFIX}refs r JOIN {PREFIX}datasets d ON d.id = r.dataset_id
            WHERE r.state IS NOT NULL GROUP BY d.asset, r.state ORDER BY d.asset, r.state"""
        return [(asset, state, n) for asset, state, n in self._all(sql)]

    def last_firings(self, arcs: Iterable[str]) -> dict[str, Firing]:
        """The newest firing of each of `arcs`; an arc that never fired is left out."""
        sql = f"""
            SELECT {_FIRING.columns} FROM {PREFIX}arcs a JOIN {PREFIX}arc_firings f ON f.arc_id = a.id
            AND (f.seq, f.instance_id) = (SELECT x.seq, x.instance_id FROM {PREFIX}arc_firings x WHERE x.arc_id = a.id
                ORDER BY x.seq DESC, x.instance_id DESC LIMIT 1)
            JOIN {PREFIX}instances i ON i.id = f.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id
            WHERE a.asset IN (SELECT value FROM json_each(?)) ORDER BY f.seq"""
        return {firing.arc: firing for firing in _FIRING.rows(self._all(sql, Keys(arcs)))}

    def late_inputs(self, uuids: Iterable[str], most: int) -> list[LateInput]:
        """The inputs of `uuids` that have live, newer data, the latest first. What came back (rule 4.9) is new, and a compaction is not."""
        sql = f"""
            SELECT {_LATE.columns} FROM {PREFIX}instances i JOIN {PREFIX}refs b ON b.id = i.ref_id
            JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id JOIN {PREFIX}instances u ON u.id = x.input_id
            JOIN {PREFIX}refs r ON r.id = u.ref_id JOIN {PREFIX}instances n ON n.id = r.canonical_id
            LEFT JOIN {PREFIX}events e ON e.seq > i.created_seq AND e.seq = (SELECT max(v.seq) FROM {PREFIX}reverts v
                WHERE v.ref_id = n.ref_id AND v.instance_id = n.id AND v.returned = 1)
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND (n.id > u.id OR e.at IS NOT NULL) AND n.state = '{InstanceState.LIVE}'
              AND coalesce(n.same_as_id, n.id) <> coalesce(u.same_as_id, u.id)
            ORDER BY coalesce(e.at, n.live_at) DESC, r.ref, b.ref LIMIT ?"""
        return _LATE.rows(self._all(sql, Keys(uuids), most))


#: Characters of a fingerprint.
FINGERPRINT = 16


class Change(NamedTuple):
    """A move of an instance, a want or a job run: from a state, None at birth, to the next state."""

    #: "instances", "wants" or "job_runs".
    kind: str
    #: A ref for an instance, else the public id.
    entity: str
    before: str | None
    after: str


_NAMES = {
    "instances": f"SELECT i.id, r.ref FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id "
    "WHERE i.id IN (SELECT value FROM json_each(?))",
    "wants": f"SELECT id, want_id FROM {PREFIX}wants WHERE id IN (SELECT value FROM json_each(?))",
    "job_runs": f"SELECT id, job_run_id FROM {PREFIX}job_runs WHERE id IN (SELECT value FROM json_each(?))",
}


class EventQueries(Asking):
    """The log itself."""

    def head(self) -> log.Head:
        rows = self._all(log.HEAD)
        return log.Head(*rows[0]) if rows else log.Head(0, 0.0)

    def check_head(self, head: log.Head) -> None:
        """Raises `LogWentBack`, `StoreReplaced`."""
        self._store.check_head(head.seq)

    def fingerprint(self, seq: int) -> str | None:
        """A digest of the stored event, which differs in any other history of the log; None where no event is."""
        rows = self._all(f"SELECT type, version, command_id, payload FROM {PREFIX}events WHERE seq = ?", seq)
        return sha256("\0".join(map(str, rows[0])).encode()).hexdigest()[:FINGERPRINT] if rows else None

    @again_if_cut
    def after(self, after_seq: int = 0, most: int = 1000) -> list[Event]:
        with self._store.reading() as connection:
            return log.events_after(connection, after_seq, most)

    @again_if_cut
    def of_command(self, command_id: str) -> list[Event]:
        """The events of a command, in order; none if it was not handled."""
        with self._store.reading() as connection:
            return log.events_of_command(connection, command_id)

    @again_if_cut
    def named(self, names: Iterable[str], after_seq: int, last_seq: int) -> list[Event]:
        """The events of some types in a range of the log; other types are not decoded."""
        with self._store.reading() as connection:
            return log.events_named(connection, Keys(names), after_seq, last_seq)

    def news(self, names: Iterable[str], after_seq: int) -> tuple[log.Head, bool]:
        """The end of the log, and true if an event of some types is after a seq; in a single query."""
        sql = f"""
            SELECT seq, at,
                   EXISTS (SELECT 1 FROM {PREFIX}events WHERE seq > ? AND type IN (SELECT value FROM json_each(?)))
            FROM {PREFIX}events ORDER BY seq DESC LIMIT 1"""
        rows = self._all(sql, after_seq, Keys(names))
        return (log.Head(*rows[0][:2]), bool(rows[0][2])) if rows else (log.Head(0, 0.0), False)

    def raw(self, after_seq: int = 0, most: int = 1000) -> list[tuple[Any, ...]]:
        """(seq, at, type, version, command_id, actor, payload as JSON text), as stored."""
        return self._all(f"{log.READ} WHERE seq > ? ORDER BY seq LIMIT ?", after_seq, most)

    def beginning(self) -> tuple[float, str]:
        """The time and the command of the first event, which identify the log. The log must not be empty."""
        ((at, command_id),) = self._all(f"SELECT at, command_id FROM {PREFIX}events WHERE seq = 1")
        return at, command_id

    def time_of(self, seq: int) -> float | None:
        """The time of an event; None without an event."""
        rows = self._all(f"SELECT at FROM {PREFIX}events WHERE seq = ?", seq)
        return rows[0][0] if rows else None

    def end_of_command(self, seq: int) -> int:
        """The last event of the command that recorded an event: no reader saw the state between two of them (rule 3.3)."""
        begins = "command_id NOT LIKE ? OR command_id LIKE ?"
        # One statement, because another command may be recorded between two.
        following = f"SELECT seq - 1 FROM {PREFIX}events WHERE seq > ? AND ({begins}) ORDER BY seq LIMIT 1"
        sql = f"SELECT coalesce(({following}), max(seq)) FROM {PREFIX}events"
        ((end,),) = self._all(sql, seq, f"%{CONTINUATION}%", f"%{CONTINUATION}=%")
        return int(end)

    @again_if_cut
    def seq_at(self, at: float) -> int:
        """The last event that had happened by then, 0 before the first event.

        Found by halving, twenty looks by key in a million events: times never go back (rule 3.1), and an index of
        them would cost every command something.
        """
        with self._store.reading() as connection:

            def time_of(seq: int) -> float:
                (found,) = connection.execute(f"SELECT at FROM {PREFIX}events WHERE seq = ?", (seq,)).fetchone()
                return float(found)

            return bisect_right(range(1, log.head(connection).seq + 1), at, key=time_of)

    def named_changes(self, moves: Iterable[tuple[str, int, str | None, str]]) -> list[Change]:
        """Moves of rows with their public names."""
        listed = list(moves)
        names = {
            kind: dict(self._all(sql, Keys({row_id for of, row_id, *_ in listed if of == kind})))
            for kind, sql in _NAMES.items()
        }
        return [Change(kind, names[kind][row_id], before, after) for kind, row_id, before, after in listed]


class Queries:
    """Every query of the floors above, by subject. A function that needs a single subject can take that subject alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.ids = IdQueries(store)
        self.canonical = CanonicalQueries(store)
        self.instances = InstanceQueries(store)
        self.wants = WantQueries(store)
        self.job_runs = JobRunQueries(store)
        self.launches = LaunchQueries(store)
        self.planning = PlanningQueries(store)
        self.datasets = DatasetQueries(store)
        self.events = EventQueries(store)

    @property
    def places(self) -> Places:
        """The whole paths of recorded paths."""
        return self._store.places
