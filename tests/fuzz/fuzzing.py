"""Inputs become findings: those of the corpus first, then inputs that a seed makes.

An input is a JSON value, so that a line of `corpus/TARGET.jsonl` keeps it. An input that a target refuses to survive is
appended there, and every later run begins with it. The number of an input and the seed of a run make the input again.
"""

from __future__ import annotations

import json
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

HERE = Path(__file__).parent
#: No input may take longer.
MAX_SECONDS = 60
#: Characters of an input that a report shows.
MOST_SHOWN = 2000


class Fed(Protocol):
    """A target that is ready to take inputs."""

    def make(self, random: Random) -> Any:
        """An input: a JSON value."""

    def feed(self, given: Any) -> None:
        """Take an input. Any exception that leaves this method is a finding."""


class Target(Protocol):
    """A module for one door of the package."""

    NAME: str
    #: Inputs that CI makes, besides the corpus.
    N_IN_CI: int

    def ready(self, folder: Path) -> AbstractContextManager[Fed]:
        """The target with its state in an empty folder."""


class Finding(NamedTuple):
    """An input that ended otherwise than documented."""

    target: str
    #: Such as "corpus line 3" or "input 17 of seed 5".
    which: str
    given: Any
    #: The end of the traceback.
    why: str

    def __str__(self) -> str:
        shown = json.dumps(self.given)
        cut = f"{shown[:MOST_SHOWN]}… ({len(shown):,} characters)" if len(shown) > MOST_SHOWN else shown
        return f"{self.target}, {self.which}: {cut}\n{self.why}"


class TooSlow(AssertionError):
    """An input took longer than MAX_SECONDS."""


def corpus(target: str, folder: Path = HERE / "corpus") -> list[Any]:
    """The inputs that are kept for a target."""
    path = folder / f"{target}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(finding: Finding, folder: Path = HERE / "corpus") -> None:
    """Append the input to the corpus, once."""
    if finding.given not in corpus(finding.target, folder):
        folder.mkdir(exist_ok=True)
        with (folder / f"{finding.target}.jsonl").open("a") as file:
            file.write(f"{json.dumps(finding.given)}\n")


def replay(target: str, fed: Fed, folder: Path = HERE / "corpus") -> Iterator[Finding]:
    """Feed the corpus; yields what it finds."""
    for number, given in enumerate(corpus(target, folder), 1):
        yield from _feed(target, fed, given, f"corpus line {number}")


def fuzz(target: str, fed: Fed, seed: int, *, n: int | None = None, seconds: float | None = None) -> Iterator[Finding]:
    """Feed `n` inputs of a seed, or as many as there is time for; yields what they find."""
    until = None if seconds is None else time.monotonic() + seconds
    number = 0
    while (n is None or number < n) and (until is None or time.monotonic() < until):
        given = input_of(fed, seed, number)
        yield from _feed(target, fed, given, f"input {number} of seed {seed}")
        number += 1


def input_of(fed: Fed, seed: int, number: int) -> Any:
    """An input depends on the seed and its number alone."""
    return fed.make(Random(f"{seed}/{number}"))


def _feed(target: str, fed: Fed, given: Any, which: str) -> Iterator[Finding]:
    try:
        with _bounded():
            fed.feed(given)
    except (Exception, SystemExit):
        yield Finding(target, which, given, "".join(traceback.format_exc().splitlines(keepends=True)[-12:]))


@contextmanager
def _bounded() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlow(f"no end within {MAX_SECONDS} s")

    handler = signal.signal(signal.SIGALRM, ring)
    # pytest-timeout uses the same timer.
    timer = signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
