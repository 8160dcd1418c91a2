"""The three machines of the core: instances (rules 4), wants (rules 5), job runs (rules 6).

The fold, the database's CHECKs, `docs/states.md` and the tests read the tables. Rule 5.2 forces the rows of the want machine;
its function is here too.

The state of a lot whose dataset subscribes to other datasets (rule 10.5) is a view of the lot's canonical instance by a table of rules, and
is stored nowhere.
"""

from typing import NamedTuple

from databuild_dagster.model.machine import Label, Machine, Move


class InstanceState(Label):
    """Rule 4.1. A ref with no canonical instance is missing; that is not a state."""

    #: A job run holds the lease and builds it.
    BUILDING = "Building"
    #: Its job run found inputs missing; it keeps the lease until they are live.
    UPSTREAM_BUILDING = "UpstreamBuilding"
    #: Free to be built again, from its `retry_at` on.
    UP_FOR_RETRY = "UpForRetry"
    #: Good to read.
    LIVE = "Live"
    #: Its build failed for good; a taint opens it again.
    FAILED = "Failed"
    #: An input failed; the repair of that opens it again.
    UPSTREAM_FAILED = "UpstreamFailed"
    #: Live or failed before, and marked as wrong.
    TAINTED = "Tainted"


class InstanceCause(Label):
    """An event about an instance, or a reaction to an event about a different instance."""

    #: JobRunBuffered names its ref.
    BUFFERED = "buffered"
    #: LotArrived: data that came from outside, complete at once.
    ARRIVED = "arrived"
    #: InstancesBorrowed: the base of an environment has it.
    BORROWED = "borrowed"
    #: InstancesPromoted: an environment built it for its base.
    PROMOTED = "promoted"
    #: JobRunSucceeded, with a manifest that is complete or empty.
    SUCCEEDED = "succeeded"
    #: JobRunFailed or JobRunLost without a retry.
    GAVE_UP = "gave up"
    #: JobRunFailed or JobRunLost with a retry.
    WILL_RETRY = "will retry"
    #: JobRunCanceled.
    CANCELED = "canceled"
    #: A person canceled its job run while a waiting ref missed it.
    STOPPED = "stopped"
    #: A dep miss whose refs are on their way.
    MISSED = "missed"
    #: A dep miss that concerned only other outputs of the job run.
    OTHERS_MISSED = "others missed"
    #: A dep miss whose refs are all live by now.
    MISSED_BUT_LIVE = "missed but live"
    #: A dep miss on a failed ref.
    MISSED_FAILED = "missed a failed one"
    #: A dep miss on a ref that nothing can build.
    MISSED_UNBUILDABLE = "missed an unbuildable one"
    #: A dep miss closed a cycle that this ref is on.
    ON_CYCLE = "on a cycle"
    #: It missed more often in a row than is allowed.
    TOO_MANY_MISSES = "too many misses"
    #: Every missing ref is live now.
    DEPS_LIVE = "deps live"
    #: A missing ref failed.
    DEP_FAILED = "dep failed"
    #: No open want is left for its ref.
    UNWANTED = "unwanted"
    #: None of its missing refs is failed now.
    REPAIRED = "repaired"
    #: TaintCreated names its ref.
    TAINTED = "tainted"
    #: Its last taint was canceled while it was canonical.
    UNTAINTED = "untainted"
    #: CanonicalReverted names it: its taints are removed.
    REVERTED = "reverted"
    #: InstancesReturned names it: a build would make the same.
    RETURNED = "returned"


_I, _IC = InstanceState, InstanceCause

