"""`databuild operation list|show|cancel`: the running and the ended operations (rules 9)."""

import click
import msgspec

from databuild_dagster.calls.streams import screen
from databuild_dagster.cli.definitions import deployed_dataset, load
from databuild_dagster.cli.options import Where, common, definitions, tabular
from databuild_dagster.cli.output import count, emit, listing, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.wording import when
from databuild_dagster.features.operations.commands.operation_progress import (
    OperationProgress,
    as_answer,
    detached,
    detail_of,
    finished,
    follow_to_end,
    tell_follow_ups,
    trouble_of,
)
from databuild_dagster.features.operations.commands.operation_run import PARALLEL, TIMEOUT, check_local, run_here
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.shapes import (
    ShownOperation,
    canceled_operation,
    shown_operation,
    shown_trouble,
)
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.records import columns_of
from databuild_dagster.model.wording import few_of

#: Jobs that `show` lists of each kind.
MAX_SHOWN = 100


@click.command("list")
@click.argument("dataset", required=False)
@click.option("--all", "every", is_flag=True, help="Also operations that have ended.")
@definitions
@tabular
def list_operations(dataset: str | None, every: bool, where: Where, as_json: bool) -> None:
    """List the running operations, on DATASET or on all."""
    manager = _manager(where)
    found = manager.operations(dataset, ended=every)
    empty = "No operation runs. `databuild operation run TYPE DATASET` starts one."
    listing([shown_operation(view) for view in found], columns_of(ShownOperation), empty=empty, as_json=as_json)
    for view in () if as_json else found:
        if view.trouble is not None:
            click.echo(f"{view.id} {trouble_of(view.trouble, manager.engine.now())}")
        elif view.problem is not None:
            click.echo(f"{view.id} cannot {_WHAT[view.state]} here: {view.problem}")
        if view.follow_ups:
            begun = [follow_up.operation or f"{follow_up.type} on {follow_up.dataset}" for follow_up in view.follow_ups]
            n_refused = sum(bool(follow_up.refused) for follow_up in view.follow_ups)
            refused = f" ({n_refused} refused)" if n_refused else ""
            click.echo(f"{view.id} is followed by {few_of(begun)}{refused}.")


@click.command()
@click.argument("operation")
@definitions
@tabular
def show(operation: str, where: Where, as_json: bool) -> None:
    """Show the jobs, the failures and the result of OPERATION.

    Of a running job also the process that runs it.
    """
    manager = _manager(where)
    view = manager.operation(OperationId.parse(operation))
    if as_json:
        emit(
            {
                **as_answer(view),
                "started_at": when(view.started_at),
                "ended_at": when(view.ended_at),
                "problem": view.problem,
                "running": {partition: lease.holder for partition, lease in view.executors.items()},
                "retrying": {partition: shown_trouble(trouble) for partition, trouble in view.troubles.items()},
                "completion": shown_trouble(view.trouble),
            }
        )
        return
    rows = [(partition or "(whole)", "failed", detail_of(detail)) for partition, detail in view.failed.items()]
    now = manager.engine.now()
    rows += [(name or "(whole)", "retrying", trouble_of(trouble, now)) for name, trouble in view.troubles.items()]
    running = {name: lease for name, lease in view.executors.items() if name not in view.troubles}
    rows += [(name or "(whole)", "running", f"by {lease.holder}") for name, lease in running.items()]
    if rows:
        table(("partition", "state", ""), rows[:MAX_SHOWN], empty="")
        if len(rows) > MAX_SHOWN:
            click.echo(f"… and {len(rows) - MAX_SHOWN} more.")
    if view.report is not None:
        click.echo(msgspec.json.format(msgspec.json.encode(view.report)).decode())
    at = view.started_at if view.state is OperationState.RUNNING else view.ended_at
    since = "" if at is None else f", {'since ' if view.state is OperationState.RUNNING else ''}{when(at)}"
    why = f" ({view.reason})" if view.reason else ""
    click.echo(
        f"{view.id}: {view.state.value}{why}{since}; {view.done} of {count(view.total, 'job')} done, "
        f"{len(view.failed)} failed."
    )
    tell_follow_ups(view)
    if view.trouble is not None:
        click.echo(f"It {trouble_of(view.trouble, now)}")
    elif view.problem is not None:
        click.echo(f"It cannot {_WHAT[view.state]} here: {view.problem}")


@click.command()
@click.argument("operation")
@click.option("--local", is_flag=True, help="Also run its jobs in this process; no daemon is needed.")
@TIMEOUT
@PARALLEL
@definitions
@tabular
def watch(
    operation: str, local: bool, timeout: float | None, parallel: int | None, where: Where, as_json: bool
) -> None:
    """Follow OPERATION to its end."""
    check_local(local=local, timeout=timeout, parallel=parallel)
    id = OperationId.parse(operation)
    manager = DistributedOperationManager(the_engine())
    view = manager.operation(id)
    following = OperationProgress(manager, id)
    try:
        with following.shown(screen(), is_alone=False):
            if local and view.state is OperationState.RUNNING:
                _run_here(following, where, parallel)
            else:
                follow_to_end(following, timeout)
    except KeyboardInterrupt:
        detached(id, is_local=local)
    finished(manager.operation(id), as_json=as_json, is_local=local)


def _run_here(following: OperationProgress, where: Where, parallel: int | None) -> None:
    from databuild_dagster.features.operations.operations import manager_of, operation_resources

    found = deployed_dataset(following.id.dataset, where)
    resources = operation_resources(found.instance, found.deployment)
    run_here(manager_of(resources, found.deployment, actor=this_user()), resources, following, parallel)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="OPERATION...")
@click.option("--reason", default="", help="The reason, kept in the log.")
@common
def cancel(ids: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Cancel operations, whether or not their code still loads."""
    manager = DistributedOperationManager(the_engine(), actor=this_user())
    named = [OperationId.parse(text) for text in ids]
    canceled = {id: manager.cancel(id, reason) for id in named}
    if as_json:
        emit([canceled_operation(manager.operation(id), canceled=canceled[id]) for id in named])
        return
    for id, is_canceled in canceled.items():
        view = manager.operation(id)
        click.echo(f"Canceled {id}." if is_canceled else f"{id} had ended before: {view.state.value}.")


def _manager(where: Where) -> DistributedOperationManager:
    """A manager with the types that every process has; definitions are loaded only for a type that it lacks."""
    from databuild_dagster.bindings.authoring.location import CannotLoad
    from databuild_dagster.features.operations.operations import OPERATIONS, known_operations

    manager = DistributedOperationManager(the_engine(), known_operations())
    if not where.named and all(id.type in manager.types for id in manager.running()):
        return manager
    try:
        locations = load(where)
    except CannotLoad:
        if where.named:
            raise
        # The list then says what is wrong with the operation.
        return manager
    for location in locations:
        for operation in () if location.deployment is None else OPERATIONS.of(location.deployment):
            manager.register(operation)
    return manager


#: The step that fails here, for an operation with a problem.
_WHAT = {OperationState.RUNNING: "continue", OperationState.UNREADABLE: "be read"}
