"""The machines of an operation and of its jobs (rules 9). Keys of the meta storage hold their states."""

from databuild_dagster.model.machine import Label, Machine, Move


class OperationState(Label):
    """The state of an operation; a running operation has keys, an ended operation has an entry in the history."""

    #: Jobs are to be run.
    RUNNING = "running"
    #: Every job succeeded.
    SUCCESS = "success"
    #: A job failed.
    FAILED = "failed"
    #: A person stopped it.
    CANCELED = "canceled"
    #: It has ended, and newer code has written its end.
    UNREADABLE = "unreadable"


class OperationCause(Label):
    """The causes of an operation's start and end."""

    STARTED = "started"
    #: Rule 9.6: complete when all jobs have ended, or a job failed where the first failure stops the other jobs.
    ALL_SUCCEEDED = "all succeeded"
    JOB_FAILED = "a job failed"
    CANCELED = "canceled"
    #: Its entry in the history has a shape that is not known here.
    ENDED_BY_NEWER_CODE = "ended by newer code"


_O, _OC = OperationState, OperationCause

OPERATION = Machine[OperationState, OperationCause](
    "operation",
    [
        Move(None, _OC.STARTED, _O.RUNNING, "no incompatible operation runs on the dataset"),
        Move(_O.RUNNING, _OC.ALL_SUCCEEDED, _O.SUCCESS, "its completion code returned"),
        Move(_O.RUNNING, _OC.JOB_FAILED, _O.FAILED, "its completion code returned; jobs without an end stop"),
        Move(_O.RUNNING, _OC.CANCELED, _O.CANCELED, "a person stopped it; its jobs stop"),
        Move(_O.RUNNING, _OC.ENDED_BY_NEWER_CODE, _O.UNREADABLE, "newer code ended it; this code cannot read how"),
    ],
    final=[_O.SUCCESS, _O.FAILED, _O.CANCELED, _O.UNREADABLE],
)


class JobState(Label):
    """The holder of a job, or its end. A job of an ended operation has no keys, and so no state."""

    #: No executor has it: it has no key.
    FREE = "free"
    #: The key `executor` has the lease of an executor.
    TAKEN = "taken"
    #: The same, with a lease that is not valid any longer.
    RELEASED = "released"
    #: The key `state` has a mark.
    SUCCESS = "success"
    FAILED = "failed"


class JobCause(Label):
    """The causes of a job's moves: an invoke each (`invokes`)."""

    #: Its operation started.
    STARTED = "started"
    TAKEN = "taken"
    #: Taken from an executor that is gone, or again by an executor that did not receive the answer.
    ADOPTED = "adopted"
    #: A coordinator found its executor gone.
    RELEASED = "released"
    GIVEN_BACK = "given back"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


_J, _JC = JobState, JobCause

JOB = Machine[JobState, JobCause](
    "job",
    [
        Move(None, _JC.STARTED, _J.FREE, "the start of the operation creates one job per partition"),
        Move(_J.FREE, _JC.TAKEN, _J.TAKEN, "an executor takes it under a new fence token"),
        Move(_J.TAKEN, _JC.ADOPTED, _J.TAKEN, "its executor is gone; another takes it under a new token"),
        Move(_J.RELEASED, _JC.ADOPTED, _J.TAKEN, "the next executor takes it without checking heartbeats"),
        Move(_J.TAKEN, _JC.RELEASED, _J.RELEASED, "its executor is gone"),
        Move(_J.TAKEN, _JC.GIVEN_BACK, _J.FREE, "its executor ends, and returns the job"),
        Move(_J.TAKEN, _JC.SUCCEEDED, _J.SUCCESS, "its executor reports success with its token"),
        Move(_J.TAKEN, _JC.FAILED, _J.FAILED, "its executor cleaned up, and reports failure with its token"),
    ],
    # I9: a job's state never changes once set.
    final=[_J.SUCCESS, _J.FAILED],
)

#: The cause of the move to each state of a mark.
CAUSE_OF_MARK = {_J.SUCCESS: _JC.SUCCEEDED, _J.FAILED: _JC.FAILED}


def end_of(n_partitions: int, n_succeeded: int, n_failed: int, *, fail_fast: bool) -> OperationCause | None:
    """The reason why an operation with so many jobs is complete (rule 9.6); None while the operation goes on.

    `fail_fast`: the first failure completes it.
    """
    if n_failed and (fail_fast or n_succeeded + n_failed == n_partitions):
        return _OC.JOB_FAILED
    return _OC.ALL_SUCCEEDED if 0 < n_partitions == n_succeeded else None