#: "UpForRetry → Building" and "Tainted → Building" do not exist: a new job run makes a new instance (rule 4.3).
INSTANCE = Machine[InstanceState, InstanceCause](
    "instance",
    [
        Move(None, _IC.BUFFERED, _I.BUILDING, "a job run took the lease"),
        Move(None, _IC.ARRIVED, _I.LIVE, "another program's files were recorded, complete"),
        Move(None, _IC.BORROWED, _I.LIVE, "an environment uses the instance of its base"),
        Move(None, _IC.PROMOTED, _I.LIVE, "an instance of an environment was promoted"),
        Move(_I.BUILDING, _IC.SUCCEEDED, _I.LIVE, "its manifest is complete, or empty on purpose"),
        Move(_I.BUILDING, _IC.GAVE_UP, _I.FAILED, "a hard failure, or the attempts are used up"),
        Move(_I.BUILDING, _IC.MISSED_UNBUILDABLE, _I.FAILED, "an input can never exist"),
        Move(_I.BUILDING, _IC.ON_CYCLE, _I.FAILED, "it waits for itself, through its inputs"),
        Move(_I.BUILDING, _IC.TOO_MANY_MISSES, _I.FAILED, "it missed inputs too often in a row"),
        Move(_I.BUILDING, _IC.STOPPED, _I.FAILED, "a person canceled its job run, and refs wait for it"),
        Move(_I.BUILDING, _IC.MISSED, _I.UPSTREAM_BUILDING, "it waits for inputs, and keeps the lease"),
        Move(_I.BUILDING, _IC.WILL_RETRY, _I.UP_FOR_RETRY, "a retry may succeed"),
        Move(_I.BUILDING, _IC.CANCELED, _I.UP_FOR_RETRY, "its job run was canceled, which is no failure"),
        Move(_I.BUILDING, _IC.OTHERS_MISSED, _I.UP_FOR_RETRY, "another output of its job run missed"),
        Move(_I.BUILDING, _IC.MISSED_BUT_LIVE, _I.UP_FOR_RETRY, "the inputs that it missed are live by now"),
        Move(_I.BUILDING, _IC.MISSED_FAILED, _I.UPSTREAM_FAILED, "an input has failed"),
        Move(_I.UPSTREAM_BUILDING, _IC.DEPS_LIVE, _I.UP_FOR_RETRY, "every input that it waited for is live"),
        Move(_I.UPSTREAM_BUILDING, _IC.UNWANTED, _I.UP_FOR_RETRY, "no open want is left for it, so the lease ends"),
        Move(_I.UPSTREAM_BUILDING, _IC.DEP_FAILED, _I.UPSTREAM_FAILED, "an input that it waited for failed"),
        Move(_I.UPSTREAM_BUILDING, _IC.ON_CYCLE, _I.FAILED, "it waits for itself, since another ref missed inputs"),
        Move(_I.UPSTREAM_FAILED, _IC.REPAIRED, _I.UP_FOR_RETRY, "no input is failed any more"),
        Move(_I.LIVE, _IC.TAINTED, _I.TAINTED, "a taint says that its data is wrong"),
        Move(_I.FAILED, _IC.TAINTED, _I.TAINTED, "an operator opens it for another build"),
        Move(_I.UPSTREAM_FAILED, _IC.TAINTED, _I.TAINTED, "an operator opens it for another build"),
        Move(_I.TAINTED, _IC.UNTAINTED, _I.LIVE, "its last taint was removed; it was live, and is canonical"),
        Move(_I.TAINTED, _IC.REVERTED, _I.LIVE, "a revert makes it canonical again, and it was live"),
        Move(_I.TAINTED, _IC.RETURNED, _I.LIVE, "it comes back in place of a build, and only other code tainted it"),
    ],
    # The next job run makes another instance; this one does not change again.
    final=[_I.UP_FOR_RETRY],
)

