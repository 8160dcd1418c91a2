"""The engine's `Catalog`: the existing partition keys and the inputs of each, by Dagster's definitions and mappings.

It reads registered datasets and imports no user code. Only dynamic partitions need the Dagster instance. Answers that
cannot change are cached, because each tick asks the same thousands of questions.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import cache
from typing import Any

import dagster as dg

from databuild_dagster.bindings.adapter import dagster_private
from databuild_dagster.bindings.registry.plain_keys import lines_along, longest_dimension
from databuild_dagster.bindings.registry.registration import mapping_from, partitions_from
from databuild_dagster.bindings.registry.window_keys import is_listed, shifts_by_part_of_an_hour, time_keys_of
from databuild_dagster.model.datasets import NO_KEY, NO_KEYS, DatasetSpec, InputSpec
from databuild_dagster.model.errors import near_names
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.selections import DIMENSIONS, Keys, ListedKeys
from databuild_dagster.model.wording import few_of

#: Keys and inputs cached per process. A year of a dozen daily assets needs a twentieth.
MAX_REMEMBERED = 100_000

#: A time after each window that is in use.
_AFTER_ALL = datetime(2200, 1, 1, tzinfo=UTC)

_SAME_FOR_EVERY_KEY = (dg.AllPartitionMapping, dg.LastPartitionMapping, dg.SpecificPartitionsPartitionMapping)


class LateInstance:
    """The dynamic partitions of a Dagster instance that the first question about them opens.

    Opening an instance imports Dagster's storages, and most datasets have no dynamic partitions.
    """

    def __init__(self, open_instance: Callable[[], dagster_private.DynamicPartitionsStore]) -> None:
        self._instance = cache(open_instance)

    def get_dynamic_partitions(self, partitions_def_name: str) -> Sequence[str]:
        return self._instance().get_dynamic_partitions(partitions_def_name)

    def get_paginated_dynamic_partitions(self, *args: Any, **named: Any) -> Any:
        return self._instance().get_paginated_dynamic_partitions(*args, **named)

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        return self._instance().has_dynamic_partition(partitions_def_name, partition_key)

    def get_existing_dynamic_partitions(
        self, partitions_def_name: str, partition_keys: Sequence[str]
    ) -> AbstractSet[str]:
        return dagster_private.existing_dynamic_partitions(self._instance(), partitions_def_name, partition_keys)

    def get_dynamic_partitions_definition_id(self, partitions_def_name: str) -> str:
        return self._instance().get_dynamic_partitions_definition_id(partitions_def_name)


class DagsterCatalog:
    """Answers from Dagster's partitions definitions and partition mappings."""

    def __init__(self, instance: dagster_private.DynamicPartitionsStore) -> None:
        self._instance = instance
        self._dataset_of: Callable[[str], DatasetSpec | None] = lambda asset: None
        #: Keys known to exist, by the text of their definition. None of them is ever removed.
        self._existing: defaultdict[str, set[str | None]] = defaultdict(set)
        #: Keys that exist now or later, by the text of their definition.
        self._possible: defaultdict[str, set[str | None]] = defaultdict(set)
        self._inputs: dict[tuple[DatasetSpec, str | None], tuple[Ref, ...]] = {}

    def look_up_other_locations_with(self, dataset_of: Callable[[str], DatasetSpec | None]) -> None:
        """Set the function that finds an upstream of a different code location."""
        self._dataset_of = dataset_of

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """A sentence why the key is not a partition of the dataset, None if it is."""
        partitions = partitions_from(dataset.partitions)
        if partitions is None or dataset.partitions is None:
            text = f"{dataset.asset} has no partitions, so it takes no partition key."
            return None if partition_key is None else text
        if partition_key is None:
            return f"{dataset.asset} is partitioned, so a partition key has to follow: {dataset.asset}@KEY, or {dataset.asset}@* for all."
        if partition_key in self._existing[dataset.partitions]:
            return None
        with dg.partition_loading_context(dynamic_partitions_store=self._instance):
            why_not = why_no_key(partitions, partition_key)
        existing = self._existing[dataset.partitions]
        if why_not is None and not is_dynamic(partitions) and len(existing) < MAX_REMEMBERED:
            existing.add(partition_key)
        return why_not

    def absent(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> dict[str | None, str]:
        """The keys that are not partitions of the dataset, each with a sentence why."""
        known = self._existing[dataset.partitions] if dataset.partitions is not None else {None}
        unsure = [key for key in partition_keys if key not in known]
        return {key: why for key in unsure if (why := self.why_not(dataset, key)) is not None}

    def left_out(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> frozenset[str | None]:
        """The keys that the dataset's definition does not have, also not at a later time."""
        partitions = partitions_from(dataset.partitions)
        if partitions is None:
            return frozenset(key for key in partition_keys if key is not None)
        known = self._existing[dataset.partitions or ""] | self._possible[dataset.partitions or ""]
        unsure = [key for key in partition_keys if key not in known]
        with dg.partition_loading_context(effective_dt=_AFTER_ALL, dynamic_partitions_store=self._instance):
            has = _possibility(partitions, self._instance, [key for key in unsure if key is not None])
            gone = frozenset(key for key in unsure if key is None or not has(key))
        if not is_dynamic(partitions) and len(known) < MAX_REMEMBERED:
            self._possible[dataset.partitions or ""].update(key for key in unsure if key not in gone)
        return gone

    def is_moved(self, dataset: DatasetSpec, partition_key: str | None, before: str | None) -> bool:
        """Whether a key of the dataset meant a different window of time under the partitions `before`."""
        earlier, now = partitions_from(before), partitions_from(dataset.partitions)
        if partition_key is None or earlier is None or now is None or _have_same_windows(earlier, now):
            return False
        return windows_of(earlier, partition_key) != windows_of(now, partition_key)

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
        """The declared input refs of a partition, in declaration order, each once."""
        remembered = self._inputs.get((dataset, partition_key))
        if remembered is not None:
            return remembered
        refs: dict[Ref, None] = {}
        fixed = True
        for spec in dataset.inputs:
            keys, these_are_fixed = self.input_keys(dataset, spec, partition_key)
            fixed = fixed and these_are_fixed
            refs.update((make_ref(spec.asset, key), None) for key in keys)
        if fixed and len(self._inputs) < MAX_REMEMBERED:
            self._inputs[(dataset, partition_key)] = tuple(refs)
        return tuple(refs)

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        """The keys in definition order, cut into sets that a single Dagster run can host.

        A run's tags have a range from the first key to the last; the keys between them have to be irrelevant.
        """
        keys = [key for key in partition_keys if key is not None]
        partitions = partitions_from(dataset.partitions)
        if partitions is None or not keys:
            return (partition_keys,)
        with dg.partition_loading_context(dynamic_partitions_store=self._instance):
            lines = _lines(partitions, keys)
        return tuple(tuple(line[at : at + most]) for line in lines for at in range(0, len(line), most))

    def input_keys(
        self, dataset: DatasetSpec, spec: InputSpec, partition_key: str | None
    ) -> tuple[Sequence[str | None], bool]:
        """The partition keys of an input, and whether they can never change."""
        mapping, downstream, upstream = self._resolved(dataset, spec)
        if upstream is None:
            return [None], True
        if _is_one_to_one(mapping, downstream, upstream):
            return [partition_key], True
        with dg.partition_loading_context(dynamic_partitions_store=self._instance):
            # The first day has no yesterday of its own asset; any other input has to exist.
            may_be_none = spec.asset == dataset.asset
            return _mapped(mapping, downstream, upstream, partition_key, may_be_none=may_be_none)

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        """The partition keys of a dataset that have a source's partition among their inputs, in definition order.

        All existing keys if the mapping does not depend on the key; none for a key that the source does not have.
        """
        mapping, downstream, upstream = self._resolved(dataset, source)
        if downstream is None:
            return (None,)
        if upstream is not None and _is_one_to_one(mapping, downstream, upstream):
            return (partition_key,)
        with dg.partition_loading_context(dynamic_partitions_store=self._instance):
            if upstream is None:
                return tuple(downstream.get_partition_keys())
            if partition_key is None or not _has(upstream, partition_key):
                return ()
            inferred = dagster_private.infer_partition_mapping(mapping, downstream, upstream)
            subset = upstream.subset_with_partition_keys([partition_key])
            found = inferred.get_downstream_partitions_for_partitions(subset, upstream, downstream)
            keys = list(found.get_partition_keys())
            return tuple(keys if isinstance(downstream, dg.TimeWindowPartitionsDefinition) else sorted(keys))

    def follows_key(self, dataset: DatasetSpec, spec: InputSpec) -> bool:
        """Whether an input's partitions depend on the output's key, by its declared mapping.

        An unpartitioned input does not, nor does a mapping to all partitions, the last partition or fixed partitions.
        """
        mapping, downstream, upstream = self._resolved(dataset, spec)
        if upstream is None or downstream is None:
            return False
        inferred = dagster_private.infer_partition_mapping(mapping, downstream, upstream)
        if isinstance(inferred, dg.MultiPartitionMapping):
            dimensions = inferred.downstream_mappings_by_upstream_dimension.values()
            return any(not isinstance(along.partition_mapping, _SAME_FOR_EVERY_KEY) for along in dimensions)
        return not isinstance(inferred, _SAME_FOR_EVERY_KEY)

    def _resolved(
        self, dataset: DatasetSpec, spec: InputSpec
    ) -> tuple[dg.PartitionMapping | None, dg.PartitionsDefinition | None, dg.PartitionsDefinition | None]:
        """(mapping, None for Dagster's default; the dataset's partitions; the input's partitions)."""
        mapping, is_here, upstream = mapping_from(spec.mapping)
        if not is_here and (found := self._dataset_of(spec.asset)) is not None:
            upstream = partitions_from(found.partitions)
        return mapping, partitions_from(dataset.partitions), upstream


def windows_of(partitions: dg.PartitionsDefinition, key: str) -> tuple[tuple[float, float] | str, ...] | None:
    """What a key stands for: for each dimension the start and the end of a window of time, or the key itself; None for no key."""
    match partitions:
        case dg.TimeWindowPartitionsDefinition():
            timed = time_keys_of(partitions)
            if timed is not None and (start := timed.start_of(key)) is not None:
                return ((start, timed.times.after(start)),)
            try:
                window = partitions.time_window_for_partition_key(key)
            except (ValueError, OverflowError):
                return None
            return ((window.start.timestamp(), window.end.timestamp()),)
        case dg.MultiPartitionsDefinition():
            if (keys := _by_dimension(partitions, key)) is None:
                return None
            along = [windows_of(one.partitions_def, keys[one.name]) for one in partitions.partitions_defs]
            return None if None in along else tuple(part for found in along for part in found or ())
        case _:
            return (key,)


def _have_same_windows(one: dg.PartitionsDefinition, other: dg.PartitionsDefinition) -> bool:
    """Whether each key of both definitions has the same meaning; the first and the last key may differ."""
    match one, other:
        case dg.TimeWindowPartitionsDefinition(), dg.TimeWindowPartitionsDefinition():
            return (one.cron_schedule, one.timezone, one.fmt) == (other.cron_schedule, other.timezone, other.fmt)
        case dg.MultiPartitionsDefinition(), dg.MultiPartitionsDefinition():
            pairs = list(zip(one.partitions_defs, other.partitions_defs, strict=False))
            alike = all(_have_same_windows(left.partitions_def, right.partitions_def) for left, right in pairs)
            return alike and len(one.partitions_defs) == len(other.partitions_defs)
        case _:
            timed = (dg.TimeWindowPartitionsDefinition, dg.MultiPartitionsDefinition)
            return not isinstance(one, timed) and not isinstance(other, timed)


def _by_dimension(partitions: dg.MultiPartitionsDefinition, key: str) -> Mapping[str, str] | None:
    """The parts of a key; None if the number of parts is not the number of dimensions."""
    if key.count("|") != len(partitions.partitions_defs) - 1:
        return None
    return partitions.get_partition_key_from_str(key).keys_by_dimension


def _possibility(
    partitions: dg.PartitionsDefinition, store: dagster_private.DynamicPartitionsStore, keys: Collection[str]
) -> Callable[[str], bool]:
    """A function that says which of the keys a definition has, now or later; dynamic keys are asked for at once."""
    match partitions:
        case dg.DynamicPartitionsDefinition():
            return dagster_private.existing_dynamic_partitions(store, partitions.name or "", keys).__contains__
        case dg.MultiPartitionsDefinition():
            parts = [found for key in keys if (found := _by_dimension(partitions, key)) is not None]
            along = {
                one.name: cache(_possibility(one.partitions_def, store, {found[one.name] for found in parts}))
                for one in partitions.partitions_defs
            }

            def has_all(key: str) -> bool:
                parts = _by_dimension(partitions, key)
                return parts is not None and all(along[name](part) for name, part in parts.items())

            return has_all
        case _:

            def has(key: str) -> bool:
                try:
                    return _has(partitions, key)
                except (ValueError, OverflowError, dg.DagsterError):
                    return False

            return has


def _lines(partitions: dg.PartitionsDefinition, keys: Sequence[str]) -> list[list[str]]:
    """Ordered groups of keys that a single range can span: all keys, or with dimensions the keys that differ only in one."""
    if not isinstance(partitions, dg.MultiPartitionsDefinition):
        return lines_along(keys, 1, 0, _order(partitions, keys).__getitem__)
    dimensions = [one.partitions_def for one in partitions.partitions_defs]
    along = longest_dimension([isinstance(one, dg.TimeWindowPartitionsDefinition) for one in dimensions])
    order = _order(dimensions[along], [key.split(DIMENSIONS)[along] for key in keys])
    return lines_along(keys, len(dimensions), along, order.__getitem__)


def _order(partitions: dg.PartitionsDefinition, keys: Iterable[str]) -> dict[str, float]:
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        timed = time_keys_of(partitions)
        starts = {key: None if timed is None else timed.start_of(key) for key in keys}
        start_of = partitions.start_time_for_partition_key
        return {key: start_of(key).timestamp() if start is None else start for key, start in starts.items()}
    if len(once := set(keys)) == 1:
        return dict.fromkeys(once, 0)
    return {key: place for place, key in enumerate(partitions.get_partition_keys())}


def _mapped(
    mapping: dg.PartitionMapping | None,
    downstream: dg.PartitionsDefinition | None,
    upstream: dg.PartitionsDefinition,
    partition_key: str | None,
    *,
    may_be_none: bool,
) -> tuple[Sequence[str | None], bool]:
    mapping = dagster_private.infer_partition_mapping(mapping, downstream, upstream)
    subset = None
    if downstream is not None and partition_key is not None:
        subset = downstream.subset_with_partition_keys([partition_key])
    result = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, downstream, upstream)
    keys = list(result.partitions_subset.get_partition_keys())
    required = result.required_but_nonexistent_partition_keys
    absent = [key for key in required if not _never_exists(upstream, key)]
    if (
        not keys
        and not absent
        and not (may_be_none or getattr(mapping, "allow_nonexistent_upstream_partitions", False))
    ):
        absent = list(required)
    if not isinstance(upstream, dg.TimeWindowPartitionsDefinition):
        keys.sort()  # Dagster keeps them in a set.
    grows = isinstance(upstream, dg.TimeWindowPartitionsDefinition) and upstream.end is None
    ends = not grows or not isinstance(mapping, (dg.AllPartitionMapping, dg.LastPartitionMapping))
    return [*keys, *absent], ends and not absent and not is_dynamic(upstream)


def _is_one_to_one(
    mapping: dg.PartitionMapping | None, downstream: dg.PartitionsDefinition | None, upstream: dg.PartitionsDefinition
) -> bool:
    """Whether each key maps to itself: the common case, 30 times faster than Dagster's mapping."""
    if downstream is None or downstream != upstream or isinstance(upstream, dg.MultiPartitionsDefinition):
        return False
    if isinstance(mapping, dg.TimeWindowPartitionMapping):
        return mapping.start_offset == 0 and mapping.end_offset == 0
    return mapping is None or isinstance(mapping, dg.IdentityPartitionMapping)


def _never_exists(partitions: dg.PartitionsDefinition, key: str) -> bool:
    """Whether a window is before the first or after the last, so that it never exists: the first day has no yesterday."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return False
    start = partitions.start_time_for_partition_key(key)
    return start < partitions.start or (partitions.end is not None and start >= partitions.end)


def why_no_key(partitions: dg.PartitionsDefinition, key: str) -> str | None:
    """A sentence why the definition does not have a key, with the nearest key; None if it has the key."""
    if _has(partitions, key):
        return None
    match partitions:
        case dg.TimeWindowPartitionsDefinition():
            return _why_no_window(partitions, key)
        case dg.DynamicPartitionsDefinition():
            return f"{key!r} is not among the dynamic partitions {partitions.name!r}; add it to them first."
        case dg.StaticPartitionsDefinition():
            keys = partitions.get_partition_keys()
            near = near_names(key, keys)
            return f"{key!r} {NO_KEY}{f'; did you mean {near}?' if near else f': {few_of(keys)}.'}"
        case dg.MultiPartitionsDefinition():
            dimensions = "|".join(partitions.partition_dimension_names)
            return f"{key!r} {NO_KEYS}; write {dimensions} with a key of each."
        case _:
            return f"{key!r} {NO_KEY}."


def existing_keys(partitions: dg.PartitionsDefinition) -> Keys:
    """The keys that exist at the time of Dagster's context."""
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition) and (timed := time_keys_of(partitions)) is not None:
        with dg.partition_loading_context() as context:
            return timed.line(context.effective_dt.timestamp())
    return _DynamicKeys(partitions) if is_dynamic(partitions) else ListedKeys(partitions.get_partition_keys())


