"""The thread that beats (rule 6.9)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from databuild_dagster.engine.judge import HEARTBEAT_SECONDS
from databuild_dagster.engine.launch_heartbeat import WATCH_SECONDS, Beating

#: Turns of the thread between two heartbeats.
BETWEEN = int(HEARTBEAT_SECONDS / WATCH_SECONDS)


class Turns:
    """In place of the event that ends the thread: so many turns, without waiting."""

    def __init__(self, n: int) -> None:
        self._left = iter(range(n))

    def wait(self, seconds: float) -> bool:
        return next(self._left, None) is None


def beaten(outcomes: Iterable[bool], n_turns: int) -> int:
    """How often a thread has tried to beat in so many turns; the outcomes say which attempts succeed."""
    following, tries = iter(outcomes), []

    def beat() -> None:
        tries.append(1)
        if not next(following):
            raise OSError("the server is away")

    beating = Beating("launch 7", beat, lambda: None)
    beating._done = Turns(n_turns)
    beating._live()
    return len(tries)


def test_a_heartbeat_that_failed_is_tried_again_at_the_next_turn():
    """Rule 6.9: an outage of a few seconds leaves the lease whole."""
    assert beaten([True, True], 2 * BETWEEN) == 2
    assert beaten([False, False, True], BETWEEN + 2) == 3


def test_a_store_that_is_away_is_one_sentence(caplog):
    with caplog.at_level(logging.WARNING):
        beaten([False] * 20, BETWEEN + 19)

    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "databuild: the heartbeat of launch 7 failed; it is tried again every 2 s, and its lease ends after 30 s of silence: "
        "OSError: the server is away"
    )
