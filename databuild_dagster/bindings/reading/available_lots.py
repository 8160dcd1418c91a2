"""Which lots became available, for whoever takes them up outside of Dagster (SPEC 10.3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from databuild_dagster.bindings.reading.open_store import opened_store
from databuild_dagster.engine.publishing import Publication, published_stretches
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance


def available_lots(
    after_seq: int = 0,
    *,
    dataset: str | None = None,
    follow: bool = False,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> Iterator[Publication]:
    """Each instance that became live, with rows or empty, in the order of the log: what `events --kind lot-available` prints.

    Whoever keeps the `seq` of the last one that was taken up, and asks for what came after it, misses none; several may
    have the same seq, for one event can have many live. With `follow` it waits for more and never ends. Raises
    `NothingBuilt`, `BadHome`.
    """
    with opened_store(home, instance) as store:
        for _, found in published_stretches(Queries(store), after_seq, follow=follow):
            yield from (each for each in found if dataset in (None, each.dataset))
