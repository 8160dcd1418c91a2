"""Every change of an operation's keys, as one invoke whose condition says what it relies on (SPEC 9.3, 9.5, 9.6)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from databuild_dagster.model.meta_storage import (
    Condition,
    Entry,
    Op,
    Put,
    Remove,
    RemovePrefix,
    Statement,
    as_read,
    both,
    do,
    exists,
    iif,
    not_exists,
    value_is,
)
from databuild_dagster.model.operations.keys import DatasetKeys, OperationId
from databuild_dagster.model.operations.records import (
    RUNNING,
    ArgRecord,
    Ended,
    Lease,
    Mark,
    Trouble,
    Unclean,
    lease_of,
    run_ops_of,
    run_ops_value,
    to_bytes,
)


def is_running(id: OperationId) -> Condition:
    return value_is(id.state, "eq", RUNNING)


def start(
    id: OperationId, arg: ArgRecord, partitions: Mapping[str, str | None], run_ops: Entry, next_id: Entry
) -> Statement:
    """SPEC 9.3: all of it if nothing was started or ended since `run_ops` and `next_id` were read; yields the instance id."""
    with_it = run_ops_value([*run_ops_of(id.dataset, run_ops.value), id])
    return iif(
        both(as_read(run_ops), as_read(next_id)),
        do(
            Put(run_ops.key, with_it),
            Put(next_id.key, b"%d" % (id.instance + 1)),
            Put(id.arg, to_bytes(arg)),
            Put(id.partitions, to_bytes(partitions)),
            Put(id.state, RUNNING),
            yields=id.instance,
        ),
    )


def take(id: OperationId, partition: str, before: bytes | None, lease: Lease) -> Statement:
    """SPEC 9.5: a job for an executor, if nobody else has taken it since `before` was read; None is nobody."""
    keys = id.job(partition)
    return iif(
        both(is_running(id), not_exists(keys.state), as_read(Entry(keys.executor, before, 0))),
        do(Put(keys.executor, to_bytes(lease)), yields=True),
    )


def is_mine(id: OperationId, partition: str, lease: Lease) -> Condition:
    """The operation runs, the job has not ended, and the token is this one."""
    keys = id.job(partition)
    return both(is_running(id), not_exists(keys.state), value_is(keys.executor, "eq", to_bytes(lease)))


def mark(id: OperationId, partition: str, lease: Lease, how: Mark) -> Statement:
    """SPEC 9.5"""
    keys = id.job(partition)
    over = (Remove(keys.progress), Remove(keys.trouble))
    return iif(is_mine(id, partition, lease), do(Put(keys.state, to_bytes(how)), *over, yields=True))


def save(id: OperationId, partition: str, lease: Lease, progress: bytes) -> Statement:
    return iif(is_mine(id, partition, lease), do(Put(id.job(partition).progress, progress), yields=True))


def note_trouble(id: OperationId, partition: str, lease: Lease, trouble: Trouble) -> Statement:
    """So that others see why a job takes so long."""
    return iif(is_mine(id, partition, lease), do(Put(id.job(partition).trouble, to_bytes(trouble)), yields=True))


def note_completion_trouble(id: OperationId, trouble: Trouble) -> Statement:
    return iif(is_running(id), do(Put(id.trouble, to_bytes(trouble)), yields=True))


def release(id: OperationId, partition: str, before: bytes) -> Statement:
    """Take a job from an executor that is gone: the token it has is worth nothing any more."""
    keys = id.job(partition)
    released = msgspec.structs.replace(lease_of(before), released=True)
    is_there = both(is_running(id), not_exists(keys.state), as_read(Entry(keys.executor, before, 0)))
    return iif(is_there, do(Put(keys.executor, to_bytes(released)), yields=True))


def forget(id: OperationId, partition: str, lease: Lease) -> Statement:
    """Before a failing job is cleaned up: nobody is to go on from what is about to be taken away."""
    return iif(is_mine(id, partition, lease), do(Remove(id.job(partition).progress), yields=True))


def give_back(id: OperationId, partition: str, lease: Lease) -> Statement:
    """The job is free for the next one at once, with its progress."""
    return iif(is_mine(id, partition, lease), do(Remove(id.job(partition).executor), yields=True))


def finish(id: OperationId, run_ops: Entry, ended: Ended, unfinished: Mapping[str, Unclean]) -> list[Statement]:
    """SPEC 9.6, in one invoke: the last statement yields whether it was applied.

    Of the `unfinished` jobs those that were not marked by now are noted as unclean first.
    """
    still = both(is_running(id), as_read(run_ops))
    left = [each for each in run_ops_of(id.dataset, run_ops.value) if each != id]
    keys = DatasetKeys.of(id.dataset)
    ops: list[Op] = (
        [Put(keys.run_ops, run_ops_value(left))] if left else [Remove(keys.run_ops), Remove(keys.coordinator)]
    )
    notes = [
        iif(both(still, exists(job.executor), not_exists(job.state)), do(Put(job.unclean, to_bytes(note))))
        for job, note in ((id.job(partition), note) for partition, note in unfinished.items())
    ]
    last = iif(still, do(RemovePrefix(id.under), *ops, Put(id.history, to_bytes(ended)), yields=True))
    return [*notes, last]


def lead(dataset: str, before: bytes | None, lease: Lease) -> Statement:
    """SPEC 9.6: be the coordinator of a dataset, if nobody has become it since `before` was read.

    Only where operations run: who comes late would leave a key behind that nobody takes away.
    """
    keys = DatasetKeys.of(dataset)
    is_free = both(exists(keys.run_ops), as_read(Entry(keys.coordinator, before, 0)))
    return iif(is_free, do(Put(keys.coordinator, to_bytes(lease)), yields=True))
