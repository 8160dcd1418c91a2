"""The commands of the engine: imperatives that `decide` turns into events or refuses (rule 3.3)."""

from typing import Annotated

import msgspec

from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import (
    Arrival,
    AsideFact,
    Birth,
    BufferedRun,
    CanonicalReverted,
    Erasure,
    MadeWith,
    ManifestFact,
    ManifestRemoved,
    RunSuccess,
    TaintCanceled,
    TaintCreated,
)
from databuild_dagster.model.meta_storage import Statement
from databuild_dagster.model.records import Asked
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.surroundings import Fate, Surrounding

#: A want lives a week unless it says otherwise (rule 5.5).
DEFAULT_TTL_SECONDS = 7 * 24 * 3600.0
#: A want that a Dagster run leaves behind lives a day (rule 8.1).
CLAIM_TTL_SECONDS = 24 * 3600.0


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the engine."""


class RegisterDatasets(Command, frozen=True, kw_only=True):
    """Register all datasets of a code location; only changes since the last time are recorded."""

    location: str
    datasets: tuple[DatasetSpec, ...]


class CreateWants(Command, frozen=True, kw_only=True):
    """Record wants under a single request. Each inner tuple is a want, all or nothing (rules 5.4, 6.14, 8.7).

    Refused: a malformed ref, a ref named twice, an unknown asset, a key outside the partitions, a TTL that is not positive.
    """

    wants: tuple[tuple[Ref, ...], ...]
    request_id: str | None = None
    source: str = "user"
    source_id: str | None = None
    comment: Annotated[str, Asked("text", "The reason, shown with the wants.")] = ""
    priority: Annotated[int, Asked("number", "Higher is more urgent.")] = 0
    ttl_seconds: Annotated[
        float | None, Asked("duration", "How long the want stays open: 90s, 12h, 7d, or none.", "7d")
    ] = DEFAULT_TTL_SECONDS
    sla_seconds: Annotated[float | None, Asked("duration", "The time until the data should be live: 90s, 12h, 7d.")] = (
        None
    )
    data_timestamp: Annotated[
        float | None,
        Asked("time", "The time of the data, as 2026-11-21T14:00:00Z: the SLA counts from then, else from now."),
    ] = None
    rebuild: Annotated[bool, Asked("flag", "Rebuild {refs}, also those that are live or failed.")] = False
    fresh: Annotated[bool, Asked("flag", "Rebuild those of {refs} that other code built.")] = False
    fail_fast: Annotated[bool, Asked("flag", "Stop building the other inputs once one has failed.")] = False


class CancelWants(Command, frozen=True, kw_only=True):
    """Cancel wants, by want id or request id, and the wants kept for failed wants (rules 6.10, 6.14).

    Queued job runs without a further want are canceled too, running job runs only with `terminate`.
    """

    ids: tuple[str, ...]
    reason: str = ""
    terminate: bool = False


class ExpireWants(Command, frozen=True, kw_only=True):
    """End wants whose TTL has passed. Wants that ended otherwise by now are left out."""

    want_ids: tuple[str, ...]


class MissSlas(Command, frozen=True, kw_only=True):
    """Record that wants missed their deadline. Wants that succeeded, or have this record, are left out."""

    want_ids: tuple[str, ...]


class BufferLaunch(Command, frozen=True, kw_only=True):
    """Take the leases of a launch of the orchestrator. Refs that are not due by now are left out."""

    launch_id: str
    job: str
    location: str
    owner: str
    runs: tuple[BufferedRun, ...]
    code_version: str | None = None


class RunMiss(msgspec.Struct, frozen=True):
    """The missing refs of a job run, by impacted output."""

    job_run_id: str
    impacted: dict[Ref, tuple[Ref, ...]]
    #: Live inputs that are lost or damaged, in words with the command that repairs them (rule 6.16); empty for missing inputs.
    damage: str = ""


class BufferMissed(Command, frozen=True, kw_only=True):
    """Record that declared inputs are missing before a launch: lease and dep miss in a single step, without a process (rule 6.3)."""

    launch_id: str
    job: str
    location: str
    owner: str
    runs: tuple[BufferedRun, ...]
    misses: tuple[RunMiss, ...]
    code_version: str | None = None


class StartLaunch(Command, frozen=True, kw_only=True):
    """Start a launch in a Dagster run. Raises `AlreadyStarted` for the second Dagster run (rule 6.9)."""

    launch_id: str
    dagster_run_id: str
    holder: str
    made_with: MadeWith | None = None


class ClaimRefs(Command, frozen=True, kw_only=True):
    """Ask for refs of a job from a Dagster run that is not a launch (rule 8.1): build, join, reuse or refused, per ref.

    Without `may_build` an answer with a ref to build records nothing: it shows the refs that would be built.
    """

    launch_id: str
    job: str
    location: str
    dagster_run_id: str
    holder: str
    runs: tuple[BufferedRun, ...]
    by_person: bool = True
    may_build: bool = True
    #: Refs that became live or failed before this time are tainted first, to be built again (rule 8.7).
    rebuild_before: float | None = None
    code_version: str | None = None
    made_with: MadeWith | None = None


class GiveUpDelegations(Command, frozen=True, kw_only=True):
    """End the active delegations of a requester to `refs`; to all refs if empty."""

    requester: str
    reason: str
    refs: tuple[Ref, ...] = ()


class SucceedJobRuns(Command, frozen=True, kw_only=True):
    """Report that job runs wrote their data. Raises `StaleJobRun` when any of them is not running: fencing."""

    runs: tuple[RunSuccess, ...]


class MissDeps(Command, frozen=True, kw_only=True):
    """Report that job runs found inputs missing."""

    misses: tuple[RunMiss, ...]


class RunFailure(msgspec.Struct, frozen=True):
    """The error of a job run; `kind` is "hard" or "transient" (rule 6.8)."""

    job_run_id: str
    error: str
    kind: str = "hard"
    #: Of a transient error, what was found out of reach (rule 6.17).
    owner: Surrounding | None = None


class FailJobRuns(Command, frozen=True, kw_only=True):
    """Report that job runs raised."""

    failures: tuple[RunFailure, ...]


class CancelJobRuns(Command, frozen=True, kw_only=True):
    """Stop job runs. Without `keep_wants` the wants open for their refs are canceled with them (rule 6.10)."""

    job_run_ids: tuple[str, ...]
    reason: str = ""
    keep_wants: bool = False
    #: An output that a waiting ref misses fails, so that no tick builds it again. A person's cancel says so, an interrupt does not.
    fail_missed: bool = False


class LoseLaunches(Command, frozen=True, kw_only=True):
    """Record that launches are gone: their open job runs are lost (rule 6.9)."""

    launch_ids: tuple[str, ...]
    reason: str
    fate: Fate = Fate.KILLED


class TaintPartitions(Command, frozen=True, kw_only=True):
    """Mark canonical instances as wrong, all or none (rule 7.1).

    `uuids` names instances that were live once; `downstream` covers all instances that were or will be built from the marked instances, by
    recorded inputs (rule 7.3).
    """

    refs: tuple[Ref, ...] = ()
    reason: str
    uuids: tuple[str, ...] = ()
    #: Instances that a check has read: an instance that is live and that readers still see is marked.
    seen: tuple[str, ...] = ()
    downstream: bool = False
    taint_id: str | None = None


class UntaintPartitions(Command, frozen=True, kw_only=True):
    """Cancel a taint."""

    taint_id: str
    reason: str = ""


class RevertCanonical(Command, frozen=True, kw_only=True):
    """Make an earlier instance of a ref canonical (rule 7.4).

    Refused while the ref is leased, for an instance that was never live, and, without `force`, for an instance that was built from an
    instance under a downstream taint. The caller checks that its data exists.
    """

    ref: Ref
    uuid: str
    force: bool = False
    reason: str = ""


class Reversal(msgspec.Struct, frozen=True):
    """A ref that an event pointed to an instance."""

    ref: Ref
    #: The instance to which the event pointed the ref.
    uuid: str
    #: The instance before, to which the ref goes back; None if it was not live.
    before: str | None


class RevertEvent(Command, frozen=True, kw_only=True):
    """Point the refs of an event back, or taint the instance that the event made canonical (rule 7.5).

    Refused as a whole, with each cause, if a ref has moved since, and, without `force`, for an instance before that is tainted or was
    built from an instance under a downstream taint. The caller has read `reversals` from the log, and checks that the data exists.
    """

    seq: int
    reversals: tuple[Reversal, ...]
    force: bool = False
    reason: str = ""


class PausePartitions(Command, frozen=True, kw_only=True):
    """Keep refs from being launched, all or none (rule 6.13). Their queued job runs are canceled, and their wants stay open.

    A ref without a partition key names every partition of its asset, also future partitions.
    """

    refs: tuple[Ref, ...]
    reason: str
    #: The pause ends by itself at this time.
    until: float | None = None
    #: Cancel running job runs too.
    terminate: bool = False


class ResumePartitions(Command, frozen=True, kw_only=True):
    """End the pauses of refs, all or none. A ref without a partition key ends all pauses of its asset."""

    refs: tuple[Ref, ...]
    reason: str = ""


class RetryRefs(Command, frozen=True, kw_only=True):
    """Taint the causes why `refs` failed, and repeat the wants that failed because of `refs` (rule 6.6)."""

    refs: tuple[Ref, ...]
    reason: str = ""


class Published(msgspec.Struct, frozen=True):
    """An instance that became live, and the event by which it did."""

    uuid: str
    ref: Ref
    seq: int
    #: Arc to the partition keys that this instance wakes, as far as the caller has asked the catalog: a mapping may take
    #: milliseconds, and a decision holds the write lock.
    woken: dict[str, tuple[str | None, ...]] = {}


class FireArcs(Command, frozen=True, kw_only=True):
    """Fire arcs for the instances that became live up to an event of the log (rule 10.5).

    `published` holds all instances that can wake an arc after the least advanced arc's seq. An arc that is further by now skips instances
    that it has seen.
    """

    up_to_seq: int
    published: tuple[Published, ...] = ()
    #: The arcs that were followed, each with the registration by which it was in force then; None for all. Any other arc stays
    #: where it is: its mapping raised, or it came back since, and earlier instances have to wake it.
    followed: dict[str, int] | None = None


class RemoveManifests(Command, frozen=True, kw_only=True):
    """Remove the data of instances: readers stop at the event, then their files are deleted (rule 10.8).

    An instance that `model.removals` keeps by now is left out. The caller checks that no kept manifest lists its files.
    """

    uuids: tuple[str, ...]
    reason: str
    #: Also tainted instances without a successor.
    tainted: bool = False
    #: They hold rows that this request erases: only instances that a reader or a job run uses stay (rule 10.11).
    erasure: Erasure | None = None


class FinishRemovals(Command, frozen=True, kw_only=True):
    """Record that the files of removed instances are deleted. Instances with this record are left out."""

    uuids: tuple[str, ...]


class ReplaceFiles(Command, frozen=True, kw_only=True):
    """Record other files with the rows of a live instance, or with the rows that stay after an erasure, as a new instance
    (rules 9.8, compact, and 10.11).

    Raises `CanonicalMoved` if readers see a different instance by now, or the instance is not live.
    """

    ref: Ref
    #: The instance whose rows they are.
    uuid: str
    job_run_id: str
    manifest: ManifestFact
    #: Rows of the instance were erased: the files have the remaining rows.
    erased: bool = False


class ArriveLots(Command, frozen=True, kw_only=True):
    """Record data of refs from outside. A leased ref is refused; a known origin is left out.

    `seen` has the canonical instance that the caller saw, by ref, None for none: for any other, the command is refused.
    """

    arrivals: tuple[Arrival, ...]
    seen: dict[Ref, str | None] = {}


class BorrowInstances(Command, frozen=True, kw_only=True):
    """Record instances of the base, each as the canonical instance of its ref (rule 16.3).

    A ref that is live or leased by now is left out, and an instance that this log has. `seen` has borrowed instances by ref that
    the instances replace although they are live.
    """

    births: tuple[Birth, ...]
    seen: dict[Ref, str] = {}
    #: The environment, the key of its opening in the meta storage, and its revision: a pin that moved refuses what was chosen before.
    environment: str = ""
    opening: str | None = None
    revision: int = 0


#: What the base may have done to a borrowed instance.
BaseFact = TaintCreated | TaintCanceled | CanonicalReverted | ManifestRemoved


class FollowBase(Command, frozen=True, kw_only=True):
    """Record what happened in the base to borrowed instances (rule 16.8). Facts that this log has are left out.

    The facts name instances by uuid, and taints by the id that they have in the base.
    """

    facts: tuple[BaseFact, ...]


class Returnable(msgspec.Struct, frozen=True):
    """A ref that may get an earlier instance in place of a build."""

    ref: Ref
    #: Its declared inputs.
    inputs: tuple[Ref, ...]
    #: The partitions of its asset mean what they mean now since this event; an older instance stays where it is.
    since_seq: int = 0


class ReturnInstances(Command, frozen=True, kw_only=True):
    """Make earlier instances canonical, where a build would make the same of the present code and inputs (rule 4.9).

    A ref without such an instance is left out. A sample of the other refs is set aside for a second build.
    """

    refs: tuple[Returnable, ...]
    #: The part of the refs that is the sample, 0 to 1.
    verify: float = 0.0
    #: The sample has a ref, whatever its part is.
    at_least_one: bool = False


class PromoteInstances(Command, frozen=True, kw_only=True):
    """Make instances of an environment the canonical instances of their refs, in one event (rule 16.10).

    It is refused as a whole, with a cause for each ref that cannot move. A ref whose instance readers see already is left out.
    """

    environment: str
    #: The key of the environment's opening in the meta storage, and its revision: its closing refuses what comes later.
    opening: str
    revision: int
    #: The last event of this log that the environment sees.
    pin: int
    instances: tuple[Birth, ...]
    #: The pins of refs that were built before the environment moved its pin.
    built_at: dict[Ref, int] = {}
    #: The datasets of the environment, by asset.
    datasets: dict[str, DatasetSpec] = {}
    #: Also of code that is not registered here yet.
    ahead: bool = False


class ChangeSetAside(Command, frozen=True, kw_only=True):
    """Record the new reasons by which a location's tick sets subjects aside, and the subjects that it plans again (rule 11.7)."""

    location: str
    changes: tuple[AsideFact, ...]


class InvokeMeta(Command, frozen=True, kw_only=True):
    """Evaluate statements on the meta storage in order, each on the result of the statements before it (rule 9.1).

    All keys that they touch get the same revision: the event's seq. The event is recorded even if they touch none.
    """

    statements: tuple[Statement, ...]


class CompactMeta(Command, frozen=True, kw_only=True):
    """Compact the changes of the meta storage's keys, and its tombstones, up to a revision.

    Changes that a watcher with a lease has not seen are kept.
    """

    up_to: int
