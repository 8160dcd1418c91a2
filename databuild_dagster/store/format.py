"""The format of the database: versions, names and row ids.

Every statement needs them, and most processes make no table; so this module imports no SQLAlchemy, which `schema` does.
"""

from collections.abc import Iterable
from enum import Enum

from databuild_dagster.model.coordination import DelegationOutcome

#: Version of the log: raised with its shape and with each new type of event, but not for a field that may be passed over, left
#: out where it says nothing. A higher version in a database means that newer code wrote there. 2 knows delegations, expiry and
#: SLAs, reverts, arcs; 3 removals and the meta storage; 4 arcs that keep their place, pauses, wants that are kept,
#: and reasons to set aside; 5 paths relative to the home; 6 the code of datasets; 7 borrowed instances, and builds with equal rows;
#: 8 instances that come back in place of a build, and promoted ones.
LOG_VERSION = 8
#: Version of the projections; if it differs, the tables have to be computed again.
PROJECTION_VERSION = 17

PREFIX = "databuild_"
#: The tables of the log: the versions, and the events.
META, EVENTS = PREFIX + "meta", PREFIX + "events"

#: The keys in META of the store's id, and of the place where that was given to it (rule 3.11).
STORE_ID, PLACE = "store_id", "place"

#: Rows that an event may make: a million. A row id is the seq of the event that made the row, and a number within it; 43 bits
#: are left for the seq.
BITS = 20

#: Of a delegation `d` for the ref `r`, the instance that it waits for, that refused it, or with which it ended (rule 8.3).
DELEGATED_TO = f"""CASE d.outcome WHEN '{DelegationOutcome.WAITING}' THEN r.canonical_id
    WHEN '{DelegationOutcome.REFUSED}' THEN d.instance_id ELSE coalesce(d.served_id, d.instance_id) END"""

#: Tables outside the log (`heartbeats`), which no transaction locks: in a file beside SQLite's, or beside PostgreSQL's tables,
#: where they survive a crash: the judge takes a launch without a heartbeat for lost.
HEARTBEATS, HEARTBEAT_COLUMNS = PREFIX + "heartbeats", "(launch_id TEXT PRIMARY KEY, at FLOAT NOT NULL)"
TRIES, TRY_COLUMNS = (
    PREFIX + "tries",
    "(location TEXT NOT NULL, name TEXT NOT NULL, n INTEGER NOT NULL, at FLOAT NOT NULL, again_at FLOAT NOT NULL, "
    "PRIMARY KEY (location, name))",
)
SESSIONS, SESSION_COLUMNS = (
    PREFIX + "sessions",
    "(dagster_run_id TEXT NOT NULL, address TEXT NOT NULL, holder TEXT NOT NULL, at FLOAT NOT NULL, "
    "PRIMARY KEY (dagster_run_id, address))",
)


def first_id(seq: int) -> int:
    """The least row id of an event."""
    return seq << BITS


def end_of_event(row_id: int) -> int:
    """Above every id of the same event's rows."""
    return first_id((row_id >> BITS) + 1)


def one_of(states: Iterable[Enum], *others: str) -> str:
    """A sorted list of states and other words for SQL's `IN`, so that a statement has the same text in every process."""
    values = "', '".join(sorted([*(state.value for state in states), *others]))
    return f"('{values}')"
