"""How far a table is behind the log: the partitions that were touched since, and since when."""

from __future__ import annotations

from typing import Final, NamedTuple

from databuild_dagster.engine.follower import all_touched
from databuild_dagster.features.tables.live_files import Touches
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.touched import TOUCHING
from databuild_dagster.store.queries.queries import Queries

#: Events that the search for the oldest one reads at once.
PAGE: Final = 200


class Lag(NamedTuple):
    """The distance of a table from the end of the log."""

    n_partitions: int
    #: The time of the oldest event that the table does not have, in seconds since 1970 UTC; None if it has all.
    since: float | None


def lag_of(queries: Queries, touches: Touches, asset: str, after_seq: int, head: int) -> Lag:
    """The lag of a table that holds up to `after_seq`."""
    n_partitions = len(touches.of(asset, after_seq, head))
    return Lag(n_partitions, _first_touch(queries, asset, after_seq, head) if n_partitions else None)


def _first_touch(queries: Queries, asset: str, after_seq: int, head: int) -> float | None:
    for start in range(after_seq, head, PAGE):
        for event in queries.events_named(TOUCHING, start, min(start + PAGE, head)):
            if any(asset_of(ref) == asset for ref in all_touched(queries, [event])):
                return event.at
    return None
