"""The changes of an operation's keys, each an invoke with the condition that it relies on (rules 9.3, 9.5, 9.6)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from databuild_dagster.model import meta_storage as m
from databuild_dagster.model.operations import records
from databuild_dagster.model.operations.keys import DatasetKeys, JobKeys, OperationId
from databuild_dagster.model.operations.states import CAUSE_OF_MARK, JOB, JobCause, JobState


def is_running(id: OperationId) -> m.Condition:
    return m.value_is(id.state, "eq", records.RUNNING)


class Start(NamedTuple):
    """An operation to start."""

    id: OperationId
    arg: records.ArgRecord
    #: Partition to its instance.
    partitions: Mapping[str, str | None]
    #: The counter of its type, as read.
    next_id: m.Entry

    @property
    def ops(self) -> list[m.Op]:
        """All its keys; `runOps` is apart."""
        return [
            m.Put(self.next_id.key, b"%d" % (self.id.instance + 1)),
            m.Put(self.id.arg, records.to_bytes(self.arg)),
            m.Put(self.id.partitions, records.to_bytes(self.partitions)),
            m.Put(self.id.state, records.RUNNING),
        ]


_ALWAYS = m.both()


def start(start: Start, run_ops: m.Entry, *also: m.Op, still: m.Condition = _ALWAYS) -> m.Statement:
    """Rule 9.3: start an operation, unless any operation was started or ended since `run_ops` and the counter were read.

    Yields the instance id. With `still`, a follow-up is started under that condition, too, and `also` is written.
    """
    with_it = records.run_ops_value([*records.run_ops_of(start.id.dataset, run_ops.value), start.id])
    ops = [m.Put(run_ops.key, with_it), *start.ops, *also]
    return m.iif(m.both(m.as_read(run_ops), m.as_read(start.next_id), still), m.do(*ops, yields=start.id.instance))


def _is_held(id: OperationId, keys: JobKeys, executor: bytes | None) -> m.Condition:
    """The operation runs, the job has not ended, and its key `executor` has this value; None is no value."""
    return m.both(is_running(id), m.not_exists(keys.state), m.as_read(m.Entry(keys.executor, executor, 0)))


def is_mine(id: OperationId, keys: JobKeys, lease: records.Lease) -> m.Condition:
    """The same with a lease as the fence token."""
    return _is_held(id, keys, records.to_bytes(lease))


def _moved(keys: JobKeys, still: m.Condition, was: JobState, on: JobCause, record: object) -> m.Statement:
    """The job's move by its table (rule 9.5), if the condition still holds."""
    ops: tuple[m.Op, ...]
    match JOB.next(was, on, entity=keys.executor):
        case JobState.FREE:
            ops = (m.Remove(keys.executor),)
        case JobState.TAKEN | JobState.RELEASED:
            ops = (m.Put(keys.executor, records.to_bytes(record)),)
        case JobState.SUCCESS | JobState.FAILED:
            ops = (m.Put(keys.state, records.to_bytes(record)), m.Remove(keys.progress), m.Remove(keys.trouble))
    return m.iif(still, m.do(*ops, yields=True))


def take(id: OperationId, partition: str, before: bytes | None, lease: records.Lease) -> m.Statement:
    """Rule 9.5: give a job to an executor, if no other has taken it since `before` was read; None is no executor."""
    keys, was = id.job(partition), records.job_state(None if before is None else records.lease_of(before))
    on = JobCause.TAKEN if before is None else JobCause.ADOPTED
    return _moved(keys, _is_held(id, keys, before), was, on, lease)


def release(id: OperationId, partition: str, before: bytes) -> m.Statement:
    """Take a job from a dead executor, whose token is invalid from then on."""
    keys, lease = id.job(partition), records.lease_of(before)
    released = msgspec.structs.replace(lease, released=True)
    return _moved(keys, _is_held(id, keys, before), records.job_state(lease), JobCause.RELEASED, released)


def give_back(id: OperationId, partition: str, lease: records.Lease) -> m.Statement:
    """Free a job for the next executor at once, with its progress."""
    keys = id.job(partition)
    return _moved(keys, is_mine(id, keys, lease), records.job_state(lease), JobCause.GIVEN_BACK, None)


