"""The graph of instances when an earlier event was the last one (rules 3.2, 4.6).

Instances that were made later are left out, and so are the inputs of one that was not live yet: its success records them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX
from databuild_dagster.store.queries.asking import MAX_SEQ, Asking
from databuild_dagster.store.queries.canonical import CHOSEN_AT, TO_THE_ONE_BEFORE, state_at, was_live_at
from databuild_dagster.store.selection import Selection


class InstanceThen(NamedTuple):
    """An instance when an earlier event was the last one."""

    uuid: str
    ref: Ref
    state: InstanceState
    #: Readers of its ref saw it.
    canonical: bool
    #: None if it had not been live by then.
    live_at: float | None


_THEN = Selection(
    InstanceThen,
    "i",
    ref="r.ref",
    state=state_at("i.id"),
    canonical=f"{CHOSEN_AT} = i.id",
    live_at=f"CASE WHEN {was_live_at('i.id')} THEN i.live_at END",
)
#: From each instance of a list to the newest one of its ref at the seq.
_CHAIN = f"""chain(node_id, ref_id, id) AS (
    SELECT n.id, n.ref_id, q.last_id FROM {{nodes}} JOIN {PREFIX}refs q ON q.id = n.ref_id WHERE {{which}}
    UNION ALL
    SELECT chain.node_id, chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
    WHERE {TO_THE_ONE_BEFORE})"""
_NAMED = _CHAIN.format(
    nodes=f"{PREFIX}instances n", which="n.uuid IN (SELECT value FROM json_each(:uuids)) AND n.id < :end"
)
_INSTANCES = f"""
WITH RECURSIVE {_NAMED}
SELECT {_THEN.columns} FROM chain JOIN {PREFIX}instances i ON i.id = chain.node_id JOIN {PREFIX}refs r ON r.id = i.ref_id
WHERE chain.id < :end ORDER BY r.ref, i.id"""

_EDGES = f"""
SELECT u.uuid, i.uuid FROM {PREFIX}instances {{known}} JOIN {PREFIX}instance_inputs x ON {{joined}}
JOIN {PREFIX}instances {{other}}
WHERE {{known}}.uuid IN (SELECT value FROM json_each(:uuids)) AND x.instance_id < :end AND {was_live_at("x.instance_id")}"""
_INPUTS = _EDGES.format(known="i", joined="x.instance_id = i.id", other="u ON u.id = x.input_id") + " LIMIT :most"
_USES = (
    _EDGES.format(known="u", joined="x.input_id = u.id", other="i ON i.id = x.instance_id")
    + " ORDER BY x.instance_id, x.input_id LIMIT :most"
)

_REACHED = f"""
WITH RECURSIVE made(id) AS (
    SELECT u.id FROM {PREFIX}instances u WHERE u.uuid = :uuid AND u.id < :end
    UNION SELECT x.instance_id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id
    WHERE x.instance_id < :end AND {was_live_at("x.instance_id")}
), {_CHAIN.format(nodes=f"made JOIN {PREFIX}instances n ON n.id = made.id", which="n.uuid <> :uuid")}
SELECT count(*) FROM chain
WHERE chain.id < :end AND chain.node_id = {CHOSEN_AT} AND {state_at("chain.node_id")} = '{InstanceState.LIVE}'"""


class LineageAtQueries(Asking):
    """Instances, their inputs and their uses at a seq."""

    def instances_at(self, uuids: Iterable[str], seq: int) -> list[InstanceThen]:
        """The instances with these uuids that had been made by then, ordered by ref; others are left out."""
        return _THEN.rows(self._at(_INSTANCES, seq, uuids=Keys(uuids)))

    def inputs_at(self, uuids: Iterable[str], most: int, seq: int) -> list[tuple[str, str]]:
        """As `inputs_of`."""
        return [(used, user) for used, user in self._at(_INPUTS, seq, uuids=Keys(uuids), most=most)]

    def uses_at(self, uuids: Iterable[str], most: int, seq: int) -> list[tuple[str, str]]:
        """As `uses_of`."""
        return [(used, user) for used, user in self._at(_USES, seq, uuids=Keys(uuids), most=most)]

    def n_live_built_from_at(self, uuid: str, seq: int) -> int:
        """The number of other refs that were live by then with data from an instance."""
        ((n,),) = self._at(_REACHED, seq, uuid=uuid)
        return int(n)

    def _at(self, sql: str, seq: int, **parameters: Any) -> list[tuple[Any, ...]]:
        seq = min(seq, MAX_SEQ)
        return self._store.ask(sql, {**parameters, "seq": seq, "end": (seq + 1) << BITS})
