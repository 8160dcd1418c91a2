"""What a person reads, also while assets run in this process, and where that which others print goes meanwhile (rules 15)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from databuild_dagster.model.wording import in_environment

if TYPE_CHECKING:
    from rich.console import Console

#: The logger of this package.
_log = logging.getLogger("databuild_dagster")
#: The terminal, while stdout and stderr go to a file.
_screens: list[Console] = []
#: The environment of the option --env: the shell does not know it.
_environment: str | None = None


def print_for(environment: str | None) -> None:
    """Let the commands in what this process prints from now on name an environment; None for those of its shell."""
    global _environment
    _environment = environment


@contextmanager
def printing_data() -> Iterator[None]:
    """Print texts as they are within: rows are no messages of ours."""
    global _environment
    environment, _environment = _environment, None
    try:
        yield
    finally:
        _environment = environment


def printed(text: str) -> str:
    """A text as people get it; JSON is for programs, and stays as it is."""
    return text if _environment is None or text.startswith(("{", "[", '"')) else in_environment(text, _environment)


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send to stderr what assets, or Dagster for them, print within: stdout is for the answer."""
    with _redirected((sys.stdout,), sys.stderr):
        yield


@contextmanager
def printing_to_file(path: Path) -> Iterator[None]:
    """Send to a file what this process and its children print within; `say` still prints on the terminal.

    Warnings of this package are on the terminal too, unlike those of others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _OnScreen(logging.WARNING)
    with own_terminal() as terminal, path.open("a", encoding="utf-8", errors="replace") as file:
        _screens.append(terminal)
        _log.addHandler(handler)
        try:
            with _redirected((sys.stdout, sys.stderr), file):
                yield
        finally:
            _log.removeHandler(handler)
            _screens.remove(terminal)


def screen() -> Console:
    """The terminal, or the stream, that a person reads: also while stderr goes to a file."""
    from rich.console import Console

    return _screens[-1] if _screens else Console(stderr=True)


def say(text: str) -> None:
    """A line on stderr, or on the terminal while stderr goes to a file."""
    if _screens:
        _screens[-1].print(printed(text), markup=False, highlight=False, soft_wrap=True)
    else:
        click.echo(text, err=True)


def warn(sentences: Iterable[str]) -> None:
    """A line for each warning."""
    for sentence in sentences:
        say(f"Warning: {sentence}")


class _OnScreen(logging.Handler):
    """The sentence on the terminal, and all of it, such as a traceback, in the file."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
        print(self.format(record), file=sys.stderr)


@contextmanager
def _redirected(streams: Sequence[TextIO], target: TextIO) -> Iterator[None]:
    """By the file descriptor, for Dagster starts processes that print what a step has printed."""
    try:
        numbers, to = [stream.fileno() for stream in streams], target.fileno()
    except OSError:
        # A caller replaced the streams, and reads the replacement.
        yield
        return
    for stream in streams:
        stream.flush()
    kept = [os.dup(number) for number in numbers]
    for number in numbers:
        os.dup2(to, number)
    try:
        yield
    finally:
        for stream, number, copy in zip(streams, numbers, kept, strict=True):
            stream.flush()
            os.dup2(copy, number)
            os.close(copy)


@contextmanager
def own_terminal() -> Iterator[Console]:
    """The terminal on stderr, by a descriptor of our own: while a step runs, Dagster has the usual one go to a file."""
    from rich.console import Console

    try:
        own = os.dup(sys.stderr.fileno())
    except OSError:
        yield Console(stderr=True)
        return
    with os.fdopen(own, "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors) as terminal:
        yield Console(file=terminal)
