"""Exceptions whose classes raise while Python, Dagster or a log prints them. Each holds the secret `token=MaRk` or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class TextThatExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NoTextEither(Exception):
    def __str__(self) -> str:
        raise NoText


class OddFields(Exception):
    """Python asks each exception for its notes before it prints it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class OddNotes(Exception):
    __notes__ = [1, None]


@dataclass(frozen=True)
class Frozen(Exception):
    """Python and we assign to the fields of an exception."""

    token: str = "token=MaRk"


def _caused_by(cause: Exception) -> Exception:
    found = ValueError("behind")
    found.__cause__ = cause
    return found


#: Partition key to the exception that a function raises for it.
ODD: dict[str, Callable[[], Exception]] = {
    "text": NoText,
    "exit": TextThatExits,
    "text_of_text": NoTextEither,
    "fields": OddFields,
    "notes": OddNotes,
    "frozen": Frozen,
    "argument": lambda: ValueError(NoText()),
    "cause": lambda: _caused_by(OddFields("token=MaRk")),
    "group": lambda: ExceptionGroup("two", [OddFields("token=MaRk"), NoText()]),
}
