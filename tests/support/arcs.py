"""Which source instances have woken an arc, as the table of firings says."""

from __future__ import annotations

from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.store import Store


def fired_by(store: Store, arc: str) -> list[str]:
    """Uuids in the order in which they woke the arc."""
    sql = f"""
        SELECT i.uuid FROM {PREFIX}arcs a JOIN {PREFIX}arc_firings f ON f.arc_id = a.id
        JOIN {PREFIX}instances i ON i.id = f.instance_id WHERE a.asset = ? ORDER BY f.seq, i.id"""
    return [uuid for (uuid,) in store.ask(sql, (arc,))]
