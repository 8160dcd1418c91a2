"""The publications of lots in the log, by seq: every instance that became live has a publication (rule 10.3).

The event that makes an instance live publishes it. An instance that is live again, after a canceled taint or a revert, was
published before; one that comes back in place of a build is published again.
"""

import threading
from collections.abc import Iterator
from typing import NamedTuple

from databuild_dagster.engine.follower import MAX_EVENTS
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.touched import touched_refs
from databuild_dagster.store.queries.queries import Queries

#: Events by which instances become live.
PUBLISHING = ("JobRunSucceeded", "LotArrived", "InstancesReturned", "InstancesPromoted")
#: Seconds between two looks of a following reader; an idle look takes microseconds.
FOLLOW_SECONDS = 0.5


class Publication(NamedTuple):
    """An instance that became live."""

    seq: int
    at: float
    dataset: str
    ref: Ref
    uuid: str
    #: The path of its manifest, as recorded until `publications` has it whole; None for data outside of any warehouse.
    manifest: str | None
    #: "complete", or "empty": on purpose without data.
    state: str
    #: The lot id; None for a partition that is no lot, and until `announced_lots` adds it.
    lot: str | None = None


def published_by(event: e.Event) -> Iterator[Publication]:
    """The instances that an event makes live."""
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
    """The publications in a stretch of the log, without instances that were born with a downstream taint (rule 7.3)."""
    events = queries.events.named(PUBLISHING, after_seq, last_seq)
    found = [
        publication._replace(manifest=queries.places.whole(publication.manifest))
        for event in events
        for publication in published_by(event)
    ]
    never_seen = queries.instances.tainted_at_birth(publication.uuid for publication in found)
    return [publication for publication in found if publication.uuid not in never_seen]


def published_stretches(queries: Queries, after_seq: int, *, follow: bool) -> Iterator[tuple[int, list[Publication]]]:
    """Pairs of the last event of a stretch and its publications, to the end of the log; with `follow`, without end."""
    pause = threading.Event()
    while True:
        head = queries.events.head().seq
        while after_seq < head:
            last_seq = min(head, after_seq + MAX_EVENTS)
            yield last_seq, publications(queries, after_seq, last_seq)
            after_seq = last_seq
        if not follow:
            return
        pause.wait(FOLLOW_SECONDS)
