"""The outcomes of a job, and what its executor does then (rules 9.5, 9.7): one row each.

Another executor takes a job whose executor is gone, and resumes it from its progress or begins it from scratch (`tracker`).
`CannotExecute` is no outcome of a job: this process can run none, so the executor's host ends and releases all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from databuild_dagster.features.operations.job import CannotKeep, Job, RetryJob
from databuild_dagster.model.errors import LeaseLost
from databuild_dagster.model.machine import Label
from databuild_dagster.model.operations.records import to_bytes


class Befell(Label):
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


class Becomes(Label):
    """The job's end or next attempt."""

    MARKED = "marked success"
    FAILED = "cleaned up, then marked failed"
    RETRIED = "retried later by this executor, which notes why"
    DROPPED = "stopped and cleaned up, and not marked here"
    HALVED = "tried in halves"
    GIVEN_BACK = "cleaned up, and free for the next executor"


class Rule(NamedTuple):
    """One row; `can_fail` None counts for all types of operations."""

    befell: Befell
    can_fail: bool | None
    becomes: Becomes
    why: str


_B, _D = Befell, Becomes

RULES = (
    Rule(_B.SUCCEEDED, None, _D.MARKED, "its work is done"),
    Rule(_B.SAID_FAILED, True, _D.FAILED, "no mark is made before the clean-up"),
    Rule(_B.SAID_FAILED, False, _D.RETRIED, "an operation of its type cannot fail"),
    Rule(_B.RAISED, True, _D.FAILED, "no mark is made before the clean-up"),
    Rule(_B.RAISED, False, _D.RETRIED, "an operation of its type cannot fail"),
    Rule(_B.COULD_NOT_KEEP, None, _D.FAILED, "its code is wrong, and each retry would pass the same"),
    Rule(_B.ASKED_TO_RETRY, None, _D.RETRIED, "a service was down, a connection broke"),
    Rule(_B.CLEAN_UP_RAISED, None, _D.RETRIED, "only its clean-up is left to do"),
    Rule(_B.LEASE_LOST, None, _D.DROPPED, "another executor has it, or none needs it"),
    Rule(_B.STOPPED, None, _D.DROPPED, "the error comes from the interruption"),
    Rule(_B.INTERRUPTED, None, _D.GIVEN_BACK, "the error comes from the interruption, and its executor ends"),
    Rule(_B.NOT_MARKED, None, _D.DROPPED, "another executor has it, or none needs it"),
    Rule(_B.BATCH_RAISED, None, _D.HALVED, "the job that fails alone has failed by itself"),
)

_BECOMES = {
    (rule.befell, can_fail): rule.becomes
    for rule in RULES
    for can_fail in (True, False)
    if rule.can_fail in (None, can_fail)
}


def becomes(befell: Befell, *, can_fail: bool) -> Becomes:
    """The row's result for a job of a type that may fail, or may not."""
    return _BECOMES[befell, can_fail]


def befell(jobs: tuple[Job, ...], error: Exception) -> Befell:
    """The outcome of jobs after an error of the operation's code, or of a clean-up."""
    if len(jobs) > 1:
        if any(job.context.is_interrupted for job in jobs):
            return Befell.INTERRUPTED
        return Befell.ASKED_TO_RETRY if isinstance(error, RetryJob) else Befell.BATCH_RAISED
    (job,) = jobs
    if job.is_dropped:
        return Befell.CLEAN_UP_RAISED
    if isinstance(error, LeaseLost):
        return Befell.LEASE_LOST
    if job.context.is_stopped:
        return Befell.STOPPED
    if job.context.is_interrupted:
        return Befell.INTERRUPTED
    if job.failed is not None:
        return Befell.CLEAN_UP_RAISED
    if isinstance(error, CannotKeep):
        return Befell.COULD_NOT_KEEP
    return Befell.ASKED_TO_RETRY if isinstance(error, RetryJob) else Befell.RAISED


def why(what: Befell, job: Job, error: str) -> str:
    """Why a job is retried, for people."""
    if what is Befell.CLEAN_UP_RAISED:
        return f"its clean-up raised {error}"
    if what is Befell.SAID_FAILED:
        detail = job.context.outcome.detail
        return "it said that it failed" + ("" if detail is None else f": {to_bytes(detail).decode()}")
    return error
