"""Running operations, kept up to date by the changes of their keys since the last look, and the leases of jobs (rule 9.6).

A look costs as much as has changed. Only the first look, and a look after a compaction, reads all keys.
"""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.lookout import look_at
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.meta_storage import MetaStorage, Watch
from databuild_dagster.model.errors import NewerOperations
from databuild_dagster.model.meta_storage import CompactedRevision, Entry
from databuild_dagster.model.operations import keys, records
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import MAX_ADOPTIONS, Lease, Trouble, lease_of
from databuild_dagster.model.operations.states import JobState, end_of
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.meta_storage import MAX_BATCHES

#: Polls of a look.
MAX_CATCH_UPS = 1_000


class Taken(NamedTuple):
    """The lease of a job."""

    #: The stored bytes, to be compared.
    value: bytes
    lease: Lease


class Tracked:
    """A running operation."""

    def __init__(self, id: OperationId) -> None:
        self.id = id
        self.arg: bytes | None = None
        self.is_fail_fast = False
        self.is_running = False
        #: Partition to its instance at the start.
        self.partitions: dict[str, str | None] = {}
        #: Jobs that no executor has, in order.
        self.free: dict[str, None] = {}
        #: Jobs that an executor has.
        self.taken: dict[str, Taken] = {}
        self.done: dict[str, JobState] = {}
        self.n_failed = 0
        #: Why jobs that have not ended are retried.
        self.troubles: dict[str, Trouble] = {}
        #: Why its completion is retried.
        self.trouble: Trouble | None = None
        #: The key that cannot be read here, because newer code wrote it.
        self.unreadable: str | None = None

    @property
    def is_complete(self) -> bool:
        """Rule 9.6: all jobs have ended, or a job failed in an operation with `fail_fast`."""
        n_succeeded = len(self.done) - self.n_failed
        ended = end_of(len(self.partitions), n_succeeded, self.n_failed, fail_fast=self.is_fail_fast)
        return self.is_running and ended is not None

    def apply(self, key: str, value: bytes | None) -> None:
        """Apply the new value of a key; None if it was removed."""
        try:
            self._apply(key, value)
        except (msgspec.MsgspecError, ValueError) as error:
            self.unreadable = f"{key} cannot be read here: {one_line(str(error))}"

    def _apply(self, key: str, value: bytes | None) -> None:
        rest = key[len(self.id.under) :].split(keys.SEPARATOR)
        match rest:
            case ["state"]:
                self.is_running = value == records.RUNNING
            case ["arg"]:
                self.arg = value
                self.is_fail_fast = records.is_fail_fast(value)
            case ["partitions"] if value is not None:
                self.partitions = records.partitions_of(value)
                self.free = {key: None for key in self.partitions if key not in self.taken and key not in self.done}
            case ["trouble"]:
                self.trouble = _trouble(value)
            case [part, "trouble"]:
                self._in_trouble(keys.unescape(part), value)
            case [part, "executor"]:
                self._taken(keys.unescape(part), value)
            case [part, "state"] if value is not None:
                self._ended(keys.unescape(part), value)

    def _taken(self, partition: str, lease: bytes | None) -> None:
        if partition in self.done:
            return
        if lease is None:
            self.taken.pop(partition, None)
            self.free[partition] = None
        else:
            self.free.pop(partition, None)
            self.taken[partition] = Taken(lease, records.lease_of(lease))

    def _in_trouble(self, partition: str, value: bytes | None) -> None:
        trouble = _trouble(value)
        if trouble is None or partition in self.done:
            self.troubles.pop(partition, None)
        else:
            self.troubles[partition] = trouble

    def _ended(self, partition: str, mark: bytes) -> None:
        self.troubles.pop(partition, None)
        self.free.pop(partition, None)
        self.taken.pop(partition, None)
        self.done[partition] = records.mark_of(mark).state
        self.n_failed += self.done[partition] is JobState.FAILED


def _trouble(value: bytes | None) -> Trouble | None:
    """None for a trouble of newer code, which is ignored: nothing depends on it."""
    try:
        return None if value is None else records.trouble_of(value)
    except msgspec.MsgspecError:
        return None


