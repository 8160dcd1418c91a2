"""The id of an arrival's job run, made of the arriving files: a repeated look writes the same manifest at the same path.

A manifest is written before its event, so a killed process leaves a manifest that the log does not have (rule 10.2). With a
random id the next look would write a second manifest, and the first would have no owner. The id hashes the log, the canonical
instance at the decision, and the manifest: the next look finds the manifest and continues. Once its lot has a newer
instance, the manifest's event is refused (`CanonicalMoved`), and the next clean-up removes the manifest (rule 10.8).
"""

from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.manifest import Manifest, manifest_text

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def arrival_id(began: tuple[float, str], manifest: Manifest, seen: str | None) -> str:
    """A UUIDv7 of the moment a log began: 48 bits of milliseconds, and 74 of sha256 over the arrival.

    `began` is the log's `beginning`, `seen` the uuid of the canonical instance. The manifest's ids and time do not count.
    """
    at, log = began
    same = msgspec.structs.replace(manifest, job_run="", instance_uuid="", created_at=_NEVER)
    text = sha256("\n".join((log, seen or "", manifest_text(same))).encode()).hexdigest()
    variant = "89ab"[int(text[15], 16) % 4]
    milliseconds = f"{int(at * 1000):012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7{text[:3]}-{variant}{text[3:6]}-{text[16:28]}"


def is_the_same_arrival(one: Manifest, other: Manifest) -> bool:
    """Whether two manifests differ at most in the time of writing."""
    return msgspec.structs.replace(one, created_at=other.created_at) == other


def decided_about(queries: Queries, manifest: Manifest) -> tuple[bool, str | None]:
    """Whether a manifest is of an arrival of this log, and the canonical instance of its lot at the decision.

    (False, None) for a manifest that a different program or log made.
    """
    began = queries.events.beginning()
    for seen in (None, *(instance.uuid for instance in queries.instances.history(manifest.ref))):
        if arrival_id(began, manifest, seen) == manifest.job_run:
            return True, seen
    return False, None
