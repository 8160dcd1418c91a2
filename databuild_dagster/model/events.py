"""The facts of the log (rule 3.6). A stored name and shape is permanent.

An event carries a decision, with every id and time that the fold needs. Facts about many entities of a command are a single event
with many entries. The stored name of an event is its tag, not the name of its class.
"""

from typing import Any, NamedTuple, get_args

import msgspec

from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref


class Fact(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """A past-tense entry of the log."""


class WantFact(msgspec.Struct, frozen=True):
    """A want of a request."""

    id: str
    refs: tuple[Ref, ...]


class WantCreated(Fact, frozen=True, tag="WantCreated"):
    """A request for refs to be live (rule 5.1)."""

    request_id: str
    wants: tuple[WantFact, ...]
    source: str
    #: The id of a job run or a Dagster run that asked.
    source_id: str | None = None
    comment: str = ""
    priority: int = 0
    data_timestamp: float | None = None
    ttl_seconds: float | None = None
    sla_seconds: float | None = None
    #: Decided from TTL and SLA (rule 5.5); for a derivative want taken from the wants that need it (rule 6.4).
    expires_at: float | None = None
    deadline: float | None = None
    #: A failure ends also the wants of the other missing refs (rule 6.14). False in version 1.
    fail_fast: bool = False


class Keeping(msgspec.Struct, frozen=True):
    """Derivative wants that stay, and the ended wants that they were made for."""

    want_ids: tuple[str, ...]
    made_for: tuple[str, ...]


class WantKept(Fact, frozen=True, tag="WantKept"):
    """Derivative wants stay, although an input of what needed them failed (rule 6.14)."""

    keepings: tuple[Keeping, ...]


class WantCanceled(Fact, frozen=True, tag="WantCanceled"):
    """Wants were canceled, by a person or because no ref waits for them."""

    want_ids: tuple[str, ...]
    reason: str = ""
    #: Ended wants whose requesters do not need what was kept for them any longer (rule 6.14). Empty in version 1.
    withdrawn: tuple[str, ...] = ()


class WantExpired(Fact, frozen=True, tag="WantExpired"):
    """Wants' time to live ended before their refs were live (rule 5.5)."""

    want_ids: tuple[str, ...]


class WantSlaMissed(Fact, frozen=True, tag="WantSlaMissed"):
    """Wants were not successful by their deadline; recorded once, without other effects (rule 5.5)."""

    want_ids: tuple[str, ...]


class BufferedRun(msgspec.Struct, frozen=True):
    """A job run of a launch: the partition key and the refs whose leases it takes."""

    job_run_id: str
    refs: tuple[Ref, ...]
    partition_key: str | None = None


class JobRunBuffered(Fact, frozen=True, tag="JobRunBuffered"):
    """Job runs took the leases of their refs; each ref got a new instance, canonical at once (rule 4.2)."""

    launch_id: str
    job: str
    location: str
    #: The orchestrator that has to bring the launch to Dagster (rule 6.9), or the Dagster run that claimed.
    owner: str
    runs: tuple[BufferedRun, ...]
    code_version: str | None = None


class MadeWith(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code, configuration and libraries of a launch (rule 4.6)."""

    #: The digest of the code, or `unknown` (rule 4.7). Older versions have a fingerprint of the called function alone.
    code: str | None = None
    #: The run configuration of its step and of the resources.
    config: dict[str, Any] = {}
    #: The tags of the Dagster run that change a build.
    tags: dict[str, str] = {}
    #: The versions of Python and the libraries, by name.
    versions: dict[str, str] = {}
    #: Why the code is unknown.
    unknown: tuple[str, ...] = ()


class JobRunStarted(Fact, frozen=True, tag="JobRunStarted"):
    """A launch began in a Dagster run; accepted once (rule 6.9)."""

    launch_id: str
    dagster_run_id: str
    #: The hosting process, identified so that any process can see if it exists.
    holder: str
    job_run_ids: tuple[str, ...]
    #: None for a plain asset, and in events of older versions, which ignore it.
    made_with: MadeWith | None = None


class ManifestFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts of a manifest for planning and display; the manifest itself is beside the data."""

    #: "complete" or "empty".
    state: str
    uri: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    #: The content hash of its rows (rule 4.6), with the name of its implementation; None if it is unknown.
    content_hash: str | None = None


class OutputFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """An output of a job run that succeeded: from exactly which instances it was made (rule 4.6)."""

    ref: Ref
    #: Input ref to the uuid that was read.
    inputs: dict[Ref, str] = {}
    code_version: str | None = None
    #: None for a plain Dagster asset, whose data is in its own place.
    manifest: ManifestFact | None = None
    #: The Dagster run and event of a plain asset's data.
    origin: str | None = None
    #: The last live instance of the ref, if its rows are equal (rule 4.8). None in version 1.
    same_data_as: str | None = None
    #: The numbers of the author's metadata, by name.
    numbers: dict[str, float] = {}


class RunSuccess(msgspec.Struct, frozen=True):
    """A job run that succeeded, with all its outputs."""

    job_run_id: str
    outputs: tuple[OutputFact, ...]


class JobRunSucceeded(Fact, frozen=True, tag="JobRunSucceeded"):
    """Job runs wrote their outputs; the outputs are live."""

    runs: tuple[RunSuccess, ...]


class ImpactFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """An output that cannot be built yet, with the verdict of decide."""

    ref: Ref
    missing: tuple[Ref, ...]
    #: "wait", "unbuildable", "cycle" or "too_many_misses".
    verdict: str = "wait"
    #: Why it cannot be built; of an output that waits, how its live inputs are damaged (rule 6.16).
    reason: str = ""
    #: In version 1 only: the refs of the cycle, this ref first; the same event fails the other refs.
    cycle: tuple[Ref, ...] = ()
    #: Of an output that does not wait: the missing refs that exist. The job run found them, and the next job run is held for them.
    learned: tuple[Ref, ...] = ()


class RunMissFact(msgspec.Struct, frozen=True):
    """A job run that missed inputs."""

    job_run_id: str
    impacted: tuple[ImpactFact, ...]


class JobRunDepMissed(Fact, frozen=True, tag="JobRunDepMissed"):
    """Job runs found inputs missing (rule 6.3)."""

    misses: tuple[RunMissFact, ...]
    #: The time of the retry for inputs that are live by now (rule 6.5).
    retry_at: float
    #: Refs that waited before and lie on a cycle that the misses close, with the cycle spelled out (rule 6.7). None in version 1.
    cycles: dict[Ref, str] | None = None


class RunFailureFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job run that failed or was lost: the refs that are retried, and when; all other refs failed for good."""

    job_run_id: str
    error: str
    retries: dict[Ref, float] = {}
    #: `surroundings.Surrounding`; None if it is the partition's own failure, and in version 1.
    owner: str | None = None
    #: The refs of which it does not count as an attempt (rules 6.17, 6.18). Empty in version 1.
    spared: tuple[Ref, ...] = ()


class JobRunFailed(Fact, frozen=True, tag="JobRunFailed"):
    """Job runs raised (rule 6.8)."""

    failures: tuple[RunFailureFact, ...]


class JobRunLost(Fact, frozen=True, tag="JobRunLost"):
    """Job runs whose launch is gone (rule 6.9)."""

    failures: tuple[RunFailureFact, ...]


class JobRunCanceled(Fact, frozen=True, tag="JobRunCanceled"):
    """Job runs were stopped, by a person or because no open want needs them."""

    job_run_ids: tuple[str, ...]
    reason: str = ""
    #: Outputs that fail, because a waiting ref misses them and a person stopped them (rule 6.10). Empty in version 1.
    failed: tuple[Ref, ...] = ()


class SkippedRun(msgspec.Struct, frozen=True):
    """A job run that had nothing to do, with the instances that served instead."""

    job_run_id: str
    refs: tuple[Ref, ...]
    partition_key: str | None = None


class JobRunSkipped(Fact, frozen=True, tag="JobRunSkipped"):
    """A Dagster run asked for live refs (rule 8.2)."""

    launch_id: str
    job: str
    location: str
    dagster_run_id: str
    runs: tuple[SkippedRun, ...]
    #: `coordination.SKIPPED_MESSAGE`; empty in older logs.
    message: str = ""


class DelegationFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ref that a foreign job run builds, or has built, for the requester (rule 8.1)."""

    ref: Ref
    #: `coordination.Answer`: "joined", "reused" or "refused".
    kind: str
    #: The job run that builds it, or built it; and the instance delegated to.
    job_run_id: str
    uuid: str
    #: The reason of a refusal.
    reason: str = ""


class PartitionDelegated(Fact, frozen=True, tag="PartitionDelegated"):
    """A request does not build some refs itself: it joins, reuses or is refused."""

    #: The request id of wants, or the Dagster run.
    requester: str
    delegations: tuple[DelegationFact, ...]


class DelegationGivenUp(Fact, frozen=True, tag="DelegationGivenUp"):
    """A requester does not wait any longer for foreign builds (rule 8.3)."""

    requester: str
    refs: tuple[Ref, ...]
    reason: str = ""


class TaintCreated(Fact, frozen=True, tag="TaintCreated"):
    """The canonical instances of refs are marked as wrong (rule 7.1)."""

    taint_id: str
    refs: tuple[Ref, ...]
    reason: str
    #: Instances that the command names, canonical or not (rule 7.3).
    uuids: tuple[str, ...] = ()
    #: Also all instances that were or will be built from them; the fold walks the lineage (rule 7.3).
    downstream: bool = False
    #: Other code than the present code built them, which says nothing about their rows (rules 8.7, 4.9). False before version 8.
    of_code: bool = False


class TaintCanceled(Fact, frozen=True, tag="TaintCanceled"):
    """A taint was removed from every instance."""

    taint_id: str
    reason: str = ""


class CanonicalReverted(Fact, frozen=True, tag="CanonicalReverted"):
    """Readers see an earlier instance again, without its taints (rule 7.4)."""

    ref: Ref
    uuid: str
    reason: str = ""


class Return(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier instance of a ref: its uuid follows from its job run and the ref (rule 2.2)."""

    job_run_id: str
    ref: Ref
    manifest: ManifestFact


class InstancesReturned(Fact, frozen=True, tag="InstancesReturned"):
    """Readers see earlier instances again, because a build would make the same of the present code and inputs (rule 4.9)."""

    #: Inputs before what was built from them.
    returns: tuple[Return, ...]


class PartitionsPaused(Fact, frozen=True, tag="PartitionsPaused"):
    """Nothing launches `refs` until they are resumed (rule 6.13)."""

    #: A ref without a partition key names every partition of its asset, also future partitions.
    refs: tuple[Ref, ...]
    reason: str
    #: The pause ends by itself at this time; None for a pause that only a resume ends.
    until: float | None = None


class PartitionsResumed(Fact, frozen=True, tag="PartitionsResumed"):
    """The pauses of `refs` ended."""

    refs: tuple[Ref, ...]
    reason: str = ""


class Erasure(msgspec.Struct, frozen=True):
    """The request by which rows leave a dataset for good (rule 10.11)."""

    #: SHA-256 of the condition, whose text may name a person and so stays out of the log.
    where_sha256: str
    #: In the words of the user.
    reason: str


class ManifestRemoved(Fact, frozen=True, tag="ManifestRemoved"):
    """The data of instances is removed: readers stop here, and their files are deleted next (rule 10.8)."""

    uuids: tuple[str, ...]
    #: `removals.Reason`
    reason: str
    #: The request, if they held rows that it erases.
    erasure: Erasure | None = None


class RemovalFinished(Fact, frozen=True, tag="RemovalFinished"):
    """The files of removed instances are deleted."""

    uuids: tuple[str, ...]


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data of a ref from outside; the job run id gives the instance its uuid (rule 4.2)."""

    job_run_id: str
    ref: Ref
    #: The origin, so that the same arrival is recorded once.
    origin: str
    manifest: ManifestFact | None = None
    #: The live instance with the same rows in other files; builds from it stay valid (rule 9.8).
    same_as: str | None = None


class LotArrived(Fact, frozen=True, tag="LotArrived"):
    """Data came from outside: a new instance, live at once."""

    arrivals: tuple[Arrival, ...]


class Birth(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instance of a different log as it was made there: its uuid follows from the job run and the ref (rule 2.2)."""

    job_run_id: str
    job: str
    ref: Ref
    #: Input ref to the uuid that was read. This log may not have that instance.
    inputs: dict[Ref, str] = {}
    code_version: str | None = None
    #: The digest of the code that built it (rule 4.7).
    code: str | None = None
    manifest: ManifestFact | None = None
    origin: str | None = None
    #: The instance of this log with the same rows in other files, which it replaces; builds from that stay valid (rule 9.8).
    same_as: str | None = None
    #: The numbers of the author's metadata, by name.
    numbers: dict[str, float] = {}


class InstancesBorrowed(Fact, frozen=True, tag="InstancesBorrowed"):
    """An environment uses instances of its base: the files stay in their places (rule 16.3)."""

    births: tuple[Birth, ...]


class InstancesPromoted(Fact, frozen=True, tag="InstancesPromoted"):
    """A base uses instances that one of its environments built: the files stay in their places (rule 16.10)."""

    environment: str
    #: Instances that this log does not have.
    births: tuple[Birth, ...]
    #: Instances that this log has.
    returns: tuple[Return, ...] = ()


class ArcFiring(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instance of a source has woken an arc, once."""

    arc: str
    #: The instance's uuid.
    source: str
    #: The lots that became wanted; a lot that is live is not.
    lots: tuple[Ref, ...] = ()


class ArcFired(Fact, frozen=True, tag="ArcFired"):
    """Arcs were followed along the log; the wants that they made are in the same transaction (rule 10.5)."""

    #: The last event that was read.
    up_to_seq: int
    arcs: tuple[str, ...]
    firings: tuple[ArcFiring, ...] = ()


class DatasetRegistered(Fact, frozen=True, tag="DatasetRegistered"):
    """A code location registered its datasets; only changes are recorded (rule 5.7). Datasets have no code before version 3."""

    location: str
    datasets: tuple[DatasetSpec, ...] = ()
    removed: tuple[str, ...] = ()
    #: Arcs that come back and keep their place in the log (rule 10.5). Empty in version 1, where they began at the present.
    resumed: tuple[str, ...] = ()


class AsideFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Subjects of a kind with a new reason; without a reason they are set aside no longer."""

    #: `set_aside.Subject`
    kind: str
    names: tuple[str, ...]
    reason: str | None = None


class SetAsideChanged(Fact, frozen=True, tag="SetAsideChanged"):
    """The subjects that the ticks of a location set aside, or their reasons, changed (rule 11.7)."""

    location: str
    changes: tuple[AsideFact, ...]


class MetaInvoked(Fact, frozen=True, tag="MetaInvoked"):
    """An invoke on the meta storage, with its results and writes. Its seq is the revision (rule 9.1)."""

    #: An answer for each statement.
    answers: tuple[bool | int | bytes | None, ...]
    #: Prefixes whose keys were removed, before the writes below.
    cleared: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    puts: dict[str, bytes] = {}


class MetaCompacted(Fact, frozen=True, tag="MetaCompacted"):
    """Changes of the meta storage's keys up to a revision, and tombstones of that time, are deleted."""

    revision: int


AnyFact = (
    WantCreated
    | WantKept
    | WantCanceled
    | WantExpired
    | WantSlaMissed
    | JobRunBuffered
    | JobRunStarted
    | JobRunSucceeded
    | JobRunDepMissed
    | JobRunFailed
    | JobRunLost
    | JobRunCanceled
    | JobRunSkipped
    | PartitionDelegated
    | DelegationGivenUp
    | TaintCreated
    | TaintCanceled
    | CanonicalReverted
    | InstancesReturned
    | PartitionsPaused
    | PartitionsResumed
    | ManifestRemoved
    | RemovalFinished
    | LotArrived
    | InstancesBorrowed
    | InstancesPromoted
    | ArcFired
    | DatasetRegistered
    | SetAsideChanged
    | MetaInvoked
    | MetaCompacted
)
EVENT_TYPES: tuple[type[Fact], ...] = get_args(AnyFact)


def names_of(*kinds: type[Fact]) -> tuple[str, ...]:
    """The stored names of types of events."""
    return tuple(str(kind.__struct_config__.tag) for kind in kinds)


class Event(NamedTuple):
    """A fact with its envelope (rule 3.1)."""

    seq: int
    #: Seconds since 1970 UTC, never before the event before.
    at: float
    fact: Fact
    command_id: str
    actor: str
