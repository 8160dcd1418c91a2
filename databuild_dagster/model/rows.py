"""The state that the log folds into, a class per table; field order is column order.

Rows point at each other with small integers, because random uuids as clustered keys make writes three to
four times dearer. They are msgspec structs, which are made and taken apart in a third of a dataclass's time,
and hold only plain values, so that the garbage collector need not look at them.
"""

from typing import Any, ClassVar, NamedTuple

import msgspec

from databuild_dagster.model.machine import Machine
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import (
    INSTANCE,
    JOB_RUN,
    LEASED,
    SCHEDULABLE,
    WANT,
    InstanceState,
    JobRunState,
    WantState,
)

#: The stored time of an event that never comes, so that comparisons need no special case.
NEVER = float("inf")
#: The owner of a launch whose job runs are those of the base of an environment (rule 16.3).
BORROWED = "borrowed"
#: The owner of a launch whose job runs are those of an environment begins so (rule 16.10).
OF_ENVIRONMENT = "environment "
#: The reason of the taint for which a ref is built a second time begins so; the uuid of its earlier instance follows (rule 4.9).
VERIFIES = "--verify compares a second build with instance "


class DatasetRow(msgspec.Struct, gc=False):
    """A registered dataset. `spec` is the whole registration as JSON."""

    TABLE: ClassVar[str] = "datasets"

    id: int
    asset: str
    location: str
    job: str
    kind: str
    spec: str
    #: 1 when its location no longer declares it; its instances stay.
    removed: int = 0


class RefRow(msgspec.Struct, gc=False):
    """A ref with its canonical instance and the sums of its open wants."""

    TABLE: ClassVar[str] = "refs"

    id: int
    ref: Ref
    dataset_id: int
    canonical_id: int | None = None
    #: The instance created last; the canonical instance unless a revert came since.
    last_id: int | None = None
    #: State of the canonical instance; None is missing.
    state: InstanceState | None = None
    retry_at: float | None = None
    n_open_wants: int = 0
    #: Highest priority, earliest deadline, first asked for, and latest expiry of the open wants.
    priority: int = 0
    deadline: float = NEVER
    wanted_since: float = NEVER
    wanted_until: float = 0.0
    #: Dep misses in a row, and failed attempts, since it was last live or tainted (rules 6.7, 6.8).
    misses: int = 0
    attempts: int = 0
    #: Since then, its failures that were of its surroundings, and its losses (rules 6.17, 6.18).
    outages: int = 0
    losses: int = 0
    #: While it has failed by itself, or is retried after an error: the reason without what differs from ref to ref (rule 6.15).
    cause: str | None = None
    #: The last known origin of its data from outside, so that the same data does not undo a taint.
    origin: str | None = None
    #: The instance whose running job run missed inputs last; its missing refs are kept beside it (rule 6.3).
    learned_id: int | None = None
    #: Instances that wait for it, or have failed because of it. The store keeps the count, to skip a query for none.
    n_waiters: int = 0
    #: Active delegations to it that are open; kept like `n_waiters`.
    n_joined: int = 0
    #: 1 while it has open wants, and all of them are fail-fast (rule 6.14).
    fail_fast: int = 0
    #: 1 for a schedulable ref with open wants. The store computes it from the fields above.
    due: int = 0

    @property
    def schedulable(self) -> bool:
        """Rule 4.5, but for `retry_at`, which needs a clock."""
        return self.state in SCHEDULABLE

    @property
    def leased(self) -> bool:
        """Rule 4.4."""
        return self.state in LEASED

    def due_at(self, now: float) -> bool:
        """Rule 5.4: schedulable now, and an open want within its TTL names it."""
        return (
            self.schedulable
            and self.n_open_wants > 0
            and now < self.wanted_until
            and (self.retry_at is None or self.retry_at <= now)
        )


class InstanceRow(msgspec.Struct, gc=False):
    """A build of a ref (rules 4)."""

    TABLE: ClassVar[str] = "instances"

    id: int
    uuid: str
    ref_id: int
    job_run_id: int
    previous_id: int | None
    created_seq: int
    created_at: float
    state: InstanceState = InstanceState.BUILDING
    retry_at: float | None = None
    #: Missing refs that are not live, while it waits.
    n_unmet: int = 0
    n_taints: int = 0
    #: The downstream taints in `n_taints` (rule 7.3).
    n_spreading: int = 0
    was_live: int = 0
    live_at: float | None = None
    #: The reason why it failed or waits.
    reason: str | None = None
    code_version: str | None = None
    #: "complete" or "empty" once it was live; "removed" after a removal.
    manifest_state: str | None = None
    manifest_uri: str | None = None
    n_files: int | None = None
    n_rows: int | None = None
    n_bytes: int | None = None
    #: The content hash of its rows (rule 4.6); None if it is unknown, which equals nothing.
    content_hash: str | None = None
    #: The origin of data from outside.
    origin: str | None = None
    #: The time when its removed files were deleted.
    cleared_at: float | None = None
    #: The first instance with the same rows, in other files or by an earlier build.
    same_as_id: int | None = None
    #: The numbers of the author's metadata, as a JSON object.
    numbers: str | None = None

    @property
    def same_root(self) -> int:
        """Equal for instances of the same rows."""
        return self.same_as_id or self.id


