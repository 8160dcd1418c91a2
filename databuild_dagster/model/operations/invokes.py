"""The changes of an operation's keys, each one invoke with the condition that it relies on (rules 9.3, 9.5, 9.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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
from databuild_dagster.model.operations.keys import DatasetKeys, JobKeys, OperationId
from databuild_dagster.model.operations.records import (
    RUNNING,
    ArgRecord,
    Ended,
    Intent,
    Lease,
    Mark,
    Trouble,
    Unclean,
    job_state,
    lease_of,
    run_ops_of,
    run_ops_value,
    to_bytes,
)
from databuild_dagster.model.operations.states import CAUSE_OF_MARK, JOB, JobCause, JobState


def is_running(id: OperationId) -> Condition:
    return value_is(id.state, "eq", RUNNING)


class Start(NamedTuple):
    """An operation to start."""

    id: OperationId
    arg: ArgRecord
    #: Partition to its instance.
    partitions: Mapping[str, str | None]
    #: The counter of its type, as read.
    next_id: Entry

    @property
    def ops(self) -> list[Op]:
        """All its keys; `runOps` is apart."""
        return [
            Put(self.next_id.key, b"%d" % (self.id.instance + 1)),
            Put(self.id.arg, to_bytes(self.arg)),
            Put(self.id.partitions, to_bytes(self.partitions)),
            Put(self.id.state, RUNNING),
        ]


_ALWAYS = both()


def start(start: Start, run_ops: Entry, *also: Op, still: Condition = _ALWAYS) -> Statement:
    """Rule 9.3: start an operation, unless another was started or ended since `run_ops` and the counter were read.

    Yields the instance id. With `still`, a follow-up is started under that condition, too, and `also` is written.
    """
    with_it = run_ops_value([*run_ops_of(start.id.dataset, run_ops.value), start.id])
    ops = [Put(run_ops.key, with_it), *start.ops, *also]
    return iif(both(as_read(run_ops), as_read(start.next_id), still), do(*ops, yields=start.id.instance))


def _is_held(id: OperationId, keys: JobKeys, executor: bytes | None) -> Condition:
    """The operation runs, the job has not ended, and its key `executor` has this value; None is no value."""
    return both(is_running(id), not_exists(keys.state), as_read(Entry(keys.executor, executor, 0)))


def is_mine(id: OperationId, keys: JobKeys, lease: Lease) -> Condition:
    """The same with a lease as the fence token."""
    return _is_held(id, keys, to_bytes(lease))


def _moved(keys: JobKeys, still: Condition, was: JobState, on: JobCause, record: object) -> Statement:
    """The job's move by its table (rule 9.5), if the condition still holds."""
    ops: tuple[Op, ...]
    match JOB.next(was, on, entity=keys.executor):
        case JobState.FREE:
            ops = (Remove(keys.executor),)
        case JobState.TAKEN | JobState.RELEASED:
            ops = (Put(keys.executor, to_bytes(record)),)
        case JobState.SUCCESS | JobState.FAILED:
            ops = (Put(keys.state, to_bytes(record)), Remove(keys.progress), Remove(keys.trouble))
    return iif(still, do(*ops, yields=True))


def take(id: OperationId, partition: str, before: bytes | None, lease: Lease) -> Statement:
    """Rule 9.5: give a job to an executor, if no other has taken it since `before` was read; None is no executor."""
    keys, was = id.job(partition), job_state(None if before is None else lease_of(before))
    on = JobCause.TAKEN if before is None else JobCause.ADOPTED
    return _moved(keys, _is_held(id, keys, before), was, on, lease)


def release(id: OperationId, partition: str, before: bytes) -> Statement:
    """Take a job from a dead executor, whose token is invalid from then on."""
    keys, lease = id.job(partition), lease_of(before)
    released = msgspec.structs.replace(lease, released=True)
    return _moved(keys, _is_held(id, keys, before), job_state(lease), JobCause.RELEASED, released)


def give_back(id: OperationId, partition: str, lease: Lease) -> Statement:
    """Free a job for the next executor at once, with its progress."""
    keys = id.job(partition)
    return _moved(keys, is_mine(id, keys, lease), job_state(lease), JobCause.GIVEN_BACK, None)


