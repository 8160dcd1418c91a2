"""Options that commands share."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from databuild_dagster.bindings.registry.selections import refs_of_names, select_names
from databuild_dagster.calls.streams import say
from databuild_dagster.cli.output import WIDE, count, shown
from databuild_dagster.cli.state import the_instance
from databuild_dagster.data.read_plan import Moment, moment_of
from databuild_dagster.engine.wording import seconds_of, time_from, time_of
from databuild_dagster.model.records import asked_of
from databuild_dagster.model.refs import Ref, parse_ref
from databuild_dagster.model.selections import SELECTABLE
from databuild_dagster.model.wording import state_in_words
from databuild_dagster.store.queries.queries import Queries

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class RefType(click.ParamType[Ref]):
    """A ref of the command line. `main` prints the `InvalidRef` that a malformed ref raises."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ref:
        return parse_ref(value)


REF = RefType()
#: The largest integer of a database's column.
MAX_COUNT = 2**63 - 1
_WHOLE_NUMBER = re.compile(r"\s*[-+]?\d+\s*")
#: The seconds that a command waits for one table. The first publication of 100,000 partitions takes one or two minutes.
TABLE_SECONDS = 600.0
#: The refs of a selection that are printed before anything is done.
SHOWN_REFS = 5


class Count(click.IntRange):
    """A whole number from `min` on, as a database holds it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not _WHOLE_NUMBER.fullmatch(str(value)):
            self.fail(f"{value!r} is no whole number.", param, ctx)
        number: int = super().convert(value, param, ctx)
        if number > MAX_COUNT:
            self.fail(f"{value} is too large; write at most {MAX_COUNT}.", param, ctx)
        return number


class States(click.ParamType[frozenset[str]]):
    """States with commas between them, any of which matches."""

    name = "states"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        words = [word.strip().lower() for word in value.split(",")]
        if unknown := [word for word in words if word not in SELECTABLE]:
            self.fail(f"{unknown[0]!r} is no state; write one or more of {','.join(SELECTABLE)}.", param, ctx)
        return frozenset(words)


class StateWord(click.Choice[str]):
    """A state in words with dashes between them, or by its stored name: `upstream-failed` is "UpstreamFailed"."""

    def __init__(self, states: Sequence[str]) -> None:
        self._states = {state_in_words(state).replace(" ", "-"): state for state in states}
        super().__init__(tuple(self._states), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        plain = {word.replace("-", ""): word for word in self._states}
        return self._states[super().convert(plain.get(str(value).replace("-", "").lower(), value), param, ctx)]


@dataclass(frozen=True)
class Selection:
    """Refs as a user names them: `ASSET@KEY`, `ASSET@FROM..TO`, `ASSET@*`, and states (rule 2.5)."""

    names: tuple[Ref, ...]
    only: frozenset[str]

    def refs(self, queries: Queries) -> tuple[Ref, ...]:
        """The refs; refs of a range or of states are printed first. Raises what `select_refs` raises."""
        found = refs_of_names(queries, the_instance, self.names, self.only)
        return found if found == self.names else printed(found)


def names_to_pause(queries: Queries, names: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Refs and whole assets; the refs of a range are printed first. Raises what `select_names` raises."""
    found = select_names(queries, the_instance, names)
    return found if found == names else printed(found)


