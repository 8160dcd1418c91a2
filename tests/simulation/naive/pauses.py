"""Pauses (rule 6.13)."""

from __future__ import annotations

from databuild_dagster.model import errors

from .consequences import cancel_job_runs
from .state import NEVER, Answer, Naive


def pause(naive: Naive, refs: tuple[str, ...], seconds: float | None, *, terminate: bool) -> Answer:
    if seconds is not None and seconds <= 0:
        return errors.InvalidRequest
    if any(naive.is_paused(ref) for ref in refs):
        return errors.AlreadyPaused
    naive.pauses.update(dict.fromkeys(refs, NEVER if seconds is None else naive.now + seconds))
    cancel_job_runs(naive, [ref for ref in refs if terminate or naive.refs[ref].run.is_queued])
    return None


def resume(naive: Naive, refs: tuple[str, ...]) -> Answer:
    if not all(naive.is_paused(ref) for ref in refs):
        return errors.NotPaused
    for ref in refs:
        del naive.pauses[ref]
    return None
