"""The table of all actions: the core's, about wants and data (rules 5, 6.6, 6.10, 6.13, 7), and the features'.

The pages have a button for some actions, and a program may call each.
"""

from dataclasses import replace
from functools import cache
from typing import Final

from databuild_dagster.calls.taints import (
    Reverted,
    Tainted,
    Untainted,
    revert_command,
    taint_partitions,
    untaint_command,
)
from databuild_dagster.data.read_plan import DamagedData, DataRemoved
from databuild_dagster.engine.engine import Engine, Preview
from databuild_dagster.engine.why.job_runs import CanceledJobRun, cancel_command, canceled_job_runs, waiting_for
from databuild_dagster.engine.why.partitions import Paused, Resumed, paused
from databuild_dagster.engine.why.want_report import (
    CanceledWant,
    RecordedWant,
    Retried,
    canceled_wants,
    recorded_wants,
    retried,
)
from databuild_dagster.feature import rows
from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import CannotRevert
from databuild_dagster.model.records import asked_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.web.action import (
    MAX_REFS,
    REASON,
    REFS,
    TERMINATE,
    Action,
    Handle,
    Values,
    commanded,
    names_of,
    refs_of,
)
from databuild_dagster.web.parameters import asked, flag, moment_to_come, ref, several, text
from databuild_dagster.web.state import State

#: Outputs of a canceled job run, and refs that wait for each, that a sentence names.
MAX_NAMED: Final = 5


def _want(state: State, values: Values) -> c.CreateWants:
    refs = refs_of(state, values)
    wanted = {field.field: values[field.name] for field in asked_of(c.CreateWants)}
    return c.CreateWants(wants=(refs,) if values["together"] else tuple((ref,) for ref in refs), **wanted)


def _wanted(engine: Engine, command: c.CreateWants, handle: Handle) -> list[RecordedWant]:
    return recorded_wants(engine, engine.queries.wants.named(handle().request_id or ""))


def _would_want(state: State, command: c.CreateWants, preview: Preview) -> list[str]:
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


def _cancel(state: State, values: Values) -> c.CancelWants:
    ids = tuple(state.engine.queries.ids.full(IdKind.WANT, name) for name in values["wants"])
    return c.CancelWants(ids=ids, reason=values["reason"] or "", terminate=values["terminate"])


def _would_cancel(state: State, command: c.CancelWants, preview: Preview) -> list[str]:
    n_runs = len(preview.outcome.canceled)
    found = [f"{counted(len(preview.outcome.canceled_want_ids), 'want')} would be canceled."]
    if n_runs:
        found.append(f"{counted(n_runs, 'job run')} that no other want needs would be canceled.")
    elif not command.terminate:
        found.append("Running job runs would continue.")
    return found


def _retry(state: State, values: Values) -> c.RetryRefs:
    refs = refs_of(state, values)
    if values["alike"]:
        refs = tuple(dict.fromkeys((*refs, *state.engine.queries.canonical.failed_as(refs, MAX_REFS))))[:MAX_REFS]
    return c.RetryRefs(refs=refs, reason=values["reason"] or "")


def _would_retry(state: State, command: c.RetryRefs, preview: Preview) -> list[str]:
    n_wants = len(preview.outcome.want_ids)
    rest = (
        [f"These are the last {MAX_REFS:,}; the same once more retries the rest."]
        if len(command.refs) == MAX_REFS
        else []
    )
    return [
        *rest,
        f"{counted(len(preview.tainted), 'partition')} that failed first would be opened, and with them what failed behind.",
        f"{counted(n_wants, 'want')} would be recorded again.",
    ]


def _cancel_job_run(state: State, values: Values) -> c.CancelJobRuns:
    reason = values["reason"] or "canceled by a person"
    return cancel_command(state.engine.queries, values["job_runs"], reason=reason, retry=values["keep_wants"])


def _job_run_canceled(engine: Engine, command: c.CancelJobRuns, handle: Handle) -> list[CanceledJobRun]:
    waiting = waiting_for(engine.queries, command)
    handle()
    return canceled_job_runs(engine, command, waiting)


