"""A code location's asset graph becomes the dataset specs in the store (rule 5.7).

Partitions definitions and mappings are stored in Dagster's serialization, so that planning needs neither the code location
nor its imports; `catalog` reads them. An input's text has its mapping and the upstream's partitions, because the mapped
keys depend on both.
"""

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from dagster import AssetKey, AssetsDefinition, MultiPartitionsDefinition, PartitionMapping, PartitionsDefinition
from msgspec import UNSET, UnsetType

from databuild_dagster.bindings.adapter.dagster_private import (
    AssetGraph,
    AssetNode,
    PartitionsSnap,
    deserialize_value,
    serialize_value,
)
from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.adapter.run_tags import VERSION_TAG
from databuild_dagster.bindings.declare.asset_spec import DEFAULT_MAX_PARTITIONS_PER_LAUNCH, AssetBody, body_of
from databuild_dagster.bindings.declare.boundaries import BOUNDARY
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.commands import RegisterDatasets
from databuild_dagster.model.datasets import (
    MAX_UNPACKED,
    ArcSpec,
    DatasetKind,
    DatasetSpec,
    InputSpec,
    Standing,
    standing_of,
)
from databuild_dagster.model.errors import AssetTaken
from databuild_dagster.model.events import DatasetRegistered, names_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.log import Head

#: The events that change what is registered.
_REGISTERING = names_of(DatasetRegistered)

#: Attempts to register while other locations register at the same time.
MAX_RACES = 3

#: Cached because each tick and each step needs them, and a loaded graph does not change.
_datasets_of: WeakKeyDictionary[AssetGraph, dict[str, tuple[DatasetSpec, ...]]] = WeakKeyDictionary()

#: Location to the asset graph of its definitions, if `build_definitions` made them in this process.
_graphs: dict[str, Callable[[], AssetGraph]] = {}


class Registered(NamedTuple):
    """The datasets of the store after a location was registered."""

    #: Of every location, by row id.
    datasets: dict[int, DatasetSpec]
    #: One refusal for each location that owns assets of this one.
    taken: tuple[AssetTaken, ...] = ()
    #: The end of the log when these datasets were read.
    head: Head = Head(0, 0.0)

    def of(self, location: str) -> dict[int, DatasetSpec]:
        """The datasets of one location, by row id."""
        return {row_id: spec for row_id, spec in self.datasets.items() if spec.location == location}


def datasets_of(graph: AssetGraph, location: str) -> tuple[DatasetSpec, ...]:
    """Every asset that the code location declares, in order; computed once per graph. Raises `InvalidAsset`.

    An undeclared dep is no dataset: it may belong to another location, and `explain` names it.
    """
    found = _datasets_of.setdefault(graph, {})
    if location not in found:
        specs = [
            _dataset(graph, assets_def, graph.get(key), location)
            for assets_def in graph.assets_defs
            if not assets_def.is_auto_created_stub
            for key in assets_def.keys
        ]
        found[location] = tuple(sorted({spec.asset: spec for spec in specs}.values(), key=lambda spec: spec.asset))
    return found[location]


def register(
    engine: Engine,
    location: str,
    datasets: tuple[DatasetSpec, ...],
    *,
    building: Iterable[str] = (),
    is_current: bool = False,
) -> Registered:
    """Record the location's datasets, unless the store has them.

    A process that has registered them asks one question: whether any location has registered since. With `is_current` it
    asks none. Assets that another location owns are left out, and returned as `taken`. Raises `AssetTaken` if one of
    these is among `building`, because its owner may build it differently, and `LocationTaken` (rule 5.7).
    """
    kept: dict[str, tuple[tuple[DatasetSpec, ...], Registered]] = engine.memory.of(Registered, dict)
    declared, registered = kept.get(location, (None, Registered({})))
    if declared is None or declared != datasets:
        registered = _register_own(engine, location, datasets, engine.queries.head())
    elif not is_current:
        head, is_news = engine.queries.news(_REGISTERING, registered.head.seq)
        # A log that ends earlier is another log.
        is_news = is_news or head.seq < registered.head.seq
        registered = _register_own(engine, location, datasets, head) if is_news else registered._replace(head=head)
    kept[location] = datasets, registered
    for refusal in registered.taken:
        if not set(building).isdisjoint(refusal.facts["taken"]):
            raise refusal
    return registered


