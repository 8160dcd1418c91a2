"""Dagster runs that wait for builds of others (SPEC 8)."""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.fold.react import CLAIMANT
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.queries.asking import Asking
from databuild_dagster.store.schema import PREFIX

#: Only Dagster runs, not wants: a claim makes wants whose request is the Dagster run.
_WAITING_DAGSTER_RUNS = f"""
SELECT d.requester, r.ref, CASE WHEN d.kind = '{Answer.BUILD}' AND EXISTS (
    SELECT 1 FROM {PREFIX}holds x JOIN {PREFIX}wants w ON w.id = x.want_id
    WHERE x.ref_id = d.ref_id AND x.open = 1 AND w.request_id = d.requester) THEN 1 ELSE 0 END
FROM {PREFIX}delegations d JOIN {PREFIX}refs r ON r.id = d.ref_id
WHERE d.outcome = '{DelegationOutcome.WAITING}' AND {{which}} AND EXISTS (
    SELECT 1 FROM {PREFIX}wants w WHERE w.request_id = d.requester AND w.source = '{CLAIMANT}')
ORDER BY d.requester, r.ref"""


class DelegationQueries(Asking):
    """Delegations that wait."""

    def scan_waiting_dagster_runs(self) -> list[str]:
        """Dagster runs that wait for builds of others (SPEC 8.3). Scans all delegations."""
        return list(dict.fromkeys(run_id for run_id, *_ in self._all(_WAITING_DAGSTER_RUNS.format(which="1 = 1"))))

    def still_waiting(self, requesters: Iterable[str]) -> dict[str, dict[Ref, bool]]:
        """The waiting Dagster runs among some requesters, with their refs.

        True for a ref that the Dagster run should have built and could not, while its want is open: others build it for that want
        (SPEC 8.1).
        """
        which = "d.requester IN (SELECT value FROM json_each(?))"
        found: dict[str, dict[Ref, bool]] = {}
        for run_id, ref, is_followed_up in self._all(_WAITING_DAGSTER_RUNS.format(which=which), Keys(requesters)):
            found.setdefault(run_id, {})[ref] = bool(is_followed_up)
        return found