class Tracker:
    """The running operations of all datasets, or a single operation."""

    def __init__(self, meta: MetaStorage, only: OperationId | None = None) -> None:
        self._meta = meta
        self._only = only
        self._prefix = f"{keys.ROOT}{keys.SEPARATOR}" if only is None else only.under
        self._watch: Watch | None = None
        #: By root.
        self._tracked: dict[str, Tracked] = {}
        #: Dataset to the lease of its coordinator.
        self.coordinators: dict[str, bytes] = {}
        #: Keys that were applied so far, for measurements.
        self.n_applied = 0

    @property
    def operations(self) -> list[Tracked]:
        return [tracked for tracked in self._tracked.values() if tracked.is_running]

    def find(self, id: OperationId) -> Tracked | None:
        found = self._tracked.get(id.root)
        return found if found is not None and found.is_running else None

    def look(self) -> None:
        """Apply all changes up to now."""
        if self._watch is None:
            self._read_all()
            return
        try:
            for _ in range(MAX_CATCH_UPS):
                batches = self._watch.poll()
                for batch in batches:
                    self._apply(batch.entries)
                if len(batches) < MAX_BATCHES:
                    return
        except CompactedRevision:
            self._read_all()

    def _read_all(self) -> None:
        self._tracked.clear()
        self.coordinators.clear()
        if self._only is not None:
            self._tracked[self._only.root] = Tracked(self._only)
        look = self._meta.prefix(self._prefix)
        self._apply(look.entries)
        self._watch = self._meta.watch(self._prefix, after=look.revision)

    def _apply(self, entries: Iterable[Entry]) -> None:
        """Apply changes; the lists of running operations first, in any order of the keys."""
        changed = list(entries)
        self.n_applied += len(changed)
        if self._only is None:
            for dataset, key, value in _of_datasets(changed):
                if key == "runOps":
                    self._run(dataset, value)
                elif value is None:
                    self.coordinators.pop(dataset, None)
                else:
                    self.coordinators[dataset] = value
        for entry in changed:
            tracked = self._of(entry.key)
            if tracked is not None:
                tracked.apply(entry.key, entry.value)

    def _run(self, dataset: str, value: bytes | None) -> None:
        try:
            running = {id.root: id for id in records.run_ops_of(dataset, value)}
        except NewerOperations:
            # Written by newer code: other datasets continue, and `check` reports it.
            return
        under = DatasetKeys.of(dataset).under
        for root in [root for root in self._tracked if root.startswith(under) and root not in running]:
            del self._tracked[root]
        for root, id in running.items():
            self._tracked.setdefault(root, Tracked(id))

    def _of(self, key: str) -> Tracked | None:
        if self._only is not None:
            return self._tracked[self._only.root]
        parts = key.split(keys.SEPARATOR)
        for n_parts in (4, 5):
            if (found := self._tracked.get(keys.SEPARATOR.join(parts[:n_parts]))) is not None and len(parts) > n_parts:
                return found
        return None


def _of_datasets(entries: Iterable[Entry]) -> Iterator[tuple[str, str, bytes | None]]:
    """(dataset, key, value) of the keys of a dataset as a whole."""
    for entry in entries:
        parts = entry.key.split(keys.SEPARATOR)
        if len(parts) == 3 and parts[2] in ("runOps", "coordinator"):
            yield keys.unescape(parts[1]), parts[2], entry.value


def gone_of(leases: Iterable[Lease], manager: DistributedOperationManager, judge: Judge) -> set[str]:
    """The executors or coordinators of leases that are gone (rule 9.5)."""
    latest: dict[str, Lease] = {}
    for lease in leases:
        if lease.executor not in latest or latest[lease.executor].at < lease.at:
            latest[lease.executor] = lease
    if not latest:
        return set()
    beats, now = look_at(manager.engine, judge, latest)
    return {
        executor
        for executor, lease in latest.items()
        if judge.why_gone(executor, lease.holder, (lease.at, beats.get(executor, 0.0)), now) is not None
    }


def abandoned(
    tracked: Tracked, manager: DistributedOperationManager, judge: Judge, me: str, mine: Container[str]
) -> dict[str, bytes]:
    """Partition to lease, of jobs to take over: their executor is gone, or `me` took them and the reply was lost.

    `mine` are the partitions of the jobs that the executor `me` knows of.
    """
    leases = (taken.lease for taken in tracked.taken.values())
    gone = gone_of((lease for lease in leases if lease.executor != me and not lease.released), manager, judge)
    return {
        partition: value
        for partition, (value, lease) in tracked.taken.items()
        if lease.released or lease.executor in gone or (lease.executor == me and partition not in mine)
    }


def following(before: bytes | None) -> tuple[str, ...]:
    """The tokens that a new lease lists: the previous lease's list, then the previous lease's own token."""
    if before is None:
        return ()
    lease = lease_of(before)
    return (*lease.adopted_from, lease.token)[-MAX_ADOPTIONS:]
