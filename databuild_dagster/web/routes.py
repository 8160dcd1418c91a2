"""A url of the API, and a page: the rows of their tables, and the pieces that several rows share.

The tables of all rows are `api.routes()` and `pages.pages()`: the core's rows, and the features' rows.

A url may answer questions of the page Plan, which shows all answers in the same layout. The core asks what a build does. A feature
adds questions on the row of its url, with the effects that only they have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.records import error_as_json
from databuild_dagster.web.parameters import MAX_SEQ, Parameter, number, text
from databuild_dagster.web.refusals import names_a_place

if TYPE_CHECKING:
    from databuild_dagster.web.state import State


class Head(msgspec.Struct, frozen=True):
    """An event of the log, by default its end; `seq` is 0 for an empty log."""

    seq: int
    at: str | None


@dataclass(frozen=True)
class ApiRoute:
    """A url below /databuild/api/v1, for GET only."""

    path: str
    summary: str
    function: Callable[..., Any]
    #: The type of the answer.
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    is_stream: bool = False
    #: The questions of the page Plan that it answers.
    plan: PlanQuestions | None = None


AS_OF: Final = number("as_of", "The seq of the last event that counts. By default all count.", None, 1, MAX_SEQ)
INSTANCE: Final = text("instance", "The uuid, or its end.", required=True)


class Ask(Protocol):
    """A question to the API by the name of its route."""

    def __call__(self, name: str, /, **values: Any) -> Any: ...

    def has(self, name: str, /) -> bool:
        """Whether the API has the route; the routes of an absent feature are missing."""
        ...


@dataclass(frozen=True)
class Page:
    """A page."""

    path: str
    template: str
    show: Callable[[Ask, dict[str, Any]], dict[str, Any]]
    parameters: tuple[Parameter, ...] = ()
    #: The word of its entry in the navigation; empty for a page that only other pages link to.
    entry: str = ""
    #: The page after whose entry its own stands; by default the entries stand in the order of the pages.
    entry_after: str = ""
    #: The page whose entry is marked while this page is shown; by default its own.
    below: str = ""
    #: The folder of its template, for a page of a feature.
    folder: Path | None = None
    #: Whether the build state has something for it; without that the navigation leaves it out.
    is_offered: Callable[[State], bool] = lambda state: True


class Mark(NamedTuple):
    """A line on every page about the build state that the pages show: a link, words, and a time."""

    title: str
    path: str
    words: str
    at: str | None


#: The mark of a build state; None for a state without it.
MakeMark = Callable[["State"], Mark | None]


class Probe(NamedTuple):
    """A url below /databuild that reports in JSON whether the web server is well, with a status of its own."""

    path: str
    #: It answers within a bound, from the loop of the server: the threads of pages may all be waiting for the state.
    ask: Callable[[State], Awaitable[tuple[Any, HTTPStatus]]]


def parameters_of(routes: Iterable[ApiRoute], path: str, *, without: Iterable[str] = ()) -> tuple[Parameter, ...]:
    """The parameters of a url, for the page that shows its answer."""
    (route,) = [route for route in routes if route.path == path]
    return tuple(parameter for parameter in route.parameters if parameter.name not in set(without))


def or_error(question: Callable[[], Any]) -> tuple[Any, Mapping[str, str] | None]:
    """The answer, or the error of a part of a page that can be shown without it."""
    try:
        return question(), None
    except DatabuildError as error:
        if names_a_place(error):
            raise
        return None, error_as_json(error)


@dataclass(frozen=True)
class Switch:
    """A parameter of the url that is on or off, and the words beside its box."""

    parameter: Parameter
    words: str


@dataclass(frozen=True)
class PlanQuestion:
    """A question, as the form of the page names it."""

    name: str
    words: str
    #: A line about the answer, for a person who has not asked yet.
    explanation: str
    #: The command with the same answer, before the refs: `databuild plan`.
    command: str
    #: Parameters of the url that ask it, beside `ref`.
    values: Mapping[str, str] = field(default_factory=dict)
    switches: tuple[Switch, ...] = ()


class EffectOnPage(NamedTuple):
    """An effect on a ref: its name in the answer, its word, and the mark that colours it."""

    name: str
    words: str
    mark: str


class Row(NamedTuple):
    """A ref of an answer."""

    ref: str
    job: str
    effect: str
    reason: str


@dataclass(frozen=True)
class PlanQuestions:
    """The questions that a url answers, and how its answer becomes rows."""

    questions: tuple[PlanQuestion, ...]
    effects: tuple[EffectOnPage, ...]
    rows: Callable[[Any], list[Row]]
