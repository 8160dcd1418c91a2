"""How the process of a command prints and ends: its exit codes, and its own streams while assets run in it (rules 15)."""

from __future__ import annotations

import codecs
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

#: Something wanted failed, or a check found something.
FAILED = 1
#: Refused, or bad usage.
REFUSED = 2
#: The server of the build state or of Dagster was away, silent or busy; as EX_TEMPFAIL of sysexits.h.
AWAY = 75
#: Ctrl-C, or SIGTERM.
INTERRUPTED = 130

#: ASCII by another name: click writes UTF-8 to a stream of ASCII, which it takes for a mistake.
_ASCII = "databuild_ascii"

#: The logger of this package.
_log = logging.getLogger("databuild_dagster")
#: The terminal, while stdout and stderr go to a file.
_screens: list[Console] = []


class Exit(Exception):
    """Leave with an exit code, everything that there was to say being said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Stopped(Exception):
    """`__cause__` ended a command that had begun its work, which is a failure and no refusal."""


def replace_what_streams_cannot_show() -> None:
    """Print a question mark for each character that the encoding of stdout or stderr lacks, in every command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if is_ascii else None, errors="replace")


class OutputLost(OSError):
    """stdout takes nothing more; the message says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"stdout cannot be written: {error.strerror}.")
        #: As with `| head`: the reader has seen enough.
        self.is_by_reader = isinstance(error, BrokenPipeError)


class _Stream(io.TextIOWrapper):
    """stdout or stderr, which is /dev/null after its first error. That of stdout is raised as `OutputLost`.

    A build does not end because a line of its progress is lost.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._end(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        if self is sys.stdout:
            raise OutputLost(error) from error


def guard_streams() -> None:
    """Make stdout and stderr `_Stream`s, and closed ones /dev/null: the store's file would get their descriptor."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
        elif number and isinstance(stream, io.TextIOWrapper):
            encoding, errors, is_lined = stream.encoding, stream.errors, stream.line_buffering
            setattr(sys, name, _Stream(stream.detach(), encoding, errors, line_buffering=is_lined))


@codecs.register
def _ascii_of_terminals(name: str) -> codecs.CodecInfo | None:
    if name != _ASCII:
        return None
    known = codecs.lookup("ascii")
    return codecs.CodecInfo(
        known.encode,
        known.decode,
        incrementalencoder=known.incrementalencoder,
        incrementaldecoder=known.incrementaldecoder,
        name=_ASCII,
    )


def heed_interrupts() -> None:
    """Let SIGTERM end a command as Ctrl-C does. The first process of a container would ignore it otherwise.

    A shell lets commands in the background ignore Ctrl-C. Dagster then ignores SIGTERM too, and so does `Alarm`: so they heed both.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def heed_no_more_interrupts() -> None:
    """One Ctrl-C is enough: those that follow would cut short how the process takes its leave."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


class Alarm:
    """Interrupts the main thread once, as Ctrl-C does, so that what runs there ends in the same way, and names the time-out."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.has_rung = False
        self._is_off = False
        self._lock = threading.Lock()
        self._timer = None if seconds is None else threading.Timer(seconds, self._ring)

    def __enter__(self) -> Alarm:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_off = True

    def _ring(self) -> None:
        # Under the lock: after the end of the block no signal comes.
        with self._lock:
            if not self._is_off:
                self.has_rung = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                say(f"The --timeout of {self.seconds:g} s has passed.")


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
        _screens[-1].print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        click.echo(text, err=True)


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
