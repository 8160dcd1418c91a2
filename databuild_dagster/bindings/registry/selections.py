"""Ranges of partitions become refs, by the registered partitions definitions (rule 2.5). Loads no user code."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import product
from typing import Any

from databuild_dagster.bindings.registry.plain_keys import dynamic_name, plain_dimensions, plain_keys
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import InvalidRequest, Refused, UnknownPartition
from databuild_dagster.model.refs import Ref, asset_of, make_ref, parse_ref, partition_key_of
from databuild_dagster.model.selections import (
    ALL,
    DIMENSIONS,
    RANGE,
    STALE,
    STATE_WORDS,
    InvalidSelection,
    Keys,
    keys_selected,
    may_be_selection,
)
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.store.queries.queries import Queries

#: Opens the Dagster instance, which has the keys of dynamic partitions.
OpenInstance = Callable[[], Any]


def select_refs(
    queries: Queries, instance: OpenInstance, names: Iterable[Ref], only: Collection[str] = ()
) -> tuple[Ref, ...]:
    """The refs that refs and ranges name, each once; with `only`, the refs that are now in any of its states.

    Raises `UnknownAsset`, `UnknownPartition`, and `InvalidSelection`, also if no ref is left.
    """
    named = list(names)
    found: dict[Ref, None] = {}
    for name in named:
        dataset = queries.datasets.known(asset_of(name))
        # Partitions that the definition does not have any more are refs as long as they have instances.
        is_recorded = queries.canonical.states([name])[name] is not None
        found.update(dict.fromkeys([name] if is_recorded else refs_named(dataset, name, instance)))
    refs = tuple(found)
    if only:
        refs = _in_states(queries, refs, only)
    if not refs:
        why = f"none of {counted(len(found), 'ref')} is {' or '.join(sorted(only))}."
        raise InvalidSelection(text=few_of(named), why=why if found else "none exists yet.", asset=asset_of(named[0]))
    return refs


def refs_of_names(
    queries: Queries, instance: OpenInstance, names: tuple[Ref, ...], only: Collection[str] = ()
) -> tuple[Ref, ...]:
    """As `select_refs`. Refs alone are passed on, each once, without a question to the store."""
    is_plain = not only and not any(map(may_be_selection, names))
    return tuple(dict.fromkeys(names)) if is_plain else select_refs(queries, instance, names, only)


def select_names(queries: Queries, instance: OpenInstance, names: Iterable[Ref]) -> tuple[Ref, ...]:
    """The names to pause or to resume, each once: of a range its refs; an asset alone stays a name (rule 6.13).

    Raises as `select_refs`.
    """
    return tuple(
        dict.fromkeys(
            ref
            for name in names
            for ref in (select_refs(queries, instance, [name]) if may_be_selection(name) else [name])
        )
    )


def refs_named(dataset: DatasetSpec, name: Ref, instance: OpenInstance) -> list[Ref]:
    """The refs of a name in the order of the definition. Raises `UnknownPartition`, `InvalidSelection`."""
    if dataset.partitions is None and partition_key_of(name) is None:
        return [name]
    plain = None if dataset.partitions is None else plain_dimensions(dataset.partitions, time.time())
    if plain is not None:
        # Dagster, whose import takes a second, has the sentence for a refusal.
        with suppress(ValueError):
            return _refs(name, [one.keys for one in plain], [str] * len(plain))
    return _refs_by_dagster(dataset, name, instance)


def keys_named(what: str, dataset: DatasetSpec, texts: Iterable[str], instance: OpenInstance) -> list[str]:
    """The partition keys of keys, ranges and refs of a dataset, also several with commas between them (rule 2.5).

    A text that is a key, or a range between keys, is not parsed further. Raises `InvalidRequest` for the ref of a different dataset,
    and as `refs_named`.
    """
    existing = cache(lambda: frozenset(_keys(existing_refs(dataset, instance))))

    def named(text: str) -> list[str]:
        if "," in text or "@" in text:
            for whole in (text, text.removeprefix(f"{dataset.asset}@")):
                if whole in existing():
                    return [whole]
                if RANGE in whole:
                    with suppress(Refused):
                        return _keys(refs_named(dataset, make_ref(dataset.asset, whole), instance))
        if "," in text:
            return [key for part in text.split(",") if part for key in named(part)]
        name = parse_ref(text) if "@" in text else make_ref(dataset.asset, text)
        if asset_of(name) != dataset.asset:
            raise InvalidRequest(what=what, value=name, why=f"it is no partition of {dataset.asset}")
        return _keys(refs_named(dataset, name, instance) if may_be_selection(name) else [name])

    return [key for text in texts for key in named(text)]


def _keys(refs: Iterable[Ref]) -> list[str]:
    return [partition_key_of(ref) or "" for ref in refs]


def existing_refs(dataset: DatasetSpec, instance: OpenInstance) -> list[Ref]:
    """Every existing ref of a dataset, in definition order; also of dynamic partitions."""
    if dataset.partitions is None:
        return [make_ref(dataset.asset, None)]
    if (keys := plain_keys(dataset.partitions, time.time())) is not None:
        return [make_ref(dataset.asset, key) for key in keys]
    if (name := dynamic_name(dataset.partitions)) is not None:
        return [make_ref(dataset.asset, key) for key in instance().get_dynamic_partitions(name)]
    from databuild_dagster.bindings.registry.catalog import LateInstance, refs_of_dataset

    return refs_of_dataset(dataset, LateInstance(instance))


def n_missing(dataset: DatasetSpec, recorded: Collection[Ref], instance: OpenInstance) -> int:
    """The number of existing partitions that are not among refs; dynamic ones are counted by Dagster's database."""
    if dataset.partitions is None or (name := dynamic_name(dataset.partitions)) is None:
        return sum(ref not in recorded for ref in existing_refs(dataset, instance))
    opened = instance()
    if hasattr(opened, "keys_of_home") and (keys := opened.keys_of_home(name)) is not None:
        known = frozenset(_keys(recorded))
        return sum(key not in known for key in keys)
    from databuild_dagster.bindings.adapter.dagster_private import existing_dynamic_partitions
    from databuild_dagster.bindings.adapter.dagster_storage import n_dynamic_partitions

    return n_dynamic_partitions(opened, name) - len(existing_dynamic_partitions(opened, name, _keys(recorded)))


