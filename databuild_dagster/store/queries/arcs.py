"""What woke arcs, and the inputs of their lots that got new data since (rule 10.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.selection import Selection


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
    arrived_at="n.live_at",
)


class ArcQueries(Asking):
    """Firings, and late inputs."""

    def last_firings(self, arcs: Iterable[str]) -> dict[str, Firing]:
        """The newest firing of each of these arcs; an arc that never fired is left out."""
        sql = f"""
            SELECT {_FIRING.columns} FROM {PREFIX}arcs a JOIN {PREFIX}arc_firings f ON f.arc_id = a.id AND f.instance_id = (
                SELECT x.instance_id FROM {PREFIX}arc_firings x WHERE x.arc_id = a.id ORDER BY x.instance_id DESC LIMIT 1)
            JOIN {PREFIX}instances i ON i.id = f.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id
            WHERE a.asset IN (SELECT value FROM json_each(?))"""
        return {firing.arc: firing for firing in _FIRING.rows(self._all(sql, Keys(arcs)))}

    def late_inputs(self, uuids: Iterable[str], most: int) -> list[LateInput]:
        """The inputs of these instances that have live, newer data, the latest first. A compaction is no new data."""
        sql = f"""
            SELECT {_LATE.columns} FROM {PREFIX}instances i JOIN {PREFIX}refs b ON b.id = i.ref_id
            JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id JOIN {PREFIX}instances u ON u.id = x.input_id
            JOIN {PREFIX}refs r ON r.id = u.ref_id JOIN {PREFIX}instances n ON n.id = r.canonical_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND n.id > u.id AND n.state = '{InstanceState.LIVE}'
              AND coalesce(n.same_as_id, n.id) <> coalesce(u.same_as_id, u.id)
            ORDER BY n.live_at DESC, r.ref, b.ref LIMIT ?"""
        return _LATE.rows(self._all(sql, Keys(uuids), most))
