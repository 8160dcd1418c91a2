"""Actions about data: taint, untaint, revert, and the pause of its builds (rules 7, 6.13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from databuild_dagster.data.read_plan import DamagedData, DataRemoved
from databuild_dagster.engine.engine import Engine, Preview
from databuild_dagster.model.commands import (
    PausePartitions,
    ResumePartitions,
    RevertCanonical,
    TaintPartitions,
    UntaintPartitions,
)
from databuild_dagster.model.errors import CannotRevert
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import counted
from databuild_dagster.shapes.pauses import PausedShape, ResumedShape, paused, resumed
from databuild_dagster.shapes.taints import (
    RevertedShape,
    TaintedShape,
    UntaintedShape,
    revert_command,
    taint_partitions,
)
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.web.action import REASON, REFS, TERMINATE, Action, By, Values, commanded, names_of, refs_of
from databuild_dagster.web.parameters import flag, moment_to_come, ref, several, text
from databuild_dagster.web.state import State


def _taint(state: State, values: Values) -> TaintPartitions:
    queries = state.engine.queries
    refs = refs_of(state, values) if values["refs"] else ()
    uuids = tuple(queries.full_id(IdKind.INSTANCE, name) for name in values["instances"])
    return TaintPartitions(refs=refs, uuids=uuids, reason=values["reason"] or "", downstream=values["downstream"])


def _tainted(engine: Engine, command: TaintPartitions, by: By) -> TaintedShape:
    return taint_partitions(engine, command, actor=by.actor, command_id=by.command_id)


def _would_taint(state: State, command: TaintPartitions, preview: Preview) -> list[str]:
    queries = state.engine.queries
    found = [f"Readers of {counted(len(preview.tainted), 'partition')} would see a taint."]
    if not command.downstream and (behind := queries.n_live_built_from(command.refs, command.uuids)):
        found.append(f"{counted(behind, 'live partition')} built from this data would be left as it is, and stale.")
    if command.downstream:
        found.append("What is built from this data later would be tainted too.")
    if ended := queries.failed_wants_of(command.refs):
        found.append(f"{counted(ended, 'want')} that failed of it would stay ended.")
    return found


def _untaint(state: State, values: Values) -> UntaintPartitions:
    taint_id = state.engine.queries.full_id(IdKind.TAINT, values["taint"])
    return UntaintPartitions(taint_id=taint_id, reason=values["reason"] or "")


def _untainted(engine: Engine, command: UntaintPartitions, by: By) -> UntaintedShape:
    engine.handle(command, actor=by.actor, command_id=by.command_id)
    return {"taint_id": command.taint_id}


def _would_untaint(state: State, command: UntaintPartitions, preview: Preview) -> list[str]:
    n = sum(change.kind == "instances" and change.after == "Live" for change in preview.changes)
    return [f"Readers would see {counted(n, 'partition')} live again."]


def _revert(state: State, values: Values) -> RevertCanonical:
    name, ref = values["to"], values["ref"]
    try:
        return revert_command(state.engine.queries, ref, name, force=values["force"], reason=values["reason"] or "")
    except (DataRemoved, DamagedData) as error:
        # Its message has the path of a file.
        why = f"its files are not all there ({type(error).__name__}); `databuild revert` on the command line names them"
        raise CannotRevert(ref=ref, uuid=name, why=why) from None


def _reverted(engine: Engine, command: RevertCanonical, by: By) -> RevertedShape:
    engine.handle(command, actor=by.actor, command_id=by.command_id)
    return {"ref": command.ref, "uuid": command.uuid}


def _would_revert(state: State, command: RevertCanonical, preview: Preview) -> list[str]:
    found = [f"Readers of {command.ref} would see instance {command.uuid} again."]
    if behind := state.engine.queries.n_live_built_from([command.ref], ()):
        found.append(f"{counted(behind, 'live partition')} built from what readers see now would be stale.")
    return found


def _pause(state: State, values: Values) -> PausePartitions:
    return PausePartitions(
        refs=names_of(state, values),
        reason=values["reason"] or "",
        until=values["until"],
        terminate=values["terminate"],
    )


def _paused(engine: Engine, command: PausePartitions, by: By) -> PausedShape:
    outcome = engine.handle(command, actor=by.actor, command_id=by.command_id)
    return paused(engine.queries, command, outcome)


def _would_pause(state: State, command: PausePartitions, preview: Preview) -> list[str]:
    n_runs = len(preview.outcome.canceled)
    found = [f"Nothing would launch {_in_words(command.refs)} until the pause ends; the wants stay open."]
    if n_runs:
        found.append(f"{counted(n_runs, 'job run')} would be canceled.")
    return found


def _resume(state: State, values: Values) -> ResumePartitions:
    return ResumePartitions(refs=names_of(state, values), reason=values["reason"] or "")


def _resumed(engine: Engine, command: ResumePartitions, by: By) -> ResumedShape:
    return resumed(engine.handle(command, actor=by.actor, command_id=by.command_id))


def _would_resume(state: State, command: ResumePartitions, preview: Preview) -> list[str]:
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
    **commanded(_taint, _tainted, _would_taint),
    answer=TaintedShape,
    subjects=("refs", "instances"),
    takes_away=True,
)
UNTAINT: Final = Action(
    "untaint",
    "Untaint",
    "Remove a taint from every instance that has it.",
    (text("taint", "The id of the taint, or its end.", required=True), REASON),
    **commanded(_untaint, _untainted, _would_untaint),
    answer=UntaintedShape,
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
    answer=RevertedShape,
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
    **commanded(_pause, _paused, _would_pause),
    answer=PausedShape,
    subjects=("refs",),
)
RESUME: Final = Action(
    "resume",
    "Resume",
    "End the pauses of partitions; what is wanted is built.",
    (replace(REFS, required=True), REASON),
    **commanded(_resume, _resumed, _would_resume),
    answer=ResumedShape,
    subjects=("refs",),
)
