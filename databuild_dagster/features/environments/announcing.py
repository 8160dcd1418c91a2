"""Borrowed partitions in Dagster: each is materialized once, so that the asset graph of an environment shows it (rule 16.13).

To borrow is an event of the log, and needs no Dagster. A tick follows these events with a cursor, and so does a build at its end. A
process that dies between a batch and its cursor repeats the batch: what Dagster shows already is left out.
"""

import time
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.event_batches import MAX_EVENTS, report_materializations
from databuild_dagster.bindings.display.materialization import LiveRef, live_events, unseen
from databuild_dagster.bindings.orchestration.duties import Place, Work
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.data.environment import environment_of
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, apart, steps
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import Event, InstancesBorrowed, names_of
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState

#: The tag of such a materialization.
BORROWED_TAG: Final = "databuild/borrowed"
#: A tick begins no further batch after so many seconds; the next tick continues.
TICK_SECONDS: Final = 2.0
#: So does the end of a build, which no tick of its process follows.
END_SECONDS: Final = 60.0


@apart("borrowed partitions could not be shown in Dagster")
def announce_borrowed(
    instance: DagsterInstance,
    location: str,
    datasets: Collection[DatasetSpec],
    *,
    head: int | None = None,
    seconds: float = TICK_SECONDS,
) -> bool | None:
    """Materialize in Dagster what an environment borrowed of a location's datasets; returns whether all is done.

    Errors are logged, because Dagster only shows it; then it returns None.
    """
    if environment_of(instance.root_directory) is None:
        return True
    engine = engine_for(instance)
    follower = LogFollower(engine, f"borrowed_shown/{location}", Cursor, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return True
    ends_at = time.monotonic() + seconds
    # Sources have no materialization of ours in a base either.
    ours = {spec.asset: spec for spec in datasets if not spec.kind.is_foreign}
    cursor = follower.load() or Cursor()
    while cursor.seq < follower.head:
        events = follower.events(cursor, names_of(InstancesBorrowed))
        left = steps(events, cursor, follower.last_seq(cursor), lambda event: _refs_of(event, ours))
        while batch := list(islice(left, MAX_EVENTS)):
            if time.monotonic() > ends_at:
                return False
            _materialize(instance, engine, ours, [Ref(step.entry) for step in batch if step.entry is not None])
            cursor = batch[-1].after
            follower.keep(cursor)
    follower.rest(cursor.seq)
    return True


def _refs_of(event: Event, ours: Collection[str]) -> list[Ref]:
    assert isinstance(event.fact, InstancesBorrowed)
    return [birth.ref for birth in event.fact.births if asset_of(birth.ref) in ours]


def _materialize(instance: DagsterInstance, engine: Engine, ours: dict[str, DatasetSpec], refs: Sequence[Ref]) -> None:
    """Dagster shows more of refs whose instance was replaced or tainted since."""
    canonical = engine.queries.canonical.of(refs)
    live = {str(one.uuid): one for one in canonical.values() if one.state is InstanceState.LIVE}
    borrowed = sorted((live[uuid] for uuid in engine.queries.instances.borrowed_of(live)), key=lambda one: one.ref)
    shown = [LiveRef(one.ref, str(one.uuid), one.rows, "The instance of the base.") for one in borrowed]
    events = live_events(engine, ours.values(), shown, **{BORROWED_TAG: "true"})
    report_materializations(instance, unseen(instance, events))


def in_tick(work: Work) -> None:
    """The duty of a tick."""
    announce_borrowed(work.instance, work.deployment.location, work.datasets, head=work.head)


def at_end(place: Place, seconds: float | None) -> bool | None:
    """The duty at the end of a build."""
    most_seconds = END_SECONDS if seconds is None else seconds
    return announce_borrowed(place.instance, place.deployment.location, place.datasets, seconds=most_seconds)
