"""The outcomes of a job, and what its executor does then (rules 9.5, 9.7): a row each.

If an executor is gone, a second executor takes its job, and resumes it from its progress or begins it from scratch (`tracker`).
`CannotExecute` is no outcome of a job: this process can run no job, so the executor's host ends and releases all jobs.
"""

from typing import NamedTuple

from databuild_dagster.features.operations.job import CannotKeep, Job, RetryJob
from databuild_dagster.model.errors import LeaseLost
from databuild_dagster.model.machine import Label
from databuild_dagster.model.operations.records import to_bytes


class JobOutcome(Label):
    """The outcome of a job, or of a batch."""

    SUCCEEDED = "it returns"
    SAID_FAILED = "it returns, and says that it failed"
    RAISED = "it raises"
    COULD_NOT_KEEP = "it raises `CannotKeep`: its progress or its detail is no value that can be kept"
    ASKED_TO_RETRY = "it raises `RetryJob`"
    CLEAN_UP_RAISED = "its clean-up raises"
    LEASE_LOST = "its lease, or its operation, is gone"
    STOPPED = "it raises after it was stopped"
    INTERRUPTED = "it raises after its executor was interrupted"
    NOT_MARKED = "its mark is not applied"
    BATCH_RAISED = "it is one of a batch, and the batch raises"


class NextStep(Label):
    """The job's end or next attempt."""

    MARKED = "marked success"
    FAILED = "cleaned up, then marked failed"
    RETRIED = "retried later by this executor, which notes why"
    DROPPED = "stopped and cleaned up, and not marked here"
    HALVED = "tried in halves"
    GIVEN_BACK = "cleaned up, and free for the next executor"


class OutcomeRule(NamedTuple):
    """A row; `can_fail` None counts for all types of operations."""

    outcome: JobOutcome
    can_fail: bool | None
    next_step: NextStep
    why: str


_B, _D = JobOutcome, NextStep

OUTCOME_RULES = (
    OutcomeRule(_B.SUCCEEDED, None, _D.MARKED, "its work is done"),
    OutcomeRule(_B.SAID_FAILED, True, _D.FAILED, "no mark is made before the clean-up"),
    OutcomeRule(_B.SAID_FAILED, False, _D.RETRIED, "an operation of its type cannot fail"),
    OutcomeRule(_B.RAISED, True, _D.FAILED, "no mark is made before the clean-up"),
    OutcomeRule(_B.RAISED, False, _D.RETRIED, "an operation of its type cannot fail"),
    OutcomeRule(_B.COULD_NOT_KEEP, None, _D.FAILED, "its code is wrong, and each retry would pass the same"),
    OutcomeRule(_B.ASKED_TO_RETRY, None, _D.RETRIED, "a service was down, a connection broke"),
    OutcomeRule(_B.CLEAN_UP_RAISED, None, _D.RETRIED, "only its clean-up is left to do"),
    OutcomeRule(_B.LEASE_LOST, None, _D.DROPPED, "another executor has it, or none needs it"),
    OutcomeRule(_B.STOPPED, None, _D.DROPPED, "the error comes from the interruption"),
    OutcomeRule(_B.INTERRUPTED, None, _D.GIVEN_BACK, "the error comes from the interruption, and its executor ends"),
    OutcomeRule(_B.NOT_MARKED, None, _D.DROPPED, "another executor has it, or none needs it"),
    OutcomeRule(_B.BATCH_RAISED, None, _D.HALVED, "the job that fails alone has failed by itself"),
)

_NEXT_STEPS = {
    (rule.outcome, can_fail): rule.next_step
    for rule in OUTCOME_RULES
    for can_fail in (True, False)
    if rule.can_fail in (None, can_fail)
}


def next_step(outcome: JobOutcome, *, can_fail: bool) -> NextStep:
    """The row's result for a job of a type that may fail, or may not."""
    return _NEXT_STEPS[outcome, can_fail]


def outcome_of(jobs: tuple[Job, ...], error: Exception) -> JobOutcome:
    """The outcome of jobs after an error of the operation's code, or of a clean-up."""
    if len(jobs) > 1:
        if any(job.context.is_interrupted for job in jobs):
            return JobOutcome.INTERRUPTED
        return JobOutcome.ASKED_TO_RETRY if isinstance(error, RetryJob) else JobOutcome.BATCH_RAISED
    (job,) = jobs
    if job.is_dropped:
        return JobOutcome.CLEAN_UP_RAISED
    if isinstance(error, LeaseLost):
        return JobOutcome.LEASE_LOST
    if job.context.is_stopped:
        return JobOutcome.STOPPED
    if job.context.is_interrupted:
        return JobOutcome.INTERRUPTED
    if job.failed is not None:
        return JobOutcome.CLEAN_UP_RAISED
    if isinstance(error, CannotKeep):
        return JobOutcome.COULD_NOT_KEEP
    return JobOutcome.ASKED_TO_RETRY if isinstance(error, RetryJob) else JobOutcome.RAISED


def why(what: JobOutcome, job: Job, error: str) -> str:
    """Why a job is retried, for people."""
    if what is JobOutcome.CLEAN_UP_RAISED:
        return f"its clean-up raised {error}"
    if what is JobOutcome.SAID_FAILED:
        detail = job.context.outcome.detail
        return "it said that it failed" + ("" if detail is None else f": {to_bytes(detail).decode()}")
    return error
