"""A migration while other processes of an older version work on the store is refused (rule 3.4).

A process that works sends heartbeats: a launch, an executor, an orchestrator. Each names itself there in words, or by the id
of its launch, whose row names the process.
"""

from databuild_dagster.engine.holders import in_words
from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.orchestrator_notes import ORCHESTRATOR
from databuild_dagster.model.errors import Refused
from databuild_dagster.store.backends.heartbeats import Heartbeats
from databuild_dagster.store.format import PREFIX
from databuild_dagster.store.rebuild import Migration
from databuild_dagster.store.rebuild import migrate as migrate_store
from databuild_dagster.store.store import Store

_LAUNCHES = PREFIX + "launches"


class OthersAtWork(Refused):
    """The build state is not migrated: {who} sent a heartbeat {seconds:.0f} s ago."""

    hint = (
        f"Stop it, wait {LEASE_SECONDS:.0f} s, and run `databuild log migrate` again. With --force it is migrated now, and a "
        "process of an older version stops with NewerStore at its next command."
    )


def migrate(store: Store, now: float, *, force: bool = False) -> Migration:
    """Bring an older store to this version, unless a process is at work on it. Raises `OthersAtWork` without `force`."""
    if not force and store.versions() != store.known_versions and (last := last_sign_of_life(store, now)) is not None:
        name, at = last
        raise OthersAtWork(who=_in_words(store, name), seconds=max(0.0, now - at))
    return migrate_store(store)


def last_sign_of_life(store: Store, now: float) -> tuple[str, float] | None:
    """The name and time of the newest heartbeat of a process within a lease; notes of ticks to come are none."""
    beats = Heartbeats(store.database).since(now - LEASE_SECONDS)
    return next(((name, at) for name, at in beats if " " not in name or name.startswith(ORCHESTRATOR)), None)


def _in_words(store: Store, name: str) -> str:
    if name.startswith(ORCHESTRATOR):
        return f"the {name}"
    connection = store.database.connection()
    if "holder" not in store.database.columns(connection, _LAUNCHES):
        return f"launch {name}"
    found = store.ask(f"SELECT holder FROM {_LAUNCHES} WHERE launch_id = ?", (name,))
    holder = found[0][0] if found else None
    whose = f"launch {name}" if found else f"the executor or coordinator {name}"
    return whose if holder is None else f"{whose} ({in_words(holder)})"
