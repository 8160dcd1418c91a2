"""Ranges of partitions become refs, by the registered partitions definitions (rule 2.5). Loads no user code."""

from collections.abc import Collection, Iterable
from functools import partial
from itertools import product

from dagster import MultiPartitionsDefinition

from databuild_dagster.bindings.adapter.dagster_private import DynamicPartitionsStore
from databuild_dagster.bindings.registry.catalog import DagsterCatalog, is_dynamic, why_no_key
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import UnknownPartition
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.selections import (
    ALL,
    DIMENSIONS,
    STALE,
    STATE_WORDS,
    InvalidSelection,
    keys_selected,
    may_be_selection,
)
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.store.queries.queries import Queries


def select_refs(
    queries: Queries, instance: DynamicPartitionsStore, names: Iterable[Ref], only: Collection[str] = ()
) -> tuple[Ref, ...]:
    """The refs that refs and ranges name, each once; with `only` those in one of these states now.

    Raises `UnknownAsset`, `UnknownPartition`, and `InvalidSelection`, also if no ref is left.
    """
    named = list(names)
    found: dict[Ref, None] = {}
    for name in named:
        dataset = queries.known_dataset(asset_of(name))
        # Partitions that the definition does not have any more are refs as long as they have instances.
        is_recorded = not may_be_selection(name) and queries.states([name])[name] is not None
        found.update(dict.fromkeys([name] if is_recorded else refs_named(dataset, name, instance)))
    refs = tuple(found)
    if only:
        refs = _in_states(queries, refs, only)
    if not refs:
        why = f"none of {counted(len(found), 'ref')} is {' or '.join(sorted(only))}."
        raise InvalidSelection(text=few_of(named), why=why if found else "none exists yet.", asset=asset_of(named[0]))
    return refs


def refs_named(dataset: DatasetSpec, name: Ref, instance: DynamicPartitionsStore) -> list[Ref]:
    """The refs of one name in the order of the definition. Raises `UnknownPartition`, `InvalidSelection`."""
    asset, text = dataset.asset, partition_key_of(name)
    partitions = partitions_from(dataset.partitions)
    why = DagsterCatalog(instance).why_not(dataset, text)
    if why is None:
        return [name]
    if partitions is None or text is None or not may_be_selection(name):
        raise UnknownPartition(ref=name, why=why, asset=asset)
    if is_dynamic(partitions):
        raise InvalidSelection(text=name, why="dynamic partitions have no order; name each of them.", asset=asset)
    dimensions, texts = [partitions], [text]
    if isinstance(partitions, MultiPartitionsDefinition):
        dimensions = [dimension.partitions_def for dimension in partitions.partitions_defs]
        texts = [ALL] * len(dimensions) if text == ALL else text.split(DIMENSIONS)
        if len(texts) != len(dimensions):
            names = DIMENSIONS.join(partitions.partition_dimension_names)
            why = f"its dimensions are {names}; write a key, FROM..TO or * for each, separated by |."
            raise InvalidSelection(text=name, why=why, asset=asset)
    try:
        keys = [
            keys_selected(text, dimension.get_partition_keys(), partial(why_no_key, dimension))
            for dimension, text in zip(dimensions, texts, strict=True)
        ]
    except ValueError as error:
        raise InvalidSelection(text=name, why=str(error), asset=asset) from None
    return [make_ref(asset, DIMENSIONS.join(key)) for key in product(*keys)]


def _in_states(queries: Queries, refs: tuple[Ref, ...], only: Collection[str]) -> tuple[Ref, ...]:
    canonical = queries.canonical(refs)
    live = [found.uuid for found in canonical.values() if found.uuid and found.state is InstanceState.LIVE]
    stale = queries.stale(live) if STALE in only else set()
    return tuple(ref for ref, found in canonical.items() if STATE_WORDS[found.state] in only or found.uuid in stale)
