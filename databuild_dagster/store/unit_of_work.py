"""The view of one transaction: rows loaded by key in bulk, changed in memory, written in bulk where they changed.

It lets one transition function serve commands, rebuild and tests. Set-based SQL was measured, whose plans flip, and an ORM,
which is five to fifteen times slower. Each subject has a module in `work`.
"""

from __future__ import annotations

from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.work import builds, delegations, taints, wants
from databuild_dagster.store.work.delegations import DelegationWork
from databuild_dagster.store.work.meta_entries import MetaWork
from databuild_dagster.store.work.taints import TaintWork
from databuild_dagster.store.work.wants import WantWork


class UnitOfWork(WantWork, TaintWork, DelegationWork, MetaWork):
    """`model.view.View` over one connection inside one transaction."""

    LINK_ORDER = (*wants.LINKS, *builds.LINKS, *taints.LINKS, *delegations.LINKS)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.unsettled: set[int] = set()

    def flush(self) -> None:
        """Write the changed rows. `due` is computed here, so that no transition can forget it."""
        for ref in self._refs.by_id.values():
            ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        for rows in self._rows.values():
            if rows.stored:
                rows.flush()
        if self._links:
            self._flush_links()
        if self._changes:
            self._flush_meta()
        self._flush_moves()