#: A ref in any of these states cannot be taken by a second job run (rule 4.4).
LEASED = frozenset({_I.BUILDING, _I.UPSTREAM_BUILDING})
#: A ref in any of these states, or without an instance, may be built (rule 4.5); UpForRetry only from its `retry_at` on.
SCHEDULABLE = frozenset({None, _I.TAINTED, _I.UP_FOR_RETRY})
#: A ref in any of these states fails its waiters (rule 6.6).
FAILING = frozenset({_I.FAILED, _I.UPSTREAM_FAILED})
#: An operator may taint an instance in any of these states; a tainted instance gets a further taint (rule 7.1).
TAINTABLE = frozenset({_I.LIVE, _I.FAILED, _I.UPSTREAM_FAILED, _I.TAINTED})
#: States of partitions that need a person; and all states in the order in which lists show them, a missing partition after all.
TROUBLE = (_I.FAILED, _I.UPSTREAM_FAILED, _I.TAINTED)
WORST_FIRST = (*TROUBLE, _I.UP_FOR_RETRY, _I.UPSTREAM_BUILDING, _I.BUILDING, _I.LIVE)


class WantState(Label):
    """Rule 5.1."""

    #: Just recorded; it leaves this state within the same event.
    NEW = "New"
    #: Nothing builds its refs right now.
    IDLE = "Idle"
    #: A ref of the want is being built.
    BUILDING = "Building"
    #: A ref of the want waits for inputs.
    UPSTREAM_BUILDING = "UpstreamBuilding"
    #: All its refs are live.
    SUCCESSFUL = "Successful"
    #: A ref of the want failed.
    FAILED = "Failed"
    #: An input of a ref of the want failed.
    UPSTREAM_FAILED = "UpstreamFailed"
    #: A requester canceled it.
    CANCELED = "Canceled"
    #: Its time to live ended first.
    EXPIRED = "Expired"


class WantCause(Label):
    """Causes of a want's moves; after a change of its refs, rule 5.2 gives the new state."""

    #: WantCreated.
    CREATED = "created"
    #: The canonical states of its refs give this state by rule 5.2.
    REFS_IDLE = "refs idle"
    REFS_BUILDING = "refs building"
    REFS_UPSTREAM_BUILDING = "refs upstream building"
    REFS_LIVE = "refs live"
    REFS_FAILED = "refs failed"
    REFS_UPSTREAM_FAILED = "refs upstream failed"
    #: A ref of a successful want was tainted within its TTL.
    REOPENED = "reopened"
    #: WantCanceled.
    CANCELED = "canceled"
    #: WantExpired.
    EXPIRED = "expired"


_W, _WC = WantState, WantCause

OPEN_WANTS = frozenset({_W.NEW, _W.IDLE, _W.BUILDING, _W.UPSTREAM_BUILDING})

#: The state that rule 5.2 gives, as the cause of the move to it.
WANT_CAUSE_OF_STATE = {
    _W.IDLE: _WC.REFS_IDLE,
    _W.BUILDING: _WC.REFS_BUILDING,
    _W.UPSTREAM_BUILDING: _WC.REFS_UPSTREAM_BUILDING,
    _W.SUCCESSFUL: _WC.REFS_LIVE,
    _W.FAILED: _WC.REFS_FAILED,
    _W.UPSTREAM_FAILED: _WC.REFS_UPSTREAM_FAILED,
}

