"""The row of a url of the API, and the pieces that several rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from databuild_dagster.web.parameters import MAX_SEQ, Parameter, number, text


class HeadShape(TypedDict):
    """An event of the log, by default its end; `seq` is 0 for an empty log."""

    seq: int
    at: str | None


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


AS_OF: Final = number("as_of", "The seq of the last event that counts. By default all count.", None, 1, MAX_SEQ)
INSTANCE: Final = text("instance", "The uuid, or its end.", required=True)
