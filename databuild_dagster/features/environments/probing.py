"""A root on a disk, read by an orchestrator of a base in PostgreSQL: only then the base takes data there (rule 16.10).

Other hosts read such a base, and a path may be a different folder on each. `env create` leaves a file in the root, and a tick of the
base that finds the file records it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.records import Opened, note_seen, opened_in, seen_in
from databuild_dagster.warehouse.storage import protocol_of

if TYPE_CHECKING:
    from databuild_dagster.bindings.orchestration.duties import Work

#: In the root, where no asset has a folder; it has the id of the opening.
PROBE_NAME: Final = ".databuild.probe"


class _Looked:
    """What this process knows of the roots."""

    def __init__(self) -> None:
        #: The last event when the records were read.
        self.head = -1
        self.unseen: list[Opened] = []


def leave_probe(opened: Opened) -> None:
    """Leave the file in a root on a disk. Raises `OSError`."""
    if protocol_of(opened.root) is None:
        Path(opened.root, PROBE_NAME).write_text(opened.id)


def is_seen(base: Engine, opened: Opened) -> bool:
    """Whether each process that reads a base can read a root: it is in a bucket, on the only host of the base, or was read by its tick."""
    return (
        base.store.path is not None
        or protocol_of(opened.root) is not None
        or seen_in(base.store).get(opened.name) == opened.id
    )


def look_for_probes(engine: Engine, head: int, *, is_orchestrator: bool) -> None:
    """Record which roots on a disk this process of a base in PostgreSQL can read.

    A tick by hand proves nothing on the host that opened the environment: it may be a laptop. `head` is the last event.
    """
    if engine.store.path is not None:
        return
    looked = engine.memory.of(_Looked, _Looked)
    if looked.head != head:
        opened = opened_in(engine.store).values()
        seen = seen_in(engine.store) if opened else {}
        looked.unseen = [
            one
            for one in opened
            if protocol_of(one.root) is None and not one.is_closing and seen.get(one.name) != one.id
        ]
        looked.head = head
    for one in looked.unseen:
        if (is_orchestrator or not one.is_of_this_host) and _reads(one):
            note_seen(engine, one)


def _reads(opened: Opened) -> bool:
    with suppress(OSError, UnicodeDecodeError):
        return Path(opened.root, PROBE_NAME).read_text() == opened.id
    return False


def in_tick(work: Work) -> None:
    """The duty of a tick. The tick of a build is no orchestrator's."""
    if work.serving is None:
        look_for_probes(work.engine, work.head, is_orchestrator=work.interval_seconds > 0)
