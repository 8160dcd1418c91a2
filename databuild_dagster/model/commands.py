"""What can be asked of the engine. A command is an imperative; it is decided into events or refused (SPEC 3.3)."""

from __future__ import annotations

import msgspec

from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import Arrival, BufferedRun, MadeWith, ManifestFact, RunSuccess
from databuild_dagster.model.meta_storage import Statement
from databuild_dagster.model.refs import Ref

#: A want lives a week unless it says otherwise (SPEC 5.5).
DEFAULT_TTL_SECONDS = 7 * 24 * 3600.0
#: A want that a Dagster run leaves behind lives a day (SPEC 8.1).
CLAIM_TTL_SECONDS = 24 * 3600.0


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Something asked of the engine."""


class RegisterDatasets(Command, frozen=True, kw_only=True):
    """A code location tells all its datasets; what changed since the last time is recorded."""

    location: str
    datasets: tuple[DatasetSpec, ...]


class CreateWants(Command, frozen=True, kw_only=True):
    """Record wants under one request. Each inner tuple is one want, all or nothing (SPEC 5.4).

    Refused: a malformed ref, a ref named twice, an unknown asset, a key outside the partitions, a TTL that is not positive.
    """

    wants: tuple[tuple[Ref, ...], ...]
    request_id: str | None = None
    source: str = "user"
    source_id: str | None = None
    comment: str = ""
    priority: int = 0
    ttl_seconds: float | None = DEFAULT_TTL_SECONDS
    sla_seconds: float | None = None
    data_timestamp: float | None = None
    #: Taint what is live or failed first, so that it is built anew (SPEC 8.7).
    rebuild: bool = False
    #: The same for what another code version than today's has built.
    fresh: bool = False


class CancelWants(Command, frozen=True, kw_only=True):
    """Take wants back, by want id or request id (SPEC 6.10).

    Queued job runs that nobody else wants are canceled with them, running ones only with `terminate`.
    """

    ids: tuple[str, ...]
    reason: str = ""
    terminate: bool = False


class ExpireWants(Command, frozen=True, kw_only=True):
    """The orchestrator found wants whose time to live has ended. Those that ended otherwise by now are left out."""

    want_ids: tuple[str, ...]


class MissSlas(Command, frozen=True, kw_only=True):
    """The orchestrator found wants past their deadline. Those that succeeded, or said so before, are left out."""

    want_ids: tuple[str, ...]


class BufferLaunch(Command, frozen=True, kw_only=True):
    """The orchestrator takes the leases of one launch. Refs that are no longer due are left out; a launch without refs is nothing."""

    launch_id: str
    job: str
    location: str
    owner: str
    runs: tuple[BufferedRun, ...]
    code_version: str | None = None


class RunMiss(msgspec.Struct, frozen=True):
    """One job run's missing refs, by impacted output."""

    job_run_id: str
    impacted: dict[Ref, tuple[Ref, ...]]


class BufferMissed(Command, frozen=True, kw_only=True):
    """The orchestrator found declared inputs missing before launching: lease and dep miss in one step, no process (SPEC 6.3)."""

    launch_id: str
    job: str
    location: str
    owner: str
    runs: tuple[BufferedRun, ...]
    misses: tuple[RunMiss, ...]
    code_version: str | None = None


class StartLaunch(Command, frozen=True, kw_only=True):
    """A Dagster run begins a launch. Refused as `AlreadyStarted` for a second starter (SPEC 6.9)."""

    launch_id: str
    dagster_run_id: str
    holder: str
    made_with: MadeWith | None = None


class ClaimRefs(Command, frozen=True, kw_only=True):
    """A Dagster run that is not a launch asks for refs of one job (SPEC 8.1): build, join, reuse or refused, per ref.

    With `may_build` false nothing is recorded unless others do all of it: the answer only says what would be built.
    """

    launch_id: str
    job: str
    location: str
    dagster_run_id: str
    holder: str
    runs: tuple[BufferedRun, ...]
    by_person: bool = True
    may_build: bool = True
    #: What became live or failed before this time is tainted first, to be built anew (SPEC 8.7).
    rebuild_before: float | None = None
    code_version: str | None = None
    made_with: MadeWith | None = None


class GiveUpDelegations(Command, frozen=True, kw_only=True):
    """A requester waits no longer for these refs, or for any; those of its active delegations that are open end."""

    requester: str
    reason: str
    refs: tuple[Ref, ...] = ()


class SucceedJobRuns(Command, frozen=True, kw_only=True):
    """Job runs wrote their data. Refused as `StaleJobRun` when one of them is not running any more: fencing."""

    runs: tuple[RunSuccess, ...]


class MissDeps(Command, frozen=True, kw_only=True):
    """Job runs found inputs missing."""

    misses: tuple[RunMiss, ...]


