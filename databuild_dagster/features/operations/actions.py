"""Actions about operations: start and cancel them (rules 9).

The web server has the types that databuild and installed packages provide. It loads no code location, so an operation of a
type that a code location registers is started on the command line; any operation can be canceled.
"""

from typing import Final, NamedTuple

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.registry.selections import keys_named
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.operation_context import OperationResources
from databuild_dagster.features.operations.operations import OPERATIONS, known_operations, operation_resources
from databuild_dagster.features.operations.shapes import (
    CanceledOperation,
    StartedOperation,
    canceled_operation,
)
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.wording import counted
from databuild_dagster.web.action import REASON, Action, By, Foreseen, Values
from databuild_dagster.web.parameters import json_value, several, text
from databuild_dagster.web.state import State


class _Running(NamedTuple):
    """The types that a web server can start, and what their checks need."""

    deployment: Deployment
    resources: OperationResources


def operation_manager(state: State, actor: str) -> DistributedOperationManager:
    """A manager with the provided types. Its Spark session, which some types check their argument by, is shared."""
    deployment, resources = state.made_once(_running)
    return DistributedOperationManager(state.engine, OPERATIONS.of(deployment), actor=actor, resources=resources)


def _running(state: State) -> _Running:
    deployment = Deployment(of_features={OPERATIONS.name: known_operations()})
    return _Running(deployment, operation_resources(state.instance(), deployment))


def _start(state: State, values: Values, by: By) -> StartedOperation:
    manager = operation_manager(state, by.actor)
    id = manager.start(
        values["type"],
        values["dataset"],
        values["arg"],
        partitions=_keys(state, values),
        command_id=by.command_id,
    )
    return StartedOperation(str(id), OperationState.RUNNING.value)


def _would_start(state: State, values: Values, actor: str) -> Foreseen:
    """The type's own check comes with the start: it may need Spark."""
    manager = operation_manager(state, actor)
    manager.type_named(values["type"])
    if values["arg"] is not None:
        manager.check_compatible(values["type"], values["dataset"], values["arg"])
    n = len(manager.chosen(values["type"], values["dataset"], _keys(state, values)))
    return Foreseen([f"{values['type']} would run over {counted(n, 'live partition')} of {values['dataset']}."], [])


def _keys(state: State, values: Values) -> list[str] | None:
    """The partition keys, None for all live partitions."""
    if not values["partitions"]:
        return None
    spec = state.engine.queries.datasets.known(values["dataset"])
    return keys_named("partitions", spec, values["partitions"], state.instance)


def _cancel(state: State, values: Values, by: By) -> CanceledOperation:
    manager = DistributedOperationManager(state.engine, actor=by.actor)
    id = OperationId.parse(values["operation"])
    is_canceled = manager.cancel(id, values["reason"] or "", command_id=by.command_id)
    return canceled_operation(manager.operation(id), canceled=is_canceled)


def _would_cancel(state: State, values: Values, actor: str) -> Foreseen:
    view = DistributedOperationManager(state.engine).operation(OperationId.parse(values["operation"]))
    if view.state is not OperationState.RUNNING:
        return Foreseen([f"{view.id} has ended before: {view.state.value}. Nothing would change."], [])
    n_left = view.total - view.done - len(view.failed)
    would = [
        f"{view.id} would end; {counted(n_left, 'job')} of {view.total:,} would not be done.",
        f"{counted(len(view.executors), 'job')} at work would stop. What is done stays.",
    ]
    return Foreseen(would, [])


OPERATION_START: Final = Action(
    "operation-start",
    "Start operation",
    "Start an operation over the live partitions of a dataset; the orchestrator runs it.",
    (
        text("type", "A type of databuild or of an installed package, such as compact.", required=True),
        text("dataset", "The name of the asset.", required=True),
        several(text("partitions", "Only these partitions, by key, range or ref. By default all live ones.")),
        json_value("arg", "The argument of the type, as JSON."),
    ),
    act=_start,
    rehearse=_would_start,
    answer=StartedOperation,
    subjects=("type", "dataset", "partitions"),
    done_in_words="started an operation",
)
OPERATION_CANCEL: Final = Action(
    "operation-cancel",
    "Cancel operation",
    "Cancel an operation, whether or not its code still loads.",
    (text("operation", "The id of the operation.", required=True), REASON),
    act=_cancel,
    rehearse=_would_cancel,
    answer=CanceledOperation,
    subjects=("operation",),
    takes_away=True,
    done_in_words="canceled an operation",
)

ACTIONS: Final = (OPERATION_START, OPERATION_CANCEL)