def _register_own(engine: Engine, location: str, datasets: tuple[DatasetSpec, ...], head: Head) -> Registered:
    """`head` is the end of the log before the datasets are read."""
    for races in range(1, MAX_RACES + 1):
        known = engine.queries.datasets()
        present = {spec.asset: spec for spec in known.values()}
        standings = {spec.asset: standing_of(spec, present.get(spec.asset)) for spec in datasets}
        own = {spec.asset: spec for spec in datasets if standings[spec.asset] is Standing.OWN}
        of_owner: dict[str, list[str]] = {}
        for asset, standing in standings.items():
            if standing is Standing.TAKEN:
                of_owner.setdefault(present[asset].location, []).append(asset)
        try:
            known, head = _recorded(engine, location, own, known, head)
        except AssetTaken:
            if races < MAX_RACES:
                continue
            raise
        break
    taken = (
        AssetTaken(location=location, assets=few_of(assets), owner=owner, taken=tuple(assets))
        for owner, assets in of_owner.items()
    )
    return Registered(known, tuple(taken), head)


def register_ad_hoc(engine: Engine, location: str, datasets: Iterable[DatasetSpec]) -> Registered:
    """Record assets that no deployed location declares: a `materialize([…])` in a script or a test.

    Assets that a code location has registered stay in it.
    """
    known = engine.queries.datasets()
    own = {spec.asset: spec for spec in known.values() if spec.location == location}
    of_others = {spec.asset for spec in known.values() if spec.location != location}
    new = {spec.asset: spec for spec in datasets if spec.asset not in of_others}
    known, _ = _recorded(engine, location, {**own, **new}, known, Head(0, 0.0))
    return Registered(known)


def _recorded(
    engine: Engine, location: str, own: dict[str, DatasetSpec], known: dict[int, DatasetSpec], head: Head
) -> tuple[dict[int, DatasetSpec], Head]:
    """Record `own` as the datasets of a location. Returns the datasets of all locations, and a head that they include.

    `known` are the datasets at `head` or later. Raises `AssetTaken`, `LocationTaken`.
    """
    if own == {spec.asset: spec for spec in known.values() if spec.location == location}:
        return known, head
    command = RegisterDatasets(location=location, datasets=tuple(own.values()))
    events = engine.handle(command, actor=f"code location {location}").events
    return engine.queries.datasets(), Head(events[-1].seq, events[-1].at) if events else head


def remember(location: str, graph: Callable[[], AssetGraph]) -> None:
    """Keep the graph of a location that was built in this process; `graph` is called when the graph is needed.

    Loading definitions cannot register them, because there is no Dagster instance then. The tick, a want of a sensor or
    schedule, the command line and a step register them.
    """
    _graphs[location] = graph


def register_deployed(engine: Engine, location: str) -> None:
    """Register a location that was built in this process. Code without a repository of Dagster uses it."""
    if (graph := _graphs.get(location)) is not None:
        register(engine, location, datasets_of(graph(), location))


def job_of(assets_def: AssetsDefinition) -> str:
    """The name of the job that builds the definition's outputs: a single asset's own name."""
    keys = list(assets_def.keys)
    return asset_text(keys[0]) if len(keys) == 1 else assets_def.node_def.name


def partitions_text(partitions: PartitionsDefinition | None) -> str | None:
    if partitions is None:
        return None
    snap: Any = PartitionsSnap.from_def(partitions)
    return serialize_value(snap)


@lru_cache(maxsize=MAX_UNPACKED)
def partitions_from(text: str | None) -> PartitionsDefinition | None:
    if text is None:
        return None
    snap: Any = deserialize_value(text)
    partitions: PartitionsDefinition = snap.get_partitions_definition()
    return partitions


def dagster_partition(text: str | None, key: str | None) -> str | None:
    """A partition key as Dagster has it in its events: a multi-partition key knows its dimensions."""
    partitions = partitions_from(text)
    if key is None or not isinstance(partitions, MultiPartitionsDefinition):
        return key
    return partitions.get_partition_key_from_str(key)


