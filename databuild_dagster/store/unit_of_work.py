"""The view of one transaction: rows loaded by key in bulk, changed in memory, written in bulk where they changed.

It lets one transition function serve commands, rebuild and tests. Set-based SQL was measured, whose plans flip, and an ORM,
which is five to fifteen times slower. Each subject has a module in `work`.
"""

from __future__ import annotations

from databuild_dagster.model.rows import WantRow
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.log import BEFORE_ALL, Head
from databuild_dagster.store.witness import Mark
from databuild_dagster.store.work import builds, delegations, taints, wants
from databuild_dagster.store.work.delegations import DelegationWork
from databuild_dagster.store.work.meta_entries import MetaWork
from databuild_dagster.store.work.taints import TaintWork
from databuild_dagster.store.work.wants import WantWork


class UnitOfWork(WantWork, TaintWork, DelegationWork, MetaWork):
    """`model.view.View` over one connection inside one transaction."""

    unsettled: set[int]
    failed_upstream: list[WantRow]
    LINK_ORDER = (*wants.LINKS, *builds.LINKS, *taints.LINKS, *delegations.LINKS)

    def __init__(self, connection: Connection, head: Head = BEFORE_ALL) -> None:
        #: The log's end when the transaction began.
        self.head = head
        # One for all subjects, because a chain of seven takes 2 µs more of every command.
        self.connection = connection
        self.seq = 0
        #: The last event that the transaction appended.
        self.appended: Mark | None = None
        self._numbered, self._number, self._place = -1, -1, (0, 0)
        self.unsettled, self.failed_upstream = set(), []
        self._row_sets = []
        self._links, self._moves, self._turned, self._changes = {}, [], [], []
        self._outputs, self._seen_links, self._outcomes = {}, {}, {}
        self._entries, self._entries_written = {}, {}

    def flush(self) -> None:
        """Write the changed rows. `due` is computed here, so that no transition can forget it."""
        for ref in self._refs.by_id.values():
            ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        for rows in self._row_sets:
            if rows.stored:
                rows.flush()
        if self._links:
            self._flush_links()
        if self._changes:
            self._flush_meta()
        self._flush_moves()