def _refs_by_dagster(dataset: DatasetSpec, name: Ref, instance: OpenInstance) -> list[Ref]:
    from dagster import MultiPartitionsDefinition, partition_loading_context

    from databuild_dagster.bindings.registry.catalog import (
        DagsterCatalog,
        LateInstance,
        existing_keys,
        is_dynamic,
        why_no_key,
    )
    from databuild_dagster.bindings.registry.registration import partitions_from

    asset, partitions = dataset.asset, partitions_from(dataset.partitions)
    store = LateInstance(instance)
    why = DagsterCatalog(store).why_not(dataset, partition_key_of(name))
    if why is None:
        return [name]
    if partitions is None or not may_be_selection(name):
        raise UnknownPartition(ref=name, why=why, asset=asset)
    dimensions = [partitions]
    if isinstance(partitions, MultiPartitionsDefinition):
        dimensions = [dimension.partitions_def for dimension in partitions.partitions_defs]
        if len(_texts(name, len(dimensions))) != len(dimensions):
            names = DIMENSIONS.join(partitions.partition_dimension_names)
            why = f"its dimensions are {names}; write a key, FROM..TO or * for each, separated by |."
            raise InvalidSelection(text=name, why=why, asset=asset)
    texts = _texts(name, len(dimensions))
    with partition_loading_context(dynamic_partitions_store=store):
        keys = [existing_keys(dimension) for dimension in dimensions]
        for dimension, text, along in zip(dimensions, texts, keys, strict=True):
            if is_dynamic(dimension) and RANGE in text and along.place_of(text) is None:
                why = "dynamic partitions have no order; name each, or all by *."
                raise InvalidSelection(text=name, why=why, asset=asset)
        try:
            return _refs(name, keys, [partial(why_no_key, dimension) for dimension in dimensions])
        except ValueError as error:
            raise InvalidSelection(text=name, why=str(error), asset=asset) from None


def _refs(name: Ref, dimensions: Sequence[Keys], why_not: Sequence[Callable[[str], str | None]]) -> list[Ref]:
    """Raises `ValueError` with a sentence for a text that selects nothing."""
    # A dimension may have the key `*`.
    if partition_key_of(name) == ALL and len(dimensions) > 1:
        selected = [keys.all() for keys in dimensions]
    else:
        texts = _texts(name, len(dimensions))
        selected = [keys_selected(*along) for along in zip(texts, dimensions, why_not, strict=True)]
    return [make_ref(asset_of(name), DIMENSIONS.join(key)) for key in product(*selected)]


def _texts(name: Ref, n_dimensions: int) -> list[str]:
    """The text of each dimension. A key of a single dimension may have the separator in it."""
    text = partition_key_of(name) or ""
    if n_dimensions == 1 or text == ALL:
        return [text] * n_dimensions
    return text.split(DIMENSIONS)


def _in_states(queries: Queries, refs: tuple[Ref, ...], only: Collection[str]) -> tuple[Ref, ...]:
    canonical = queries.canonical.of(refs)
    live = [found.uuid for found in canonical.values() if found.uuid and found.state is InstanceState.LIVE]
    stale = queries.instances.stale(live) if STALE in only else set()
    return tuple(ref for ref, found in canonical.items() if STATE_WORDS[found.state] in only or found.uuid in stale)
