"""How the process of a command ends: its exit codes, and streams that break (rules 15)."""

import codecs
import io
import os
import signal
import sys

from databuild_dagster.calls.streams import printed

#: Something wanted failed, or a check found something.
FAILED = 1
#: Refused, or bad usage.
REFUSED = 2
#: The database of the build state or of Dagster, the object store or Spark was away; as EX_TEMPFAIL of sysexits.h.
AWAY = 75
#: Ctrl-C, or SIGTERM.
INTERRUPTED = 130

#: ASCII by another name: click writes UTF-8 to a stream of ASCII, which it takes for a mistake.
_ASCII = "databuild_ascii"


class Exit(Exception):
    """Leave with an exit code, everything that there was to say being said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


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
    """stdout or stderr, whose commands can be typed where they are read. It is /dev/null after its first error; that of stdout is
    raised as `OutputLost`.

    A build does not end because a line of its progress is lost.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(printed(text))
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
    """Make stdout and stderr `_Stream`s, and a closed stream /dev/null: the store's file would get its descriptor."""
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
