"""Whose output goes where while assets run in this process: what they print to stderr, our answer to stdout (rules 15)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Send to stderr what assets, or Dagster for them, print within: stdout is for the answer.

    By the file descriptor, for Dagster starts processes that print what a step has printed.
    """
    try:
        out, err = sys.stdout.fileno(), sys.stderr.fileno()
    except OSError:
        # A caller replaced the streams, and reads the replacement.
        yield
        return
    sys.stdout.flush()
    kept = os.dup(out)
    os.dup2(err, out)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)


@contextmanager
def own_terminal() -> Iterator[Console]:
    """The terminal on stderr, by a descriptor of our own: while a step runs, Dagster has the usual one go to a file."""
    from rich.console import Console

    try:
        own = os.dup(sys.stderr.fileno())
    except OSError:
        yield Console(stderr=True)
        return
    with os.fdopen(own, "w", encoding=sys.stderr.encoding, errors="replace") as terminal:
        yield Console(file=terminal)