def printed(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """The same refs, of which the first are printed."""
    say(f"Selected {count(len(refs), 'ref')}: {shown(refs, SHOWN_REFS)}.")
    return refs


def one_by_one(subjects: Sequence[T], *, as_json: bool, titled: bool = False) -> Iterator[T]:
    """Each subject of several answers: an empty line is between two of them, and a title above if asked for.

    With `as_json` each answer is a line, and nothing is between them.
    """
    for place, subject in enumerate(subjects):
        if place and not as_json:
            click.echo("")
        if titled and len(subjects) > 1 and not as_json:
            click.secho(str(subject), bold=True)
        yield subject


def selection(function: F | None = None, *, required: bool = True, metavar: str | None = None) -> Any:
    """REFS and --only, passed on together as `selection`."""
    if function is None:
        return lambda function: selection(function, required=required, metavar=metavar)

    @wraps(function)
    def wrapped(*args: Any, refs: tuple[Ref, ...], only: frozenset[str], **options: Any) -> Any:
        return function(*args, selection=Selection(refs, only), **options)

    wrapped.__doc__ = f"{function.__doc__}\n\n    REFS are ASSET@KEY, ASSET@FROM..TO, ASSET@* or ASSET."
    option = click.option(
        "--only",
        type=States(),
        default=frozenset(),
        metavar="STATE[,STATE]",
        help=f"Only REFS in one of these states: {', '.join(SELECTABLE)}.",
    )
    return click.argument("refs", type=REF, nargs=-1, required=required, metavar=metavar)(option(wrapped))


class Instant(click.ParamType[float | None]):
    """A time with an offset, such as 2026-11-21T14:00:00+01:00, as seconds since 1970 UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        if value is None or isinstance(value, float | int):
            return value
        try:
            return self.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def read(self, text: str) -> float | None:
        """Raises `ValueError` with a sentence."""
        return time_of(text)


class Duration(Instant):
    """A duration, 90s, 15m, 12h or 7d, as seconds; `none` is None."""

    name = "duration"

    def read(self, text: str) -> float | None:
        return seconds_of(text)


INSTANT, DURATION = Instant(), Duration()
_OF_KIND: dict[str, dict[str, Any]] = {
    "number": {"type": int, "show_default": True},
    "flag": {"is_flag": True},
    "duration": {"type": DURATION},
    "time": {"type": INSTANT, "metavar": "TIME"},
}


def asked(command: type[msgspec.Struct], *only: str) -> Callable[[F], F]:
    """An option for each field of a command that a person gives, or `only` for some; passed on together as `wanted`."""
    fields = asked_of(command, *only)

    def with_options(function: F) -> F:
        @wraps(function)
        def wrapped(*args: Any, **options: Any) -> Any:
            return function(*args, wanted={field.field: options.pop(field.field) for field in fields}, **options)

        for field in reversed(fields):
            more = _OF_KIND.get(field.kind, {}) | ({"show_default": field.shown_default} if field.shown_default else {})
            names, sentence = (f"--{field.name.replace('_', '-')}", field.field), field.sentence.format(refs="REFS")
            wrapped = click.option(*names, default=field.default, help=sentence, **more)(wrapped)
        return wrapped  # type: ignore[return-value]

    return with_options


class FromNow(Instant):
    """A time with an offset, or its distance from now (90s, 15m, 12h, 7d), as seconds since 1970 UTC.

    `direction` is -1 for a distance into the past, and 1 into the future: then a time that has passed is refused.
    """

    def __init__(self, direction: int) -> None:
        self._direction = direction

    def read(self, text: str) -> float | None:
        return time_from(text, time.time(), self._direction)


#: Of --since and --until of what happened, and of the end of what begins.
PAST, FUTURE = FromNow(-1), FromNow(1)


def table_timeout(function: F) -> F:
    """--timeout of a command that asks the catalogs and storages of published tables, which may never answer."""
    return click.option(
        "--timeout",
        type=DURATION,
        default=TABLE_SECONDS,
        metavar="DURATION",
        help="How long to wait for a table: 90s, 10m (the default), or none.",
    )(function)


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
    is_seq = text is not None and text.isdecimal() and len(text) <= len(str(MAX_COUNT))
    return moment_of(queries, int(text) if text and is_seq else text, datetime.now(UTC))


class Where(NamedTuple):
    """Which definitions to load, as the user named them."""

    modules: tuple[str, ...]
    files: tuple[str, ...]
    workspaces: tuple[str, ...]
    location: str | None

    @property
    def named(self) -> bool:
        return bool(self.modules or self.files or self.workspaces)


#: The options of `dagster` that name definitions, in the order of `Where`, with their help.
DEFINITION_OPTIONS = {
    ("-m", "--module-name", "modules"): "A module with definitions.",
    ("-f", "--python-file", "files"): "A file with definitions.",
    ("-w", "--workspace", "workspaces"): "A workspace file.",
}


def definitions(function: F) -> F:
    """-m, -f, -w and --location, as `dagster` has them; passed on together as `where`."""

    @wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        where = Where(*(options.pop(name) for name in Where._fields))
        return function(*args, where=where, **options)

    for option in (
        click.option("--location", help="The code location, if there are several."),
        *(click.option(*names, multiple=True, help=says) for names, says in reversed(DEFINITION_OPTIONS.items())),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
