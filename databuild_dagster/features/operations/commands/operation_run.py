"""`databuild operation run TYPE DATASET`: start an operation over the partitions of a dataset, and follow it to its end (rules 9).

Types with options of their own are commands of this group, and hand what they have made of them to `run_operation`;
every other type is started with `--arg`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from databuild_dagster.bindings.registry.selections import keys_named
from databuild_dagster.calls.streams import printing_to_stderr, screen
from databuild_dagster.cli.definitions import deployed_dataset
from databuild_dagster.cli.groups import Branch, Leaf, TableGroup
from databuild_dagster.cli.options import DURATION, Where, definitions, tabular
from databuild_dagster.cli.output import answer, count
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.judge import Judge
from databuild_dagster.features.operations.commands.operation_progress import (
    Following,
    detached,
    finished,
    follow_to_end,
)
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.wording import typed

if TYPE_CHECKING:
    from databuild_dagster.features.operations.manager import DistributedOperationManager
    from databuild_dagster.features.operations.operation_context import OperationResources

F = TypeVar("F", bound=Callable[..., Any])

#: Types with options of their own, and a line for every other type.
TYPES: dict[str, dict[str, Leaf | Branch]] = {
    "Types": {
        "validate": Leaf(
            "databuild_dagster.features.operations.commands.operation_run_provided:validate",
            "Find rows of DATASET that violate rules.",
        ),
        "build_index": Leaf(
            "databuild_dagster.features.operations.commands.operation_run_provided:build_index",
            "Index the values in DATASET's files, for filters.",
        ),
        "compact": Leaf(
            "databuild_dagster.features.operations.commands.operation_run_provided:compact",
            "Rewrite many small files of DATASET as few large ones.",
        ),
        "TYPE": Leaf("", "Run an operation of another registered type."),
    }
}


#: Both of `run` and `watch`.
TIMEOUT = click.option(
    "--timeout",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="Stop waiting after this time, with exit code 1; the operation continues.",
)


PARALLEL = click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    default=None,
    metavar="N",
    help="With --local: run N jobs at a time. Default: as many as cores.",
)


class InvalidArgument(InvalidRequest):
    """--arg is {value!r}, which is no JSON: {why}."""

    hint = 'Quote it for the shell: --arg \'{{"column": "amount"}}\'.'


class TypeGroup(TableGroup):
    """Any name is a command, because a code location may register any type."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        known = None if cmd_name == "TYPE" else super().get_command(ctx, cmd_name)
        return known or _any_type(cmd_name)


@click.group(cls=TypeGroup, tables=(lambda: TYPES,))
def run() -> None:
    """Run an operation over the partitions of a dataset.

    The operation has one job per partition, and survives the death of any process. TYPE is a command below or a type
    that a code location registered by build_definitions(operations=[…]).
    """


@dataclass(frozen=True)
class How:
    """What every type is started with."""

    dataset: str
    #: Keys, ranges and refs. Empty for all that are live.
    partitions: tuple[str, ...]
    fail_fast: bool
    local: bool
    parallel: int | None
    wait: bool
    timeout: float | None
    where: Where
    as_json: bool