class JobRunRow(msgspec.Struct, gc=False):
    """An execution of a job for a partition key (rules 6)."""

    TABLE: ClassVar[str] = "job_runs"

    id: int
    job_run_id: str
    launch_id: int
    partition_key: str | None
    #: Its refs as a JSON list.
    refs: str
    buffered_at: float
    state: JobRunState = JobRunState.QUEUED
    started_at: float | None = None
    ended_at: float | None = None
    error: str | None = None
    #: The digest of the code that it runs (rule 4.7); of compacted rows, of the code that built them.
    code: str | None = None


class LaunchRow(msgspec.Struct, gc=False):
    """A Dagster run hosting job runs, from its decision on."""

    TABLE: ClassVar[str] = "launches"

    id: int
    launch_id: str
    job: str
    location: str
    owner: str
    code_version: str | None
    buffered_at: float
    dagster_run_id: str | None = None
    holder: str | None = None
    started_at: float | None = None


class WantRow(msgspec.Struct, gc=False):
    """A want, with a histogram of its refs' canonical states so that each change costs the same (rules 5)."""

    TABLE: ClassVar[str] = "wants"

    id: int
    want_id: str
    request_id: str
    source: str
    source_id: str | None
    comment: str
    priority: int
    created_at: float
    data_timestamp: float | None
    expires_at: float
    deadline: float
    n_refs: int
    state: WantState = WantState.NEW
    ended_at: float | None = None
    n_live: int = 0
    n_failed: int = 0
    n_upstream_failed: int = 0
    n_building: int = 0
    n_upstream_building: int = 0
    #: The time of the alert if it is not successful by then; None without an SLA of its own, and once that is settled.
    sla_at: float | None = None
    sla_missed_at: float | None = None
    #: 1 once a taint has opened it again: a derivative want then stays without a waiter.
    reopened: int = 0
    #: 1 when a failure ends also the wants of the other missing refs.
    fail_fast: int = 0
    #: Of a derivative want that stays without a waiter: its keeping, which knows the wants that it was made for (rule 6.14).
    keeping: int | None = None
    #: 1 once its requester does not need what is kept for it.
    withdrawn: int = 0


class DelegationRow(NamedTuple):
    """The latest answer to a requester for a ref that was not a build (rule 8.1)."""

    requester: str
    ref_id: int
    kind: str
    outcome: str
    asked_at: float
    #: The job run and the instance delegated to.
    job_run_id: int
    instance_id: int
    reason: str
    ended_at: float | None
    #: The instance that it ended with, live or failed.
    served_id: int | None


class TaintRow(msgspec.Struct, gc=False):
    """A mark that data is wrong (rules 7)."""

    TABLE: ClassVar[str] = "taints"

    id: int
    taint_id: str
    reason: str
    actor: str
    created_at: float
    #: 1 when it covers the instances that are built from the named instances.
    downstream: int = 0
    #: 1 when it asks for a build by the present code, and says nothing about rows.
    of_code: int = 0
    canceled_at: float | None = None


class PauseRow(NamedTuple):
    """A pause of a ref, or of a whole asset (rule 6.13)."""

    #: Without a partition key it names every partition of the asset.
    ref: Ref
    #: The event that paused it.
    seq: int
    dataset_id: int
    #: 1 for a ref without a partition key.
    is_whole: int
    reason: str
    actor: str
    paused_at: float
    #: `NEVER` for a pause that only a resume ends.
    until: float
    #: The event that resumed it, or paused it again when its time had passed; with its time.
    ended_seq: int | None = None
    ended_at: float | None = None


class ArcRow(msgspec.Struct, gc=False):
    """A dataset that subscribes to other datasets, and how far its arc has been followed (rule 10.5)."""

    TABLE: ClassVar[str] = "arcs"

    id: int
    asset: str
    #: The event up to which it was followed; at first its registration, because earlier instances do not wake it.
    seq: int
    #: 1 while it subscribes to nothing, or is unregistered.
    removed: int = 0
    #: The registration by which it is in force, or was.
    since: int = 0
    #: The time when it was removed last.
    removed_at: float | None = None


class AsideRow(msgspec.Struct, gc=False):
    """A subject that the ticks of a location set aside, or did once (rule 11.7)."""

    TABLE: ClassVar[str] = "set_aside"

    id: int
    #: `set_aside.subject_of` of the next three.
    subject: str
    kind: str
    name: str
    location: str
    #: None while it is planned.
    reason: str | None = None
    #: The time of the last change.
    since: float = 0.0


Row = DatasetRow | RefRow | InstanceRow | JobRunRow | LaunchRow | WantRow | TaintRow | ArcRow | AsideRow

#: The machines whose moves are rows of history, by table (rule 3.2).
MACHINES: dict[str, Machine[Any, Any]] = {InstanceRow.TABLE: INSTANCE, WantRow.TABLE: WANT, JobRunRow.TABLE: JOB_RUN}