def mark(id: OperationId, partition: str, lease: Lease, how: Mark) -> Statement:
    """Rule 9.5: mark the end of a job, if the lease is still this executor's."""
    keys = id.job(partition)
    return _moved(keys, is_mine(id, keys, lease), job_state(lease), CAUSE_OF_MARK[how.state], how)


def save(id: OperationId, partition: str, lease: Lease, progress: bytes) -> Statement:
    keys = id.job(partition)
    return iif(is_mine(id, keys, lease), do(Put(keys.progress, progress), yields=True))


def note_trouble(id: OperationId, partition: str, lease: Lease, trouble: Trouble) -> Statement:
    """Record a failed attempt, so that a view of the operation shows it."""
    keys = id.job(partition)
    return iif(is_mine(id, keys, lease), do(Put(keys.trouble, to_bytes(trouble)), yields=True))


def forget(id: OperationId, partition: str, lease: Lease) -> Statement:
    """Remove the progress before the clean-up of a failing job, so that no executor resumes from removed work."""
    keys = id.job(partition)
    return iif(is_mine(id, keys, lease), do(Remove(keys.progress), yields=True))


def note_completion_trouble(id: OperationId, trouble: Trouble) -> Statement:
    return iif(is_running(id), do(Put(id.trouble, to_bytes(trouble)), yields=True))


#: Between the statements of `finish` the value of the key `state`. No invoke leaves it.
_ENDING = b"ending"


class Unended(NamedTuple):
    """A job without an end, as read."""

    #: The value of its key `executor`.
    executor: bytes | None
    #: Its note for a clean-up; None without a lease that can be read here.
    note: Unclean | None


def finish(
    id: OperationId,
    run_ops: Entry,
    ended: Ended,
    unended: Mapping[str, Unended],
    starts: Iterable[Start] = (),
    intents: Mapping[str, Intent] = {},
) -> list[Statement]:
    """Rule 9.6: end an operation in one invoke; the last statement yields true if it was applied.

    It is applied only if each of the `unended` jobs has the executor that was read, so that none escapes its note. `starts`
    are follow-ups on the same dataset, and begin in its place; `intents` are the others, by key.
    """
    starts = list(starts)
    # Of several of one type, the first has the counter as it was read.
    counters = {start.next_id.key: start.next_id for start in reversed(starts)}
    still = both(is_running(id), as_read(run_ops), *map(as_read, counters.values()))
    left = [running for running in run_ops_of(id.dataset, run_ops.value) if running != id]
    left += [start.id for start in starts]
    keys = DatasetKeys.of(id.dataset)
    ops: list[Op] = (
        [Put(keys.run_ops, run_ops_value(left))] if left else [Remove(keys.run_ops), Remove(keys.coordinator)]
    )
    jobs = {id.job(partition): job for partition, job in unended.items()}
    executors = [as_read(Entry(job.executor, read.executor, 0)) for job, read in jobs.items()]
    # The other statements ask for this value alone: the comparison of all jobs in each of them would cost the square.
    first = iif(both(still, *executors), do(Put(id.state, _ENDING)))
    is_ending = value_is(id.state, "eq", _ENDING)
    notes = [
        iif(both(is_ending, not_exists(job.state)), do(Put(job.unclean, to_bytes(read.note))))
        for job, read in jobs.items()
        if read.note is not None
    ]
    for start in starts:
        ops += start.ops
    ops += [Put(key, to_bytes(intent)) for key, intent in intents.items()]
    last = iif(is_ending, do(RemovePrefix(id.under), *ops, Put(id.history, to_bytes(ended)), yields=True))
    return [first, *notes, last]


def lead(dataset: str, before: bytes | None, lease: Lease) -> Statement:
    """Rule 9.6: become the coordinator of a dataset, unless another has since `before` was read.

    Only for a dataset with running operations, because the end of the last one removes the key.
    """
    keys = DatasetKeys.of(dataset)
    is_free = both(exists(keys.run_ops), as_read(Entry(keys.coordinator, before, 0)))
    return iif(is_free, do(Put(keys.coordinator, to_bytes(lease)), yields=True))
