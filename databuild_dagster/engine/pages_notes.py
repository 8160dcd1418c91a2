"""Where the pages of databuild are, as the web server that has them announces it; builders link to them.

The note is beside the heartbeats, outside the log. It is a path without a host: a person reads a link in Dagster's pages, which
are at the same address.
"""

from __future__ import annotations

from math import inf
from typing import Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import KEEP_SECONDS

#: A web server announces its pages this often.
ANNOUNCE_EVERY_SECONDS: Final = 3600.0
#: A process looks for the last announcement this often.
LOOK_EVERY_SECONDS: Final = 60.0
#: Begins the name of a web server's heartbeat; the path is the rest, because a heartbeat has no other text.
_PAGES: Final = "pages at "

_NEVER: tuple[float, str | None] = (-inf, None)


def note_pages(engine: Engine, root: str) -> None:
    """Announce that a web server has the pages at a path, such as `/prefix/databuild`."""
    engine.heartbeats.beat([_PAGES + root], engine.clock())


def pages_root(engine: Engine) -> str | None:
    """The path that was announced last, within `KEEP_SECONDS`; None if no web server has pages. A minute old at most."""
    now = engine.steady()
    looked_at, root = engine.memory.of(pages_root, lambda: _NEVER)
    if now - looked_at >= LOOK_EVERY_SECONDS:
        root = _announced(engine)
        engine.memory.put(pages_root, (now, root))
    return root


def _announced(engine: Engine) -> str | None:
    """Scans all heartbeats."""
    name = engine.heartbeats.newest(_PAGES)
    if name is None or engine.heartbeats.last([name]).get(name, 0.0) < engine.clock() - KEEP_SECONDS:
        return None
    return name.removeprefix(_PAGES)
