"""The store as it was: the log up to an event, folded anew into a store of its own (SPEC 3.2, 3.4).

History rows tell the state of one entity at a seq, by one read. Who asks how everything hung together then, who waited for
whom and why, asks the log, since a fold of it is exact by definition; and pays for folding it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from databuild_dagster.model.events import Event
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.rebuild import MOVES_AT_ONCE, fold_all
from databuild_dagster.store.scratch import scratch_store
from databuild_dagster.store.store import Store

#: Events that are held in memory at once.
EVENTS_PER_PAGE = 1000


@contextmanager
def as_it_was(store: Store, seq: int) -> Iterator[Store]:
    """A store whose log ends at `seq`, thrown away afterwards."""
    with scratch_store() as then:
        fold_all(_events_up_to(Queries(store), seq), then, moves_at_once=MOVES_AT_ONCE, with_log=True)
        yield then


def _events_up_to(queries: Queries, seq: int) -> Iterator[Event]:
    """Page by page, each a read of its own: nobody waits, and what was appended once does not change."""
    last = 0
    while last < seq and (events := queries.events(last, min(EVENTS_PER_PAGE, seq - last))):
        yield from events
        last = events[-1].seq