class _DynamicKeys(ListedKeys):
    """The keys of a dynamic definition, which are not loaded to find one of them."""

    def __init__(self, partitions: dg.PartitionsDefinition) -> None:
        self._partitions = partitions

    def place_of(self, key: str) -> float | None:
        return 0 if self._partitions.has_partition_key(key) else None

    def all(self) -> Sequence[str]:
        return self._partitions.get_partition_keys()


def _has(partitions: dg.PartitionsDefinition, key: str) -> bool:
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition) and time_keys_of(partitions) is not None:
        return existing_keys(partitions).place_of(key) is not None
    if not partitions.has_partition_key(key):
        return False
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        # Dagster takes 05:30 for the hour that begins at 06:00, which would be a second name of one partition.
        start = partitions.time_window_for_partition_key(key).start
        found = partitions.get_partition_key_for_timestamp(start.timestamp())
        return found == key or (shifts_by_part_of_an_hour(start) and is_listed(partitions, key))
    return True


def _why_no_window(partitions: dg.TimeWindowPartitionsDefinition, key: str) -> str:
    first = partitions.get_first_partition_key()
    last = partitions.get_last_partition_key()
    if first is None or last is None:
        return "none of its partitions exists yet."
    try:
        written = datetime.strptime(key, partitions.fmt).strftime(partitions.fmt)
        start = partitions.start_time_for_partition_key(key)
    except ValueError:
        return f"{key!r} is not a key of its partitions, which look like {first}."
    if written != key:
        return f"{key!r} is not how its key is written; write {written}."
    if start < partitions.start:
        return f"its partitions begin with {first}."
    if partitions.end is not None and start >= partitions.end:
        return f"its partitions end with {last}."
    if start.strftime(partitions.fmt) != key:
        return f"{key!r} is not the beginning of one of its partitions, which look like {first}."
    return f"{key} has not passed yet; the last partition so far is {last}."


def is_dynamic(partitions: dg.PartitionsDefinition) -> bool:
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return any(is_dynamic(dimension.partitions_def) for dimension in partitions.partitions_defs)
    return isinstance(partitions, dg.DynamicPartitionsDefinition)


def refs_of_dataset(dataset: DatasetSpec, instance: dagster_private.DynamicPartitionsStore) -> list[Ref]:
    """Every existing ref of a dataset, in definition order."""
    if (partitions := partitions_from(dataset.partitions)) is None:
        return [make_ref(dataset.asset, None)]
    keys = partitions.get_partition_keys(dynamic_partitions_store=instance)
    return [make_ref(dataset.asset, key) for key in keys]
