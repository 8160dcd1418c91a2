"""The only place that knows SQL: the event log, its projections, the unit of work, and read-only queries."""

from databuild_dagster.store.backends.heartbeats import FileAside, Heartbeats, NotedSession
from databuild_dagster.store.check import check
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.ledger import JobMetrics, Ledger, LedgerEntry
from databuild_dagster.store.migrate import Migration, migrate
from databuild_dagster.store.queries import Queries
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.removals import Removable, Removals, Stored
from databuild_dagster.store.store import Store, open_store

__all__ = [
    "FileAside",
    "Heartbeats",
    "JobMetrics",
    "Ledger",
    "LedgerEntry",
    "Migration",
    "NotedSession",
    "Queries",
    "Removable",
    "Removals",
    "Store",
    "Stored",
    "Violation",
    "check",
    "migrate",
    "open_store",
    "rebuild",
]