def _would_cancel_job_run(state: State, command: c.CancelJobRuns, preview: Preview) -> list[str]:
    waiting = waiting_for(state.engine.queries, command)
    found = [f"{counted(len(command.job_run_ids), 'job run')} would be canceled."]
    for output, refs in list(waiting.refs.items())[:MAX_NAMED]:
        n = len(waiting.wants[output])
        waits = f"{counted(n, 'want')} {'waits' if n == 1 else 'wait'} for that"
        found.append(f"{output} would fail, and with it {few_of(refs, MAX_NAMED)}; {waits}.")
    if command.keep_wants:
        found.append("The wants would stay open, so that the partitions are built again.")
    return found


WANT: Final = Action(
    "want",
    "Want",
    "Record wants for partitions; the orchestrator builds them.",
    (
        replace(REFS, required=True),
        *map(asked, asked_of(c.CreateWants)),
        flag("together", "Record one want for all partitions instead of one for each."),
    ),
    **commanded(_want, _wanted, _would_want),
    answer=list[RecordedWant],
    subjects=("refs",),
)
CANCEL: Final = Action(
    "cancel",
    "Cancel",
    "Cancel wants, and the queued job runs that only they need.",
    (replace(several(text("wants", "The ids of wants or requests, or their ends.")), required=True), REASON, TERMINATE),
    **commanded(
        _cancel,
        lambda engine, command, handle: canceled_wants(engine.queries, command.ids, handle()).shape(),
        _would_cancel,
    ),
    answer=list[CanceledWant],
    subjects=("wants",),
    takes_away=True,
)
RETRY: Final = Action(
    "retry",
    "Retry",
    "Retry what failed behind partitions; wants that failed because of it are recorded again.",
    (
        replace(REFS, required=True),
        REASON,
        flag("alike", "Also all partitions of their assets that failed by themselves by the same causes."),
    ),
    **commanded(_retry, lambda engine, _, handle: retried(engine.queries, handle()), _would_retry),
    answer=Retried,
    subjects=("refs",),
    # A retry taints what failed, so that the next tick builds it.
    words_of_states={"Tainted": "to be built again", "UpForRetry": "to be built again"},
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
    answer=list[CanceledJobRun],
    subjects=("job_runs",),
    takes_away=True,
)


def _taint(state: State, values: Values) -> c.TaintPartitions:
    queries = state.engine.queries
    refs = refs_of(state, values) if values["refs"] else ()
    uuids = tuple(queries.ids.full(IdKind.INSTANCE, name) for name in values["instances"])
    return c.TaintPartitions(refs=refs, uuids=uuids, reason=values["reason"] or "", downstream=values["downstream"])


def _would_taint(state: State, command: c.TaintPartitions, preview: Preview) -> list[str]:
    queries = state.engine.queries
    found = [f"Readers of {counted(len(preview.tainted), 'partition')} would see a taint."]
    if not command.downstream and (behind := queries.instances.n_live_built_from(command.refs, command.uuids)):
        found.append(f"{counted(behind, 'live partition')} built from this data would be left as it is, and stale.")
    if command.downstream:
        found.append("What is built from this data later would be tainted too.")
    if ended := queries.wants.n_failed_because_of(command.refs):
        found.append(f"{counted(ended, 'want')} that failed of it would stay ended.")
    return found


def _untaint(state: State, values: Values) -> c.UntaintPartitions:
    return untaint_command(state.engine, values["taint"], values["reason"] or "")


def _untainted(engine: Engine, command: c.UntaintPartitions, handle: Handle) -> Untainted:
    handle()
    return Untainted(command.taint_id)


def _would_untaint(state: State, command: c.UntaintPartitions, preview: Preview) -> list[str]:
    n = sum(change.kind == "instances" and change.after == "Live" for change in preview.changes)
    return [f"Readers would see {counted(n, 'partition')} live again."]


def _revert(state: State, values: Values) -> c.RevertCanonical:
    name, ref = values["to"], values["ref"]
    try:
        return revert_command(state.engine, ref, name, force=values["force"], reason=values["reason"] or "")
    except (DataRemoved, DamagedData) as error:
        # Its message has the path of a file.
        why = f"its files are not all there ({type(error).__name__}); `databuild revert` on the command line names them"
        raise CannotRevert(ref=ref, uuid=name, why=why) from None


