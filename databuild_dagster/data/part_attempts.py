"""The earlier attempts at a lot in parts: whose kept parts the next one may use, and whose folders go with its end
(SPEC 10.4)."""

from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.parts import remove_attempts

#: Attempts that are looked at; each takes over what the one before kept, so the first few say it all.
MOST_ATTEMPTS = 20


def attempts_before(queries: Queries, ref: Ref, uuid: str) -> list[str]:
    """The instances of a ref between its last live one and this one, the newest first; none of them is ever read."""
    history = queries.history(ref)
    own = next((number for number, each in enumerate(history) if each.uuid == uuid), len(history))
    found: list[str] = []
    for each in reversed(history[:own]):
        if each.live_at is not None or len(found) == MOST_ATTEMPTS:
            break
        found.append(each.uuid)
    return found


def remove_attempts_before(queries: Queries, warehouse: Warehouse, ref: Ref, uuid: str) -> None:
    """No file of a failed attempt remains once one after it has ended. Raises `DiskTrouble`, `StorageTrouble`."""
    remove_attempts(warehouse, asset_of(ref), attempts_before(queries, ref, uuid))