WANT = Machine[WantState, WantCause](
    "want",
    [
        Move(None, _WC.CREATED, _W.NEW, "a request was recorded"),
        Move(_W.NEW, _WC.REFS_IDLE, _W.IDLE, "nothing builds its refs yet"),
        Move(_W.NEW, _WC.REFS_BUILDING, _W.BUILDING, "a ref is being built"),
        Move(_W.NEW, _WC.REFS_UPSTREAM_BUILDING, _W.UPSTREAM_BUILDING, "a ref waits for inputs"),
        Move(_W.NEW, _WC.REFS_LIVE, _W.SUCCESSFUL, "all its refs are live"),
        Move(_W.NEW, _WC.REFS_FAILED, _W.FAILED, "a ref has failed"),
        Move(_W.NEW, _WC.REFS_UPSTREAM_FAILED, _W.UPSTREAM_FAILED, "the input of a ref has failed"),
        Move(_W.IDLE, _WC.REFS_BUILDING, _W.BUILDING, "a job run took the lease"),
        Move(_W.IDLE, _WC.REFS_LIVE, _W.SUCCESSFUL, "the last ref arrived, or its taint was removed"),
        Move(_W.BUILDING, _WC.REFS_IDLE, _W.IDLE, "the build ended and another must follow"),
        Move(_W.BUILDING, _WC.REFS_UPSTREAM_BUILDING, _W.UPSTREAM_BUILDING, "the build missed an input"),
        Move(_W.BUILDING, _WC.REFS_LIVE, _W.SUCCESSFUL, "the last ref is live"),
        Move(_W.BUILDING, _WC.REFS_FAILED, _W.FAILED, "a ref failed"),
        Move(_W.BUILDING, _WC.REFS_UPSTREAM_FAILED, _W.UPSTREAM_FAILED, "the input of a ref failed"),
        Move(_W.UPSTREAM_BUILDING, _WC.REFS_IDLE, _W.IDLE, "the inputs are live; another build must follow"),
        Move(_W.UPSTREAM_BUILDING, _WC.REFS_BUILDING, _W.BUILDING, "another of its refs is being built"),
        Move(_W.UPSTREAM_BUILDING, _WC.REFS_FAILED, _W.FAILED, "a ref failed"),
        Move(_W.UPSTREAM_BUILDING, _WC.REFS_UPSTREAM_FAILED, _W.UPSTREAM_FAILED, "an input failed"),
        Move(_W.SUCCESSFUL, _WC.REOPENED, _W.IDLE, "a ref was tainted within its TTL (rule 5.3)"),
        *(
            Move(state, _WC.CANCELED, _W.CANCELED, "a requester canceled it")
            for state in (_W.IDLE, _W.BUILDING, _W.UPSTREAM_BUILDING)
        ),
        *(
            Move(state, _WC.EXPIRED, _W.EXPIRED, "its TTL passed")
            for state in (_W.IDLE, _W.BUILDING, _W.UPSTREAM_BUILDING)
        ),
    ],
    final=[_W.FAILED, _W.UPSTREAM_FAILED, _W.CANCELED, _W.EXPIRED],
)


def want_state(
    n_refs: int, live: int, failed: int, upstream_failed: int, building: int, upstream_building: int
) -> WantState:
    """Rule 5.2 over a histogram of the canonical states of a want's refs; the first match wins."""
    if failed:
        return _W.FAILED
    if upstream_failed:
        return _W.UPSTREAM_FAILED
    if live == n_refs:
        return _W.SUCCESSFUL
    if building:
        return _W.BUILDING
    if upstream_building:
        return _W.UPSTREAM_BUILDING
    return _W.IDLE


class JobRunState(Label):
    """Rule 6.1."""

    #: Buffered; its launch has not started.
    QUEUED = "Queued"
    #: Its launch has started.
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    #: It found inputs missing and named them.
    DEP_MISSED = "DepMissed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    #: Its process died, or its heartbeats stopped.
    LOST = "Lost"
    #: All its refs were live: nothing to run.
    SKIPPED = "Skipped"


class JobRunCause(Label):
    """The events of a job run."""

    BUFFERED = "JobRunBuffered"
    STARTED = "JobRunStarted"
    SUCCEEDED = "JobRunSucceeded"
    DEP_MISSED = "JobRunDepMissed"
    FAILED = "JobRunFailed"
    CANCELED = "JobRunCanceled"
    LOST = "JobRunLost"
    SKIPPED = "JobRunSkipped"
    #: Data that came from outside has a job run too, so that its instance has a uuid like any other (rule 4.2).
    ARRIVED = "LotArrived"
    #: A job run of the base of an environment.
    BORROWED = "InstancesBorrowed"
    #: A job run of an environment of this base.
    PROMOTED = "InstancesPromoted"


_J, _JC = JobRunState, JobRunCause

