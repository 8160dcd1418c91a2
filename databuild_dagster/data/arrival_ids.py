"""The id of an arrival's job run, made of what arrives: whoever looks again writes the same manifest at the same place.

A manifest is written before its event, so who is killed in between leaves one that nobody has been told of (SPEC 10.2).
Were its id made by chance, the next look would write another, and nobody could say whose the first one is. Made of the
log it is for, of what readers saw when it was decided, and of the manifest itself, it says all of that: the next look
takes it up, and once its lot has another instance it can never become one, for an arrival decided about another lot is
refused (`CanonicalMoved`). Then it is what an attempt has left, and goes with that (SPEC 10.8).
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.manifest import Manifest, manifest_text

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def arrival_id(began: tuple[float, str], manifest: Manifest, seen: str | None) -> str:
    """A UUIDv7 of the moment a log began: 48 bits of milliseconds, and 74 of sha256 over what arrives.

    `began` is the log's `beginning`, `seen` the uuid of what was canonical. Which ids the manifest has, and when it was
    made, does not count.
    """
    at, log = began
    same = msgspec.structs.replace(manifest, job_run="", instance_uuid="", created_at=_NEVER)
    text = sha256("\n".join((log, seen or "", manifest_text(same))).encode()).hexdigest()
    variant = "89ab"[int(text[15], 16) % 4]
    milliseconds = f"{int(at * 1000):012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7{text[:3]}-{variant}{text[3:6]}-{text[16:28]}"


def is_the_same_arrival(one: Manifest, other: Manifest) -> bool:
    """But for when each was written."""
    return msgspec.structs.replace(one, created_at=other.created_at) == other


def decided_about(queries: Queries, manifest: Manifest) -> tuple[bool, str | None]:
    """Whether a manifest is of an arrival that this log was to be told of, and what its lot had then.

    (False, None) for what somebody else has written.
    """
    began = queries.beginning()
    for seen in (None, *(each.uuid for each in queries.history(manifest.ref))):
        if arrival_id(began, manifest, seen) == manifest.job_run:
            return True, seen
    return False, None
