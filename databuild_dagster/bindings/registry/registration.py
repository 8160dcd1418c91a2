"""A code location's asset graph becomes the dataset specs in the store (rule 5.7).

Partitions definitions and mappings are stored in Dagster's serialization, so that planning needs neither the code location
nor its imports; `catalog` reads them. An input's text has its mapping and the upstream's partitions, because the mapped
keys depend on both.
"""

import json
from collections.abc import Callable
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
from databuild_dagster.bindings.adapter.keys import BOUNDARY, DEPLOYMENT, IO_MANAGER, SPARK, asset_text
from databuild_dagster.bindings.adapter.run_tags import VERSION_TAG
from databuild_dagster.bindings.declare.asset_spec import DEFAULT_MAX_PARTITIONS_PER_LAUNCH, AssetBody, body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import registered_of
from databuild_dagster.bindings.registry.same_code import CodeReader
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.registering import register
from databuild_dagster.model import datasets

#: The group that Dagster gives to an asset without one.
DEFAULT_GROUP = "default"
#: Cached because each tick and each step needs them, and a loaded graph does not change.
_datasets_of: WeakKeyDictionary[AssetGraph, dict[str, tuple[datasets.DatasetSpec, ...]]] = WeakKeyDictionary()

#: Location to the asset graph of its definitions, if `build_definitions` made them in this process.
_graphs: dict[str, Callable[[], AssetGraph]] = {}


def datasets_of(graph: AssetGraph, location: str) -> tuple[datasets.DatasetSpec, ...]:
    """Every asset that the code location declares, in order; computed once per graph. Raises `InvalidAsset`.

    An undeclared dep is no dataset: it may belong to a different location, and `explain` names it.
    """
    found = _datasets_of.setdefault(graph, {})
    if location not in found:
        reader = CodeReader()
        specs = [
            _dataset(graph, assets_def, graph.get(key), location, reader)
            for assets_def in graph.assets_defs
            if not assets_def.is_auto_created_stub
            for key in assets_def.keys
        ]
        found[location] = tuple(sorted({spec.asset: spec for spec in specs}.values(), key=lambda spec: spec.asset))
    return found[location]


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


@lru_cache(maxsize=datasets.MAX_UNPACKED)
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


class RecordedMapping(NamedTuple):
    """The mapping of an input."""

    #: None for Dagster's default.
    mapping: PartitionMapping | None = None
    #: Whether the upstream asset is in the same location.
    is_here: bool = False
    upstream: PartitionsDefinition | None = None


@lru_cache(maxsize=datasets.MAX_UNPACKED)
def mapping_from(text: str | None) -> RecordedMapping:
    """A mapping as `DatasetSpec` has its text."""
    if text is None:
        return RecordedMapping()
    parts = json.loads(text)
    mapping: Any = None if parts["mapping"] is None else deserialize_value(parts["mapping"])
    return RecordedMapping(mapping, parts["here"], partitions_from(parts["partitions"]))


def _dataset(
    graph: AssetGraph, assets_def: AssetsDefinition, node: AssetNode, location: str, reader: CodeReader
) -> datasets.DatasetSpec:
    body = body_of(assets_def)
    return datasets.DatasetSpec(
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
        spark=True if body and body.uses_spark else UNSET,
        group=UNSET if node.group_name in (None, DEFAULT_GROUP) else node.group_name,
        owners=tuple(node.owners) or UNSET,
        code=_code(assets_def, body, reader) if body else UNSET,
        **registered_of(node.metadata),
    )


def _code(assets_def: AssetsDefinition, body: AssetBody, reader: CodeReader) -> datasets.CodeSpec:
    """The code of an asset, with the options that decide what its function is given and how often it is called (rule 4.7)."""
    options = {
        "upstreams": {name: key.to_user_string() for name, key in body.upstreams.items()},
        "filters": dict(body.filters),
        "batched": body.is_batched,
        "skip_empty": body.skip_empty,
        "split": repr(body.split),
    }
    found = reader.code_of(body.function, options)
    settings = set(assets_def.op.required_resource_keys) - {DEPLOYMENT, IO_MANAGER, SPARK}
    settings |= {"its run configuration"} if body.is_configured else set()
    return datasets.CodeSpec(found.digest, found.unknown, tuple(found.parts.items()), tuple(sorted(settings)))


def _kind(node: AssetNode, body: AssetBody | None) -> datasets.DatasetKind:
    if body is not None:
        return datasets.DatasetKind.OURS
    if BOUNDARY in node.metadata:
        return datasets.DatasetKind.BOUNDARY
    return datasets.DatasetKind.PLAIN if node.is_materializable else datasets.DatasetKind.SOURCE


def _partitions_of_a_plain_launch(assets_def: AssetsDefinition) -> int:
    """A plain asset gets several partitions in a run only if its backfill policy allows it."""
    policy = assets_def.backfill_policy
    if policy is None:
        return 1
    return policy.max_partitions_per_run or DEFAULT_MAX_PARTITIONS_PER_LAUNCH


def _inputs(
    graph: AssetGraph, assets_def: AssetsDefinition, node: AssetNode, body: AssetBody | None
) -> tuple[datasets.InputSpec, ...]:
    parameters = {key: parameter for parameter, key in body.upstreams_in(assets_def).items()} if body else {}
    filters = {key: body.filters[name] for key, name in parameters.items() if name in body.filters} if body else {}
    return tuple(
        _input(graph, node, key, dep.partition_mapping, parameters.get(key), filters.get(key, UNSET))
        for dep in assets_def.specs_by_key[node.key].deps
        for key in [dep.asset_key]
    )


def _arc(graph: AssetGraph, assets_def: AssetsDefinition, node: AssetNode, body: AssetBody) -> datasets.ArcSpec:
    """The asset's arc. A source that is a declared input has that input's mapping."""
    declared = {dep.asset_key: dep for dep in assets_def.specs_by_key[node.key].deps}
    mappings = {key: declared.get(key, dep).partition_mapping for key, dep in body.sources_in(assets_def).items()}
    sources = tuple(_input(graph, node, key, mapping) for key, mapping in mappings.items())
    return datasets.ArcSpec(sources=sources, follow_late=body.follow_late)


def _input(
    graph: AssetGraph,
    node: AssetNode,
    key: AssetKey,
    mapping: PartitionMapping | None,
    param: str | None = None,
    where: str | UnsetType = UNSET,
) -> datasets.InputSpec:
    # Dagster makes a stub for an undeclared dep.
    here = graph.has(key) and not graph.get(key).assets_def.is_auto_created_stub
    upstream = graph.get(key).partitions_def if here else None
    place = f"Asset {node.key.to_user_string()!r}, input {key.to_user_string()!r},"
    return datasets.InputSpec(
        asset=asset_text(key),
        mapping=mapping_text(mapping, upstream, upstream_is_here=here, place=place),
        param=param,
        where=where,
    )