def operation_command(function: F) -> F:
    """DATASET and the options that every type has, passed on as one `how`."""

    @wraps(function)
    def wrapped(*args: Any, dataset: str, partitions: tuple[str, ...], no_wait: bool, **options: Any) -> Any:
        common = ("fail_fast", "local", "parallel", "timeout", "where", "as_json")
        how = How(dataset, partitions, wait=not no_wait, **{name: options.pop(name) for name in common})
        return function(*args, how=how, **options)

    for option in (
        tabular,
        definitions,
        click.option("--no-wait", is_flag=True, help="Start the operation and print its id; the daemon runs it."),
        TIMEOUT,
        PARALLEL,
        click.option("--local", is_flag=True, help="Run its jobs in this process; no daemon is needed."),
        click.option("--fail-fast", is_flag=True, help="End the operation once a job has failed."),
        click.option(
            "--partitions",
            multiple=True,
            metavar="KEY|FROM..TO,…",
            help="Only these partitions, by key, range or ref, separated by commas. Repeatable. Default: all live ones.",
        ),
        click.argument("dataset"),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def _any_type(type_name: str) -> click.Command:
    @click.command(type_name)
    @click.option("--arg", "text", default="null", metavar="JSON", help="The argument of the operation.")
    @operation_command
    def start(text: str, how: How) -> None:
        """Run an operation of this type over the partitions of DATASET, and wait for its end.

        Ctrl-C ends the waiting, and not the operation. Exit code 1 says that jobs failed, or that its report finds
        something wrong.
        """
        try:
            arg = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(what="--arg", value=text, why=str(error)) from None
        run_operation(type_name, arg, how)

    return start


def run_operation(type_name: str, arg: Any, how: How) -> None:
    """Start it, have it run, and tell how it ended. Raises what cannot be, before anything is started."""
    from databuild_dagster.features.operations.operations import manager_of, operation_resources

    if how.local and not how.wait:
        raise click.UsageError("--local and --no-wait exclude each other: with --local, this process runs the jobs.")
    check_local(local=how.local, timeout=how.timeout, parallel=how.parallel)
    found = deployed_dataset(how.dataset, how.where)
    resources = operation_resources(found.instance, found.deployment)
    manager = manager_of(resources, found.deployment, actor=this_user())
    keys = keys_named("--partitions", found.dataset, how.partitions, lambda: found.instance)
    id = manager.start(
        type_name, how.dataset, arg, partitions=keys if how.partitions else None, fail_fast=how.fail_fast or None
    )
    following = Following(manager, id)
    if not how.wait:
        sentence = f"Started {id}: `databuild operation watch {typed(id)}` shows it."
        answer({"operation": str(id), "state": "running"}, sentence, as_json=how.as_json)
        return
    tracked = following.look()
    if tracked is not None:
        click.echo(f"Started {id} over {count(len(tracked.partitions), 'partition')}.", err=True)
    try:
        with following.shown(screen(), is_alone=False):
            if how.local:
                run_here(manager, resources, following, how.parallel)
            else:
                follow_to_end(following, how.timeout)
    except KeyboardInterrupt:
        detached(id, is_local=how.local)
    finished(manager.operation(id), as_json=how.as_json, is_local=how.local)


def check_local(*, local: bool, timeout: float | None, parallel: int | None) -> None:
    if parallel is not None and not local:
        raise click.UsageError("--parallel needs --local: it says how many jobs this process runs at a time.")
    if local and timeout is not None:
        raise click.UsageError(
            "--local and --timeout exclude each other: --timeout limits the wait for other processes."
        )


def run_here(
    manager: DistributedOperationManager, resources: OperationResources, following: Following, parallel: int | None
) -> None:
    """This process is executor and coordinator; others may be, too. Bounded by the operation."""
    from databuild_dagster.features.operations.coordinator import Coordinator
    from databuild_dagster.features.operations.operation_context import OperationContext
    from databuild_dagster.features.operations.operations import calls_at_once, executor_of, jobs_at_once, run_jobs

    id, judge, wait = following.id, Judge(), threading.Event().wait
    executor = executor_of(manager, resources, judge=judge)
    coordinator = Coordinator(manager, judge=judge, contexts=OperationContext)
    last_problem = ""

    def after_step() -> None:
        following.tell()
        tracked = following.look()
        if tracked is not None and tracked.is_complete and executor.jobs:
            # With `fail_fast`, the end of the operation stops the jobs of this process (rule 9.7).
            coordinator.coordinate()

    while following.look() is not None:
        with printing_to_stderr():
            run_jobs(
                executor,
                id,
                jobs_at_once(manager, id),
                parallel=calls_at_once(manager, id, parallel),
                pause=wait,
                after_step=after_step,
            )
            done = coordinator.coordinate()
        following.tell()
        if (problem := done.problems.get(id, "")) and problem != last_problem:
            last_problem = problem
            tracked = following.look()
            if tracked is not None and tracked.trouble is None:
                click.echo(f"{id} cannot continue: {problem}; it is tried again.", err=True)
        if following.look() is not None:
            wait(0.5)
