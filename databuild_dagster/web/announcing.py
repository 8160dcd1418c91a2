"""The web server announces where its pages are, so that builders link to them, now and every hour."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import ANNOUNCE_EVERY_SECONDS, note_pages
from databuild_dagster.model.logs import log_failure, logger

_logger = logger(__name__)


def announce_pages(open_engine: Callable[[], Engine], root: str) -> None:
    """Announce pages at a path until the process ends; a store in trouble is a line in the log, and is tried again."""
    Thread(target=_announce, args=(open_engine, root), name="databuild-announce", daemon=True).start()


def _announce(open_engine: Callable[[], Engine], root: str) -> None:
    while True:
        try:
            note_pages(open_engine(), root)
        except Exception as error:
            log_failure(_logger, "the pages could not be announced, so Dagster's pages get no links to them", error)
        time.sleep(ANNOUNCE_EVERY_SECONDS)
