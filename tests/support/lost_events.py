"""A log that goes back, as after a failover to a replica that lagged (rule 3.13)."""

from __future__ import annotations

from databuild_dagster.store.format import EVENTS
from databuild_dagster.store.store import Store

from .world import World


def change_log(store: Store, statement: str) -> None:
    """As it is on a replica that lacks events, or has others."""
    database = store.database
    connection = database.connection()
    database.begin(connection)
    if store.path is None:
        connection.execute(f"ALTER TABLE {EVENTS} DISABLE TRIGGER USER")
    else:
        for kind, name in database.parts(connection):
            if kind == "trigger":
                connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statement)
    database.commit(connection)
    database.end(connection)


def lose_last_event(world: World) -> None:
    change_log(world.store, f"DELETE FROM {EVENTS} WHERE seq = {world.seq}")
