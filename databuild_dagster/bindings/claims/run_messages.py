"""What a Dagster run is told of those who answer for it: the same sentences in the log of a step and of a run without one."""

from collections.abc import Mapping, Sequence

from databuild_dagster.model.coordination import MESSAGES, Answer
from databuild_dagster.model.wording import few_of


def joined(refs: Sequence[str]) -> str:
    """Others build it."""
    return f"{few_of(refs)} is being built elsewhere: {MESSAGES[Answer.JOIN]}."


def reused(refs: Sequence[str]) -> str:
    """Others have built it, before it was asked for."""
    return f"{few_of(refs)}: {MESSAGES[Answer.REUSE]}."


def refused(why: str) -> str:
    """It had failed before it was asked for; `why` names it."""
    return f"{why}. Taint it, or launch it yourself, to have it built again."


def failed_elsewhere(ref: str, reason: str | None) -> str:
    """It failed while this run waited for it."""
    return f"{ref}, built elsewhere, failed: {reason or 'its build failed'}"


def given_up_elsewhere(refs: Sequence[str]) -> str:
    """Whoever built it was canceled, or is gone for good; a run that waits for it is a request of its own."""
    return f"{few_of(refs)} is built by nobody else any more; this run builds it."


def gave_way(waiting: Sequence[str], needed: Sequence[str]) -> str:
    """It held the run slot that what it waits for is queued for."""
    return (
        f"{few_of(needed)} is queued for a slot in Dagster, and this run held one while it waited for {few_of(waiting)}: "
        "it ends, and its want has that built."
    )


def stalled(waiting: Mapping[str, str | None], seconds: float) -> str:
    """Nobody has built it in the time that a run waits; by ref the job run that should, where there is one."""
    ref, job_run = next(iter(waiting.items()))
    builder = f"job run {job_run} of {ref} has not ended" if job_run else f"the next try of {ref} has not begun"
    return (
        f"Waited {seconds:.0f} s for {few_of(list(waiting))} from elsewhere: {builder}. See `databuild job-run list`."
    )
