"""A database of an older version brought to this one (SPEC 3.4).

The log's own table has never changed its shape, and events that older versions wrote are raised as they are read
(`codec`). So all there is to do is to compute the tables anew, and to say in the log that this version may write there
now, which older ones refuse from then on.
"""

from __future__ import annotations

from typing import NamedTuple

from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import Store


class Migration(NamedTuple):
    """What was brought from where to where."""

    #: (of the log, of the tables)
    before: tuple[int, int]
    after: tuple[int, int]
    #: That the tables were computed from; None when there was nothing to do.
    n_events: int | None


def migrate(store: Store) -> Migration:
    """Twice is once. The store was opened without asking for the tables' version."""
    before, after = store.versions(), store.known_versions
    return Migration(before, after, None if before == after else rebuild(store))
