"""Whose jobs may be taken, and under which lease (SPEC 9.5)."""

from __future__ import annotations

from collections.abc import Container, Iterable

from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.operations.manager import DistributedOperationManager
from databuild_dagster.engine.operations.tracker import Tracked
from databuild_dagster.model.operations.records import MAX_ADOPTIONS, Lease, lease_of


def gone_of(leases: Iterable[Lease], manager: DistributedOperationManager, judge: Judge, now: float) -> set[str]:
    """The executors, or coordinators, among those of leases that are gone (SPEC 9.5)."""
    latest: dict[str, Lease] = {}
    for lease in leases:
        if lease.executor not in latest or latest[lease.executor].at < lease.at:
            latest[lease.executor] = lease
    if not latest:
        return set()
    heard = manager.engine.heartbeats.last(latest)
    return {
        executor
        for executor, lease in latest.items()
        if judge.why_gone(executor, lease.holder, (lease.at, heard.get(executor, 0.0)), now) is not None
    }


def abandoned(
    tracked: Tracked, manager: DistributedOperationManager, judge: Judge, now: float, me: str, mine: Container[str]
) -> dict[str, bytes]:
    """Partition to lease, of jobs to take over: their executor is gone, or `me` took them and the reply was lost.

    `mine` are the partitions whose jobs the executor `me` knows that it has.
    """
    leases = (taken.lease for taken in tracked.taken.values())
    gone = gone_of((lease for lease in leases if lease.executor != me and not lease.released), manager, judge, now)
    return {
        partition: value
        for partition, (value, lease) in tracked.taken.items()
        if lease.released or lease.executor in gone or (lease.executor == me and partition not in mine)
    }


def following(before: bytes | None) -> tuple[str, ...]:
    """The tokens that a new lease remembers: those of the lease before it, and its own."""
    if before is None:
        return ()
    lease = lease_of(before)
    return (*lease.adopted_from, lease.token)[-MAX_ADOPTIONS:]
