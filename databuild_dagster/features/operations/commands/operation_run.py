"""`databuild operation run TYPE DATASET`: start an operation over the partitions of a dataset, and follow it to its end (rules 9).

The types `validate`, `build_index` and `compact` have options of their own, and hand what they have made of them to
`run_operation`; every other type is started with `--arg`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from databuild_dagster.bindings.registry.selections import keys_named
from databuild_dagster.calls.streams import printing_to_stderr, screen
from databuild_dagster.cli.definitions import deployed_dataset
from databuild_dagster.cli.groups import Branch, Leaf, TableGroup
from databuild_dagster.cli.options import DURATION, MAX_COUNT, Where, definitions, tabular
from databuild_dagster.cli.output import answer, count
from databuild_dagster.data.home import BadYaml, read_yaml
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.judge import Judge
from databuild_dagster.features.operations.commands.operation_progress import (
    OperationProgress,
    detached,
    finished,
    follow_to_end,
)
from databuild_dagster.model.constraints import FORMS, listed_constraints, typed_constraint
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.wording import typed

if TYPE_CHECKING:
    from databuild_dagster.features.operations.manager import DistributedOperationManager
    from databuild_dagster.features.operations.operation_context import OperationResources

F = TypeVar("F", bound=Callable[..., Any])

#: Types with options of their own, and a line for every other type.
TYPES: dict[str, dict[str, Leaf | Branch]] = {
    "Types": {
        "validate": Leaf(
            "databuild_dagster.features.operations.commands.operation_run:validate",
            "Find rows of DATASET that violate rules.",
        ),
        "build_index": Leaf(
            "databuild_dagster.features.operations.commands.operation_run:build_index",
            "Index the values in DATASET's files, for filters.",
        ),
        "compact": Leaf(
            "databuild_dagster.features.operations.commands.operation_run:compact",
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

    The operation has a job per partition, and survives the death of any process. TYPE is a command below or a type
    that a code location registered by build_definitions(operations=[…]).
    """


@dataclass(frozen=True)
class RunOptions:
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
    """DATASET and the options that every type has, passed on together as `how`."""

    @wraps(function)
    def wrapped(*args: Any, dataset: str, partitions: tuple[str, ...], no_wait: bool, **options: Any) -> Any:
        common = ("fail_fast", "local", "parallel", "timeout", "where", "as_json")
        how = RunOptions(dataset, partitions, wait=not no_wait, **{name: options.pop(name) for name in common})
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
    def start(text: str, how: RunOptions) -> None:
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


def run_operation(type_name: str, arg: Any, how: RunOptions) -> None:
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
    following = OperationProgress(manager, id)
    if not how.wait:
        sentence = f"Started {id}: `databuild operation show --watch {typed(id)}` shows it."
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
    manager: DistributedOperationManager,
    resources: OperationResources,
    following: OperationProgress,
    parallel: int | None,
) -> None:
    """This process is executor and coordinator; other processes may be, too. Bounded by the operation."""
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


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class BadRulesFile(Refused):
    """{path} cannot be read as rules: {why}."""

    hint = "Write YAML: a list below `rules:`, as in `- not_null: carrier`."


def _rules(function: F) -> F:
    """An option for each rule; any of them may be given several times."""
    for rule, (form, _) in reversed(FORMS.items()):
        option = f"--{rule.replace('_', '-')}"
        function = click.option(option, rule, multiple=True, metavar=form, help=_HELP[rule])(function)
    return function


_HELP = {
    "not_null": "No row is null there.",
    "unique": "Within a partition no two rows have the same values there, null aside.",
    "range": "Both ends belong to it; one that is left out is open.",
    "regex": "The text has a match somewhere.",
    "accepted_values": "The value is one of these.",
    "expression": "A condition of Spark's SQL that is not false.",
    "narrow_type": "Every value is the same in the narrower type.",
}


@click.command()
@_rules
@click.option("--rules", "path", metavar="FILE", default=None, help="A YAML file with a list of rules.")
@click.option(
    "--samples", type=click.IntRange(0, 100), default=5, show_default=True, help="Number of rows to show per rule."
)
@click.option("--taint", is_flag=True, help="Taint the partitions that violate a rule.")
@operation_command
def validate(path: str | None, samples: int, taint: bool, how: RunOptions, **typed: tuple[str, ...]) -> None:
    """Find rows of DATASET that violate rules.

    Exit code 1 says that there are some.
    """
    constraints = [typed_constraint(rule, text) for rule in FORMS for text in typed[rule]]
    if path is not None:
        constraints += _from_file(path)
    if not constraints:
        raise click.UsageError("No rule was given. Give at least one, such as --not-null COLUMN, or --rules FILE.")
    run_operation("validate", {"constraints": constraints, "taint": taint, "samples": samples}, how)


@click.command("build_index")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME,…",
    help="Only these columns. Repeatable. Default: all columns whose values have an order.",
)
@operation_command
def build_index(columns: tuple[str, ...], how: RunOptions) -> None:
    """Index the values in DATASET's files, for filters.

    A read with a filter then skips files in which no row can match.
    """
    named = [name for text in columns for name in text.split(",") if name]
    run_operation("build_index", {"columns": named}, how)


@click.command()
@click.option(
    "--target", default="128MB", show_default=True, metavar="SIZE", help="The size of a file after compaction."
)
@operation_command
def compact(target: str, how: RunOptions) -> None:
    """Rewrite many small files of DATASET as few large ones.

    The rows stay the same, and nothing built from them becomes stale.
    """
    run_operation("compact", {"target_bytes": _bytes(target)}, how)


def _from_file(path: str) -> list[Any]:
    try:
        entries = read_yaml(Path(path))
    except (OSError, BadYaml) as error:
        raise BadRulesFile(path=path, why=getattr(error, "strerror", None) or error) from None
    return list(listed_constraints(entries, path))


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise InvalidRequest(what="--target", value=text, why="it is no size; write 64MB, or a number of bytes")
    size = float(found[1]) * _UNITS[found[2].lower()]
    if size > MAX_COUNT:
        raise InvalidRequest(what="--target", value=text, why="it is too large; write 64MB, or a number of bytes")
    return int(size)
