"""Actions about wants and their job runs: record, cancel, and repeat them (rules 5, 6.6, 6.10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from databuild_dagster.engine.engine import Engine, Preview
from databuild_dagster.model.commands import DEFAULT_TTL_SECONDS, CancelJobRuns, CancelWants, CreateWants, RetryRefs
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.shapes.canceled_job_runs import (
    CanceledJobRunShape,
    cancel_command,
    canceled_job_runs,
    waiting_for,
)
from databuild_dagster.shapes.recorded_wants import (
    CanceledWantShape,
    RecordedWantShape,
    RetriedShape,
    canceled_wants,
    recorded_wants,
    retried,
)
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.web.action import REASON, REFS, TERMINATE, Action, By, Values, commanded, refs_of
from databuild_dagster.web.parameters import duration, flag, number, several, text
from databuild_dagster.web.state import State

MAX_PRIORITY: Final = 1_000_000
#: Outputs of a canceled job run, and refs that wait for each, that a sentence names.
MAX_NAMED: Final = 5


def _want(state: State, values: Values) -> CreateWants:
    refs = refs_of(state, values)
    return CreateWants(
        wants=(refs,) if values["together"] else tuple((ref,) for ref in refs),
        comment=values["comment"] or "",
        priority=values["priority"],
        ttl_seconds=values["ttl"],
        sla_seconds=values["sla"],
        rebuild=values["rebuild"],
        fresh=values["fresh"],
        fail_fast=values["fail_fast"],
    )


def _wanted(engine: Engine, command: CreateWants, by: By) -> list[RecordedWantShape]:
    outcome = engine.handle(command, actor=by.actor, command_id=by.command_id)
    return recorded_wants(engine, engine.queries.wants_named(outcome.request_id or ""))


def _would_want(state: State, command: CreateWants, preview: Preview) -> list[str]:
    refs = [ref for of_want in command.wants for ref in of_want]
    n_tainted = len(preview.tainted)
    n_done = sum(
        change.kind == "wants" and change.before is None and change.after == "Successful" for change in preview.changes
    )
    found = [f"{counted(len(command.wants), 'want')} for {counted(len(refs), 'partition')} would be recorded."]
    if n_done:
        found.append(f"{counted(n_done, 'want')} would be successful at once, because the data is live.")
    if n_tainted:
        found.append(f"{counted(n_tainted, 'partition')} would be tainted first, and built again.")
    return found


def _cancel(state: State, values: Values) -> CancelWants:
    ids = tuple(state.engine.queries.full_id(IdKind.WANT, name) for name in values["wants"])
    return CancelWants(ids=ids, reason=values["reason"] or "", terminate=values["terminate"])


def _canceled(engine: Engine, command: CancelWants, by: By) -> list[CanceledWantShape]:
    outcome = engine.handle(command, actor=by.actor, command_id=by.command_id)
    return canceled_wants(engine.queries, command.ids, outcome).shape()


def _would_cancel(state: State, command: CancelWants, preview: Preview) -> list[str]:
    n_runs = len(preview.outcome.canceled)
    found = [f"{counted(len(preview.outcome.canceled_want_ids), 'want')} would be canceled."]
    if n_runs:
        found.append(f"{counted(n_runs, 'job run')} that no other want needs would be canceled.")
    elif not command.terminate:
        found.append("Running job runs would continue.")
    return found


def _retry(state: State, values: Values) -> RetryRefs:
    return RetryRefs(refs=refs_of(state, values), reason=values["reason"] or "")


def _retried(engine: Engine, command: RetryRefs, by: By) -> RetriedShape:
    return retried(engine.queries, engine.handle(command, actor=by.actor, command_id=by.command_id))


def _would_retry(state: State, command: RetryRefs, preview: Preview) -> list[str]:
    n_wants = len(preview.outcome.want_ids)
    return [
        f"{counted(len(preview.tainted), 'partition')} that failed first would be opened, and with them what failed behind.",
        f"{counted(n_wants, 'want')} would be recorded again.",
    ]


def _cancel_job_run(state: State, values: Values) -> CancelJobRuns:
    reason = values["reason"] or "canceled by a person"
    return cancel_command(state.engine.queries, values["job_runs"], reason=reason, retry=values["keep_wants"])


def _job_run_canceled(engine: Engine, command: CancelJobRuns, by: By) -> list[CanceledJobRunShape]:
    waiting = waiting_for(engine.queries, command)
    engine.handle(command, actor=by.actor, command_id=by.command_id)
    return canceled_job_runs(engine, command, waiting)


def _would_cancel_job_run(state: State, command: CancelJobRuns, preview: Preview) -> list[str]:
    waiting = waiting_for(state.engine.queries, command)
    found = [f"{counted(len(command.job_run_ids), 'job run')} would be canceled."]
    for ref, refs in list(waiting.refs.items())[:MAX_NAMED]:
        n = len(waiting.wants[ref])
        waits = f"{counted(n, 'want')} {'waits' if n == 1 else 'wait'} for that"
        found.append(f"{ref} would fail, and with it {few_of(refs, MAX_NAMED)}; {waits}.")
    if command.keep_wants:
        found.append("The wants would stay open, so that the partitions are built again.")
    return found


WANT: Final = Action(
    "want",
    "Want",
    "Record wants for partitions; the orchestrator builds them.",
    (
        replace(REFS, required=True),
        text("comment", "The reason, shown in the list of wants."),
        number("priority", "Higher is more urgent.", 0, -MAX_PRIORITY, MAX_PRIORITY),
        duration("ttl", "How long the want stays open: 90s, 12h, 7d, or none.", DEFAULT_TTL_SECONDS, "7d"),
        duration("sla", "The time until the data should be live: 90s, 12h, 7d.", None),
        flag("rebuild", "Rebuild the partitions, also those that are live or failed."),
        flag("fresh", "Rebuild those partitions that another code version built."),
        flag("together", "Record one want for all partitions instead of one for each."),
        flag("fail_fast", "Stop building the other inputs once one has failed."),
    ),
    **commanded(_want, _wanted, _would_want),
    answer=list[RecordedWantShape],
    subjects=("refs",),
)
CANCEL: Final = Action(
    "cancel",
    "Cancel",
    "Cancel wants, and the queued job runs that only they need.",
    (replace(several(text("wants", "The ids of wants or requests, or their ends.")), required=True), REASON, TERMINATE),
    **commanded(_cancel, _canceled, _would_cancel),
    answer=list[CanceledWantShape],
    subjects=("wants",),
    takes_away=True,
)
RETRY: Final = Action(
    "retry",
    "Retry",
    "Retry what failed behind partitions; wants that failed because of it are recorded again.",
    (replace(REFS, required=True), REASON),
    **commanded(_retry, _retried, _would_retry),
    answer=RetriedShape,
    subjects=("refs",),
)
CANCEL_JOB_RUN: Final = Action(
    "cancel-job-run",
    "Cancel job run",
    "Cancel job runs, and the wants for what they build.",
    (
        replace(several(text("job_runs", "The ids of job runs, or their ends.")), required=True),
        REASON,
        flag("keep_wants", "Keep the wants open, so that the partitions are built again."),
    ),
    **commanded(_cancel_job_run, _job_run_canceled, _would_cancel_job_run),
    answer=list[CanceledJobRunShape],
    subjects=("job_runs",),
    takes_away=True,
)