def _reverted(engine: Engine, command: c.RevertCanonical, handle: Handle) -> Reverted:
    handle()
    return Reverted(command.ref, command.uuid)


def _would_revert(state: State, command: c.RevertCanonical, preview: Preview) -> list[str]:
    found = [f"Readers of {command.ref} would see instance {command.uuid} again."]
    if behind := state.engine.queries.instances.n_live_built_from([command.ref], ()):
        found.append(f"{counted(behind, 'live partition')} built from what readers see now would be stale.")
    return found


def _pause(state: State, values: Values) -> c.PausePartitions:
    return c.PausePartitions(
        refs=names_of(state, values),
        reason=values["reason"] or "",
        until=values["until"],
        terminate=values["terminate"],
    )


def _would_pause(state: State, command: c.PausePartitions, preview: Preview) -> list[str]:
    n_runs = len(preview.outcome.canceled)
    found = [f"Nothing would launch {_in_words(command.refs)} until the pause ends; the wants stay open."]
    if n_runs:
        found.append(f"{counted(n_runs, 'job run')} would be canceled.")
    return found


def _resume(state: State, values: Values) -> c.ResumePartitions:
    return c.ResumePartitions(refs=names_of(state, values), reason=values["reason"] or "")


def _would_resume(state: State, command: c.ResumePartitions, preview: Preview) -> list[str]:
    return [f"The pause of {_in_words(preview.outcome.resumed)} would end, and what is wanted would be launched."]


def _in_words(refs: tuple[Ref, ...]) -> str:
    return refs[0] if len(refs) == 1 else f"{len(refs):,} partitions and assets"


_WRONG: Final = text("reason", "What is wrong with the data.", required=True)

TAINT: Final = Action(
    "taint",
    "Taint",
    "Mark the data of partitions as wrong; open wants rebuild it.",
    (
        REFS,
        several(text("instances", "Instances that are or were live, by uuid or its end.")),
        _WRONG,
        flag("downstream", "Also what was built from them, or will be, by recorded inputs."),
    ),
    **commanded(_taint, taint_partitions, _would_taint),
    answer=Tainted,
    subjects=("refs", "instances"),
    takes_away=True,
)
UNTAINT: Final = Action(
    "untaint",
    "Untaint",
    "Remove a taint from every instance that has it.",
    (text("taint", "The id of the taint, or its end.", required=True), REASON),
    **commanded(_untaint, _untainted, _would_untaint),
    answer=Untainted,
    subjects=("taint",),
)
REVERT: Final = Action(
    "revert",
    "Revert",
    "Make an earlier instance of a partition the one that readers see.",
    (
        ref("ref", "The partition.", required=True),
        text("to", "The uuid of the earlier instance, or its end.", required=True),
        REASON,
        flag("force", "Allow an instance built from data that a downstream taint covers."),
    ),
    **commanded(_revert, _reverted, _would_revert),
    answer=Reverted,
    subjects=("ref", "to"),
    takes_away=True,
)
PAUSE: Final = Action(
    "pause",
    "Pause",
    "Keep partitions from being launched; their wants stay open.",
    (
        replace(REFS, required=True, description=f"{REFS.description} An asset alone is every partition of it."),
        replace(REASON, required=True),
        moment_to_come("until", "The end of the pause: a time with its zone, or 90s, 15m, 12h, 7d from now."),
        TERMINATE,
    ),
    **commanded(_pause, lambda engine, command, handle: paused(engine.queries, command, handle()), _would_pause),
    answer=Paused,
    subjects=("refs",),
)
RESUME: Final = Action(
    "resume",
    "Resume",
    "End the pauses of partitions; what is wanted is built.",
    (replace(REFS, required=True), REASON),
    **commanded(_resume, lambda _engine, _command, handle: Resumed(handle().resumed), _would_resume),
    answer=Resumed,
    subjects=("refs",),
)
#: In the order of the OpenAPI document.
ACTIONS: Final[tuple[Action, ...]] = (WANT, CANCEL, CANCEL_JOB_RUN, RETRY, PAUSE, RESUME, TAINT, UNTAINT, REVERT)


@cache
def actions() -> tuple[Action, ...]:
    """The actions of the core and of the features."""
    return (*ACTIONS, *rows(lambda feature: feature.actions))
