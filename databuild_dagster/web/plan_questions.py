"""The questions of the page Plan as rows: a url of the API answers them, and the page shows all answers in one layout.

The core asks what a build does. A feature adds questions on the row of its url, with the effects that only they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from databuild_dagster.web.parameters import Parameter


@dataclass(frozen=True)
class Switch:
    """A parameter of the url that is on or off, and the words beside its box."""

    parameter: Parameter
    words: str


@dataclass(frozen=True)
class PlanQuestion:
    """One question, as the form of the page names it."""

    name: str
    words: str
    #: One line about the answer, for a person who has not asked yet.
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
    """One ref of an answer."""

    ref: str
    job: str
    effect: str
    reason: str


@dataclass(frozen=True)
class PlanQuestions:
    """The questions that one url answers, and how its answer becomes rows."""

    questions: tuple[PlanQuestion, ...]
    effects: tuple[EffectOnPage, ...]
    rows: Callable[[Any], list[Row]]
