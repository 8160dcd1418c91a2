"""Which lots became available, read off the log: one for each instance that became live, by seq (SPEC 10.3).

Success is one append, so the event that has an instance live is what publishes it. An instance that is live again,
because a taint was taken back or somebody went back to it, was published before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

from databuild_dagster.engine.follower import MAX_EVENTS
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.touched import touched_refs
from databuild_dagster.store.queries.queries import Queries

#: Events by which instances become live.
PUBLISHING = ("JobRunSucceeded", "LotArrived")
#: How often a following reader looks for news; an idle look costs microseconds.
FOLLOW_SECONDS = 0.5


class Publication(NamedTuple):
    """An instance that became live."""

    seq: int
    at: float
    dataset: str
    ref: Ref
    uuid: str
    #: Where its manifest lies; None for what has its data in a place of its own.
    manifest: str | None
    #: "complete", or "empty": on purpose without data.
    state: str


def published_by(event: e.Event) -> Iterator[Publication]:
    """The instances that an event has live."""
    for job_run_id, ref, manifest in touched_refs(event).published:
        yield Publication(
            seq=event.seq,
            at=event.at,
            dataset=asset_of(ref),
            ref=ref,
            uuid=derive_partition_uuid(job_run_id, ref),
            manifest=None if manifest is None else manifest.uri,
            state="complete" if manifest is None else manifest.state,
        )


def publications(queries: Queries, after_seq: int, last_seq: int) -> list[Publication]:
    """Those within a stretch of the log, but for what a taint that goes downstream took with the same event (SPEC 7.3)."""
    found = [each for event in queries.events_named(PUBLISHING, after_seq, last_seq) for each in published_by(event)]
    never_seen = queries.tainted_at_birth(each.uuid for each in found)
    return [each for each in found if each.uuid not in never_seen]


def published_stretches(queries: Queries, after_seq: int, *, follow: bool) -> Iterator[tuple[int, list[Publication]]]:
    """(up to which event, what became live), to the end of the log or beyond."""
    pause = threading.Event()
    while True:
        head = queries.head().seq
        while after_seq < head:
            last_seq = min(head, after_seq + MAX_EVENTS)
            yield last_seq, publications(queries, after_seq, last_seq)
            after_seq = last_seq
        if not follow:
            return
        pause.wait(FOLLOW_SECONDS)