def mapping_text(
    mapping: PartitionMapping | None, upstream: PartitionsDefinition | None, *, upstream_is_here: bool, place: str
) -> str:
    """Raises `InvalidAsset` for a mapping of a user's class, which other processes could not read."""
    try:
        value: Any = mapping
        serialized = None if value is None else serialize_value(value)
    except Exception as error:  # Dagster raises several undocumented kinds here.
        raise InvalidAsset(
            f"{place} uses {type(mapping).__name__}, which only its own code location could evaluate; "
            "use one of Dagster's partition mappings."
        ) from error
    return json.dumps({"mapping": serialized, "here": upstream_is_here, "partitions": partitions_text(upstream)})


@lru_cache(maxsize=MAX_UNPACKED)
def mapping_from(text: str | None) -> tuple[PartitionMapping | None, bool, PartitionsDefinition | None]:
    """(mapping, None for Dagster's default; whether the upstream is in the same location; its partitions)."""
    if text is None:
        return None, False, None
    parts = json.loads(text)
    mapping: Any = None if parts["mapping"] is None else deserialize_value(parts["mapping"])
    return mapping, parts["here"], partitions_from(parts["partitions"])


def _dataset(graph: AssetGraph, assets_def: AssetsDefinition, node: AssetNode, location: str) -> DatasetSpec:
    body = body_of(assets_def)
    return DatasetSpec(
        asset=asset_text(node.key),
        # Dagster makes one definition of several external assets, and no job builds them.
        job=job_of(assets_def) if assets_def.is_executable else asset_text(node.key),
        location=location,
        kind=_kind(node, body),
        partitions=partitions_text(node.partitions_def),
        inputs=_inputs(graph, assets_def, node, body),
        code_version=node.code_version,
        max_partitions_per_launch=body.max_partitions_per_launch if body else _partitions_of_a_plain_launch(assets_def),
        concurrency=body.concurrency if body else None,
        arc=_arc(graph, assets_def, node, body) if body and body.subscriptions else UNSET,
        version=node.tags.get(VERSION_TAG, UNSET),
    )


def _kind(node: AssetNode, body: AssetBody | None) -> DatasetKind:
    if body is not None:
        return DatasetKind.OURS
    if BOUNDARY in node.metadata:
        return DatasetKind.BOUNDARY
    return DatasetKind.PLAIN if node.is_materializable else DatasetKind.SOURCE


def _partitions_of_a_plain_launch(assets_def: AssetsDefinition) -> int:
    """A plain asset gets several partitions in one run only if its backfill policy allows it."""
    policy = assets_def.backfill_policy
    if policy is None:
        return 1
    return policy.max_partitions_per_run or DEFAULT_MAX_PARTITIONS_PER_LAUNCH


def _inputs(
    graph: AssetGraph, assets_def: AssetsDefinition, node: AssetNode, body: AssetBody | None
) -> tuple[InputSpec, ...]:
    parameters = {key: parameter for parameter, key in body.upstreams_in(assets_def).items()} if body else {}
    filters = {key: body.filters[name] for key, name in parameters.items() if name in body.filters} if body else {}
    return tuple(
        _input(graph, node, key, dep.partition_mapping, parameters.get(key), filters.get(key, UNSET))
        for dep in assets_def.specs_by_key[node.key].deps
        for key in [dep.asset_key]
    )


def _arc(graph: AssetGraph, assets_def: AssetsDefinition, node: AssetNode, body: AssetBody) -> ArcSpec:
    """The asset's arc. A source that is a declared input has that input's mapping."""
    declared = {dep.asset_key: dep for dep in assets_def.specs_by_key[node.key].deps}
    mappings = {key: declared.get(key, dep).partition_mapping for key, dep in body.sources_in(assets_def).items()}
    sources = tuple(_input(graph, node, key, mapping) for key, mapping in mappings.items())
    return ArcSpec(sources=sources, follow_late=body.follow_late)


def _input(
    graph: AssetGraph,
    node: AssetNode,
    key: AssetKey,
    mapping: PartitionMapping | None,
    param: str | None = None,
    where: str | UnsetType = UNSET,
) -> InputSpec:
    # Dagster makes a stub for an undeclared dep.
    here = graph.has(key) and not graph.get(key).assets_def.is_auto_created_stub
    upstream = graph.get(key).partitions_def if here else None
    place = f"Asset {node.key.to_user_string()!r}, input {key.to_user_string()!r},"
    return InputSpec(
        asset=asset_text(key),
        mapping=mapping_text(mapping, upstream, upstream_is_here=here, place=place),
        param=param,
        where=where,
    )
