"""One url of the API, and one page: the rows of their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.shapes.fields import error_as_json
from databuild_dagster.web.parameters import Parameter


@dataclass(frozen=True)
class ApiRoute:
    """One url below /databuild/api/v1, which is only read."""

    path: str
    summary: str
    function: Callable[..., Any]
    #: The type of the answer.
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    is_stream: bool = False


class Ask(Protocol):
    """A question to the API by the name of its route."""

    def __call__(self, name: str, /, **values: Any) -> Any: ...


@dataclass(frozen=True)
class Page:
    """One page."""

    path: str
    template: str
    show: Callable[[Ask, dict[str, Any]], dict[str, Any]]
    parameters: tuple[Parameter, ...] = ()


def or_error(question: Callable[[], Any]) -> tuple[Any, Mapping[str, str] | None]:
    """The answer, or the error of a part of a page that can be shown without it."""
    try:
        return question(), None
    except DatabuildError as error:
        return None, error_as_json(error)
