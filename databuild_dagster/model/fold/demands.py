"""The urgency with which missing refs are needed, and the derivative wants that it gives (rules 5.8, 6.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER, WantRow
from databuild_dagster.model.view import View

#: The source of derivative wants (rule 5.1).
DERIVATIVE = "job run"
#: Their comment.
FOUND_MISSING = "an input that a job run found missing"


@dataclass(frozen=True, slots=True)
class Demand:
    """The urgency of a missing ref, the time until which it is needed, and the first job run that missed it."""

    priority: int
    deadline: float
    until: float
    #: All that need it are fail-fast.
    fail_fast: bool
    job_run_id: int

    def joined(self, other: Demand) -> Demand:
        return Demand(
            max(self.priority, other.priority),
            min(self.deadline, other.deadline),
            max(self.until, other.until),
            self.fail_fast and other.fail_fast,
            min(self.job_run_id, other.job_run_id),
        )

    def met_by(self, want: WantRow, now: float) -> bool:
        return (
            want.n_refs == 1
            and now < want.expires_at
            and want.priority >= self.priority
            and want.deadline <= self.deadline
            and want.expires_at >= self.until
            and want.fail_fast <= self.fail_fast
        )

    def is_of(self, want: WantRow) -> bool:
        """Whether this very demand gives such a want."""
        asked = (self.priority, self.deadline, self.until, self.fail_fast)
        return want.n_refs == 1 and (want.priority, want.deadline, want.expires_at, want.fail_fast) == asked


def derivative_wants(
    unmet: Mapping[Demand, Sequence[Ref]], view: View, new_id: Callable[[], str]
) -> list[e.WantCreated]:
    """New derivative wants, a single event for all wants of the same urgency."""
    job_runs = view.job_runs_by_id(demand.job_run_id for demand in unmet)
    return [
        e.WantCreated(
            request_id=new_id(),
            wants=tuple(e.WantFact(id=new_id(), refs=(ref,)) for ref in sorted(refs)),
            source=DERIVATIVE,
            source_id=job_runs[demand.job_run_id].job_run_id,
            comment=FOUND_MISSING,
            priority=demand.priority,
            expires_at=None if demand.until == NEVER else demand.until,
            deadline=None if demand.deadline == NEVER else demand.deadline,
            fail_fast=demand.fail_fast,
        )
        for demand, refs in unmet.items()
    ]