def mark(id: OperationId, partition: str, lease: records.Lease, how: records.Mark) -> m.Statement:
    """Rule 9.5: mark the end of a job, if the lease is still this executor's."""
    keys = id.job(partition)
    return _moved(keys, is_mine(id, keys, lease), records.job_state(lease), CAUSE_OF_MARK[how.state], how)


def save(id: OperationId, partition: str, lease: records.Lease, progress: bytes) -> m.Statement:
    keys = id.job(partition)
    return m.iif(is_mine(id, keys, lease), m.do(m.Put(keys.progress, progress), yields=True))


def note_trouble(id: OperationId, partition: str, lease: records.Lease, trouble: records.Trouble) -> m.Statement:
    """Record a failed attempt, so that a view of the operation shows it."""
    keys = id.job(partition)
    return m.iif(is_mine(id, keys, lease), m.do(m.Put(keys.trouble, records.to_bytes(trouble)), yields=True))


def forget(id: OperationId, partition: str, lease: records.Lease) -> m.Statement:
    """Remove the progress before the clean-up of a failing job, so that no executor resumes from removed work."""
    keys = id.job(partition)
    return m.iif(is_mine(id, keys, lease), m.do(m.Remove(keys.progress), yields=True))


def note_completion_trouble(id: OperationId, trouble: records.Trouble) -> m.Statement:
    return m.iif(is_running(id), m.do(m.Put(id.trouble, records.to_bytes(trouble)), yields=True))


#: Between the statements of `finish` the value of the key `state`. No invoke leaves it.
_ENDING = b"ending"


class Unended(NamedTuple):
    """A job without an end, as read."""

    #: The value of its key `executor`.
    executor: bytes | None
    #: Its note for a clean-up; None without a lease that can be read here.
    note: records.Unclean | None


def finish(
    id: OperationId,
    run_ops: m.Entry,
    ended: records.Ended,
    unended: Mapping[str, Unended],
    starts: Iterable[Start] = (),
    intents: Mapping[str, records.Intent] = {},
) -> list[m.Statement]:
    """Rule 9.6: end an operation in a single invoke; the last statement yields true if it was applied.

    It is applied only if each of the `unended` jobs has the executor that was read, so that none escapes its note. `starts`
    are follow-ups on the same dataset, and begin in its place; `intents` are follow-ups on other datasets, by key.
    """
    starts = list(starts)
    # Of several of one type, the first has the counter as it was read.
    counters = {start.next_id.key: start.next_id for start in reversed(starts)}
    still = m.both(is_running(id), m.as_read(run_ops), *map(m.as_read, counters.values()))
    left = [running for running in records.run_ops_of(id.dataset, run_ops.value) if running != id]
    left += [start.id for start in starts]
    keys = DatasetKeys.of(id.dataset)
    ops: list[m.Op] = (
        [m.Put(keys.run_ops, records.run_ops_value(left))]
        if left
        else [m.Remove(keys.run_ops), m.Remove(keys.coordinator)]
    )
    jobs = {id.job(partition): job for partition, job in unended.items()}
    executors = [m.as_read(m.Entry(job.executor, read.executor, 0)) for job, read in jobs.items()]
    # The other statements ask for this value alone: the comparison of all jobs in each of them would cost the square.
    first = m.iif(m.both(still, *executors), m.do(m.Put(id.state, _ENDING)))
    is_ending = m.value_is(id.state, "eq", _ENDING)
    notes = [
        m.iif(m.both(is_ending, m.not_exists(job.state)), m.do(m.Put(job.unclean, records.to_bytes(read.note))))
        for job, read in jobs.items()
        if read.note is not None
    ]
    for start in starts:
        ops += start.ops
    ops += [m.Put(key, records.to_bytes(intent)) for key, intent in intents.items()]
    last = m.iif(
        is_ending, m.do(m.RemovePrefix(id.under), *ops, m.Put(id.history, records.to_bytes(ended)), yields=True)
    )
    return [first, *notes, last]


def lead(dataset: str, before: bytes | None, lease: records.Lease) -> m.Statement:
    """Rule 9.6: become the coordinator of a dataset, unless a different process became it since `before` was read.

    Only for a dataset with running operations, because the end of the last operation removes the key.
    """
    keys = DatasetKeys.of(dataset)
    is_free = m.both(m.exists(keys.run_ops), m.as_read(m.Entry(keys.coordinator, before, 0)))
    return m.iif(is_free, m.do(m.Put(keys.coordinator, records.to_bytes(lease)), yields=True))