JOB_RUN = Machine[JobRunState, JobRunCause](
    "job run",
    [
        Move(None, _JC.BUFFERED, _J.QUEUED, "the orchestrator, or a claim, took its leases"),
        Move(None, _JC.SKIPPED, _J.SKIPPED, "all its refs are live already"),
        Move(None, _JC.ARRIVED, _J.SUCCEEDED, "another program built the data"),
        Move(None, _JC.BORROWED, _J.SUCCEEDED, "it built data in the base of an environment"),
        Move(None, _JC.PROMOTED, _J.SUCCEEDED, "it built data in an environment"),
        Move(_J.QUEUED, _JC.STARTED, _J.RUNNING, "its launch began"),
        Move(_J.QUEUED, _JC.DEP_MISSED, _J.DEP_MISSED, "the orchestrator found inputs missing"),
        Move(_J.QUEUED, _JC.CANCELED, _J.CANCELED, "no open want is left for it"),
        Move(_J.QUEUED, _JC.LOST, _J.LOST, "its launch ended without starting it"),
        Move(_J.RUNNING, _JC.SUCCEEDED, _J.SUCCEEDED, "its outputs are live"),
        Move(_J.RUNNING, _JC.DEP_MISSED, _J.DEP_MISSED, "it found inputs missing"),
        Move(_J.RUNNING, _JC.FAILED, _J.FAILED, "its function raised, or its result was refused"),
        Move(_J.RUNNING, _JC.CANCELED, _J.CANCELED, "a person stopped it"),
        Move(_J.RUNNING, _JC.LOST, _J.LOST, "its process is gone"),
    ],
    final=[_J.SUCCEEDED, _J.DEP_MISSED, _J.FAILED, _J.CANCELED, _J.LOST, _J.SKIPPED],
)

#: A job run in any of these states has not ended.
OPEN_JOB_RUNS = frozenset({_J.QUEUED, _J.RUNNING})


#: The source of the wants that an arc makes (rule 5.1).
ARC = "arc"


class ArcState(Label):
    """The state of a lot of an arc."""

    #: It is being built, or its inputs are.
    RUNNING = "running"
    #: It is live, with rows or without.
    COMPLETE = "complete"
    #: It is not live, and data of an attempt exists.
    PARTIAL = "partial"
    #: It has no data.
    MISSING = "missing"


class ArcRule(NamedTuple):
    """A canonical state, with or without data, and the arc's state for it."""

    state: InstanceState | None
    #: None where it does not matter.
    has_data: bool | None
    is_then: ArcState
    why: str


_A = ArcState

ARC_RULES: tuple[ArcRule, ...] = (
    ArcRule(None, None, _A.MISSING, "no build of it began"),
    ArcRule(_I.BUILDING, None, _A.RUNNING, "a job run has the lease"),
    ArcRule(_I.UPSTREAM_BUILDING, None, _A.RUNNING, "it waits, and keeps the lease"),
    ArcRule(_I.LIVE, None, _A.COMPLETE, "its manifest is complete, or empty on purpose"),
    ArcRule(_I.UP_FOR_RETRY, True, _A.PARTIAL, "the next attempt is to come"),
    ArcRule(_I.UP_FOR_RETRY, False, _A.MISSING, "the last attempt left nothing"),
    ArcRule(_I.FAILED, True, _A.PARTIAL, "what it stored before it failed is kept"),
    ArcRule(_I.FAILED, False, _A.MISSING, "it left nothing, or that was cleaned up"),
    ArcRule(_I.UPSTREAM_FAILED, True, _A.PARTIAL, "an attempt before it failed for its inputs"),
    ArcRule(_I.UPSTREAM_FAILED, False, _A.MISSING, "it was never called"),
    ArcRule(_I.TAINTED, True, _A.PARTIAL, "its data exists, and is marked as wrong"),
    ArcRule(_I.TAINTED, False, _A.MISSING, "it failed before, and left nothing"),
)


def arc_state(state: InstanceState | None, *, has_data: bool) -> ArcState:
    """The first rule that fits; every case has a rule."""
    return next(rule.is_then for rule in ARC_RULES if rule.state is state and rule.has_data in (None, has_data))
