"""What readers of a ref see, and the pauses of refs, as JSON has them (rules 15, 6.13)."""

import time
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from databuild_dagster.engine.engine import Outcome
from databuild_dagster.model.commands import PausePartitions
from databuild_dagster.model.pauses import PauseInForce, names_of
from databuild_dagster.model.records import Time, extended, time_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import PauseRow
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.asking import MAX_SEQ
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import Taint
from databuild_dagster.store.queries.queries import Queries


class ShownCanonical(msgspec.Struct, frozen=True):
    """The instance that readers of a ref see, without its files."""

    uuid: str
    state: InstanceState
    job_run: str | None
    rows: int | None
    bytes: int | None
    origin: str | None
    retry_at: Time | None
    previous_uuid: str | None
    #: Null without a previous instance.
    previous_was_live: bool | None
    why: str | None
    stale: bool
    waits_for: Sequence[Ref]
    taints: Sequence[Taint]
    live_since: Time | None
    n_files: int
    inputs: Sequence[str]


class Pause(msgspec.Struct, frozen=True):
    """A pause; `until` is null without an end."""

    reason: str
    actor: str
    paused_at: Time
    until: Time | None


def canonical_shape(
    queries: Queries, canonical: Canonical, seq: int | None, *, most_inputs: int | None = None
) -> ShownCanonical:
    """The canonical instance of a ref, which must not be missing, when `seq` was the last event; None for now.

    With all inputs or the first `most_inputs`. The store has staleness and taints of now alone, and the reason of its last state.
    """
    uuid = canonical.uuid
    assert uuid is not None, "the ref is not missing"
    instance = queries.instances.get(uuid, most_inputs)
    assert instance is not None, "a canonical instance is an instance"
    is_unchanged = seq is None or queries.instances.last_change(uuid) == queries.instances.last_change(uuid, seq)
    previous = queries.instances.get(instance.previous_uuid, most_inputs=0) if instance.previous_uuid else None
    taints = queries.instances.taints_in_force([uuid]).get(uuid, ()) if seq is None else ()
    return extended(
        ShownCanonical,
        canonical,
        previous_uuid=instance.previous_uuid,
        previous_was_live=None if previous is None else previous.live_at is not None,
        why=instance.reason if is_unchanged else None,
        stale=seq is None and uuid in queries.instances.stale([uuid]),
        waits_for=queries.planning.missing_of(uuid) if seq is None else _waited_for(queries, canonical, seq),
        taints=taints,
        live_since=canonical.live_at,
        n_files=canonical.files or 0,
        # Recorded with the success, which may have come after the time that --as-of names.
        inputs=instance.inputs if canonical.live_at is not None else (),
    )


def _waited_for(queries: Queries, canonical: Canonical, seq: int) -> list[Ref]:
    """The missing refs of an instance that were not live at a seq: it waited for them, or had failed for them."""
    if canonical.state not in (InstanceState.UPSTREAM_BUILDING, InstanceState.UPSTREAM_FAILED):
        return []
    missed = queries.instances.missed([canonical.uuid or ""]).get(canonical.uuid or "", ())
    then = queries.canonical.at(missed, seq)
    return [ref for ref in missed if then[ref].state is not InstanceState.LIVE]


def paused_refs(queries: Queries, refs: Sequence[Ref], seq: int | None, at: float | None) -> dict[Ref, PauseInForce]:
    """The refs that nothing launches at a time when `seq` was the last event, each with its pause (rule 6.13); None is now."""
    at = max(time.time(), queries.events.head().at) if at is None else at
    return queries.planning.paused(refs, at, seq=MAX_SEQ if seq is None else seq)


def shown_pause(pause: PauseInForce | PauseRow) -> Pause:
    """A pause; the names of its refs are not in it."""
    return Pause(pause.reason, pause.actor, Time(pause.paused_at), time_of(pause.until))


#: Open job runs that are searched for the paused refs.
MAX_OPEN_RUNS: Final = 10_000


class Paused(msgspec.Struct, frozen=True):
    """A recorded pause: the job runs that it canceled, and the open job runs of its refs."""

    refs: Sequence[Ref]
    #: Null without an end.
    until: Time | None
    canceled: Sequence[str]
    running: list[str]


class Resumed(msgspec.Struct, frozen=True):
    """The names whose pauses ended."""

    refs: Sequence[Ref]


def paused(queries: Queries, command: PausePartitions, outcome: Outcome) -> Paused:
    """The outcome in the shape of `pause`."""
    running = open_job_runs_of(queries, command.refs)
    return Paused(command.refs, time_of(command.until), outcome.canceled, running)


def open_job_runs_of(queries: Queries, names: Collection[Ref]) -> list[str]:
    """The open job runs that build any of the refs or assets, the newest first."""
    runs = queries.job_runs.newest(open_only=True, most=MAX_OPEN_RUNS)
    return [run.id for run in runs if not set(names).isdisjoint(names_of(run.refs))]