class RunFailure(msgspec.Struct, frozen=True):
    """Why one job run failed; `kind` is "hard" or "transient" (SPEC 6.8)."""

    job_run_id: str
    error: str
    kind: str = "hard"


class FailJobRuns(Command, frozen=True, kw_only=True):
    """Job runs raised."""

    failures: tuple[RunFailure, ...]


class CancelJobRuns(Command, frozen=True, kw_only=True):
    """Stop job runs. Without `keep_wants` the wants open for their refs are canceled with them (SPEC 6.10)."""

    job_run_ids: tuple[str, ...]
    reason: str = ""
    keep_wants: bool = False


class LoseLaunches(Command, frozen=True, kw_only=True):
    """Launches were judged to be gone; every job run of them that has not ended is lost (SPEC 6.9)."""

    launch_ids: tuple[str, ...]
    reason: str


class TaintPartitions(Command, frozen=True, kw_only=True):
    """Say that canonical instances are wrong. All or nothing (SPEC 7.1).

    `uuids` names instances themselves, which were live once; `downstream` says it of whatever was built from all
    these by recorded inputs, and of what still will be (7.3).
    """

    refs: tuple[Ref, ...] = ()
    reason: str
    uuids: tuple[str, ...] = ()
    #: Instances that somebody has looked at: of these, the ones that are live and that readers still see.
    seen: tuple[str, ...] = ()
    downstream: bool = False
    taint_id: str | None = None


class UntaintPartitions(Command, frozen=True, kw_only=True):
    """Take a taint back."""

    taint_id: str
    reason: str = ""


class RevertCanonical(Command, frozen=True, kw_only=True):
    """Let readers of a ref see an earlier instance of it again (SPEC 7.4).

    Refused while the ref is leased, for what was never live, and, without `force`, for what was built from an
    instance that a downstream taint covers. That its data still exists is for the caller to see.
    """

    ref: Ref
    uuid: str
    force: bool = False
    reason: str = ""


class RetryRefs(Command, frozen=True, kw_only=True):
    """Open what failed behind these refs, and want again everything whose want failed of it (SPEC 6.6)."""

    refs: tuple[Ref, ...]
    reason: str = ""


class Published(msgspec.Struct, frozen=True):
    """An instance that became live, and by which event."""

    uuid: str
    ref: Ref
    seq: int
    #: Arc to the partition keys of it that this wakes, as far as the caller has asked the catalog: a mapping may take
    #: milliseconds, and a decision holds the write lock.
    woken: dict[str, tuple[str | None, ...]] = {}


class FireArcs(Command, frozen=True, kw_only=True):
    """The orchestrator has followed the log up to an event, and names the instances that became live (SPEC 10.5).

    All that the arcs can be woken by, behind the event up to which the last of them was followed. An arc that was
    followed further by now passes over what it has seen.
    """

    up_to_seq: int
    published: tuple[Published, ...] = ()


class RemoveManifests(Command, frozen=True, kw_only=True):
    """Take instances' data away: from the event on nobody reads them, then their files go (SPEC 10.8).

    What must stay, by `model.removals`, is left out: somebody may have gone back to it since it was looked at. That no
    kept manifest lists its files is for the caller to see.
    """

    uuids: tuple[str, ...]
    reason: str
    #: Also what is tainted, and has no successor yet.
    tainted: bool = False


class FinishRemovals(Command, frozen=True, kw_only=True):
    """The files of removed instances are gone. Those that somebody else has finished are left out."""

    uuids: tuple[str, ...]


class ReplaceFiles(Command, frozen=True, kw_only=True):
    """A live instance's rows were written anew in other files, as an instance of its own (SPEC 9.8, compact).

    Refused if readers see another one by now, or if what they see is live no more.
    """

    ref: Ref
    #: The instance whose rows they are.
    uuid: str
    job_run_id: str
    manifest: ManifestFact


class ArriveLots(Command, frozen=True, kw_only=True):
    """Data of refs came from outside. Leased refs are refused; an origin that is known already is left out.

    `seen` names the canonical instance that the caller saw, by ref, None for none: another one is refused.
    """

    arrivals: tuple[Arrival, ...]
    seen: dict[Ref, str | None] = {}


class InvokeMeta(Command, frozen=True, kw_only=True):
    """Evaluate statements on the meta storage one after another, each seeing what those before it did (SPEC 9.1).

    All that they touch gets one revision: the event's seq. It is recorded even if nothing is touched.
    """

    statements: tuple[Statement, ...]


class CompactMeta(Command, frozen=True, kw_only=True):
    """Forget what the meta storage's keys went through, and its tombstones, up to a revision.

    Never more than what every watcher with a lease has seen; nothing where that was forgotten before.
    """

    up_to: int
