"""The instances that an instance was built from, and those that were built from it (rule 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypedDict

from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.shapes.fields import when
from databuild_dagster.store.queries.queries import Queries

#: Instances on each side.
MAX_NEIGHBOURS: Final = 500


class Neighbour(Protocol):
    """An instance, now or when an earlier event was the last one."""

    @property
    def uuid(self) -> str: ...
    @property
    def ref(self) -> Ref: ...
    @property
    def state(self) -> InstanceState: ...
    @property
    def canonical(self) -> bool: ...
    @property
    def live_at(self) -> float | None: ...


class NeighbourShape(TypedDict):
    """An instance beside another one; `canonical` if readers of its ref see it."""

    uuid: str
    ref: Ref
    state: str
    canonical: bool
    live_since: str | None


class LineageShape(TypedDict):
    """The inputs and consumers of an instance.

    Of more than `MAX_NEIGHBOURS`, the first ones by ref, and of thousands of consumers the oldest ones.
    """

    uuid: str
    ref: Ref
    n_inputs: int
    inputs: list[NeighbourShape]
    #: 10,001 for more than 10,000.
    n_consumers: int
    consumers: list[NeighbourShape]


def lineage_of(queries: Queries, uuid: str) -> LineageShape:
    """The neighbours of an instance. Raises `NotFound`."""
    instance = queries.instance(uuid, MAX_NEIGHBOURS)
    if instance is None:
        raise NotFound(kind="instance", name=uuid)
    n_consumers, consumers = queries.built_from(uuid, MAX_NEIGHBOURS)
    return {
        "uuid": uuid,
        "ref": instance.ref,
        "n_inputs": queries.n_inputs_of([uuid]).get(uuid, 0),
        "inputs": neighbour_shapes(queries.instances_named(instance.inputs)),
        "n_consumers": n_consumers,
        "consumers": neighbour_shapes(consumers),
    }


def neighbour_shapes(instances: Sequence[Neighbour]) -> list[NeighbourShape]:
    """Instances in their order."""
    return [
        {
            "uuid": instance.uuid,
            "ref": instance.ref,
            "state": instance.state.value,
            "canonical": instance.canonical,
            "live_since": when(instance.live_at),
        }
        for instance in instances
    ]
