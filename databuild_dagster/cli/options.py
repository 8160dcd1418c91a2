"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from databuild_dagster.cli.output import WIDE
from databuild_dagster.data.read_plan import Moment, moment_of
from databuild_dagster.model.refs import Ref, parse_ref
from databuild_dagster.store.queries.queries import Queries

F = TypeVar("F", bound=Callable[..., Any])


class RefType(click.ParamType[Ref]):
    """A ref of the command line. `main` prints the `InvalidRef` that a malformed one raises."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ref:
        return parse_ref(value)


REF = RefType()


def common(function: F) -> F:
    """--json and --debug. `main` looks at --debug itself, wherever it stands."""
    function = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")(
        function
    )
    return click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")(function)


def tabular(function: F) -> F:
    """The options of `common`, and --wide for a command that prints a table; `output.table` looks at it."""

    def keep(context: click.Context, _: click.Parameter, is_wide: bool) -> None:
        context.meta[WIDE] = is_wide

    option = click.option(
        "--wide", is_flag=True, expose_value=False, callback=keep, help="Show every column in full, however wide."
    )
    return common(option(function))


def as_of(function: F) -> F:
    """--as-of, passed on as text; `moment` says what it means."""
    return click.option(
        "--as-of",
        metavar="TIME|SEQ",
        default=None,
        help="The state at an ISO 8601 time with offset, or at a seq of `databuild log events`.",
    )(function)


def moment(queries: Queries, text: str | None) -> Moment:
    """The moment that --as-of names. Raises `InvalidAsOf`, `BeforeAnything`."""
    return moment_of(queries, int(text) if text and text.isdecimal() else text, datetime.now(UTC))


@dataclass(frozen=True)
class Where:
    """Which definitions to load, as the user named them."""

    modules: tuple[str, ...]
    files: tuple[str, ...]
    workspaces: tuple[str, ...]
    location: str | None

    @property
    def named(self) -> bool:
        return bool(self.modules or self.files or self.workspaces)


def definitions(function: F) -> F:
    """-m, -f, -w and --location, as `dagster` has them; passed on as one `where`."""

    def wrapped(
        *args: Any,
        modules: tuple[str, ...],
        files: tuple[str, ...],
        workspaces: tuple[str, ...],
        location: str | None,
        **kwargs: Any,
    ) -> Any:
        return function(*args, where=Where(modules, files, workspaces, location), **kwargs)

    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--location", help="The code location, if there are several."),
        click.option("-w", "--workspace", "workspaces", multiple=True, help="A workspace file."),
        click.option("-f", "--python-file", "files", multiple=True, help="A file with definitions."),
        click.option("-m", "--module-name", "modules", multiple=True, help="A module with definitions."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
