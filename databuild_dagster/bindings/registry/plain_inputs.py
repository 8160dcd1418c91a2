"""The inputs of a partition and the launches of a job, from registered texts by arithmetic, without Dagster.

None is the answer where Dagster has to decide: for a definition that `plain_keys` does not have, for a mapping by a table of keys,
and for an input partition that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product, takewhile
from typing import Any, Final, NamedTuple

from databuild_dagster.bindings.registry.cron_times import CronTimes
from databuild_dagster.bindings.registry.plain_keys import (
    Dimension,
    TimeKeys,
    TimeLine,
    lines_along,
    longest_dimension,
    plain_dimensions,
    plainly_has,
)
from databuild_dagster.model.datasets import MAX_UNPACKED, DatasetSpec, InputSpec
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.model.selections import DIMENSIONS

_Mapping = Mapping[str, Any]
_ALL: Final[_Mapping] = {"__class__": "AllPartitionMapping"}
_SAME: Final[_Mapping] = {"__class__": "IdentityPartitionMapping"}
_SAME_TIME: Final[_Mapping] = {"__class__": "TimeWindowPartitionMapping", "start_offset": 0, "end_offset": 0}


class PlainPartitions:
    """The partitions of datasets as they are at one time."""

    def __init__(self, now: float, dataset_of: Callable[[str], DatasetSpec | None]) -> None:
        self._now, self._dataset_of = now, dataset_of
        #: By definition; empty for a definition that Dagster has to compute.
        self._dimensions: dict[str, Sequence[Dimension]] = {}

    def dimensions(self, partitions: str) -> Sequence[Dimension]:
        if partitions not in self._dimensions:
            self._dimensions[partitions] = plain_dimensions(partitions, self._now) or ()
        return self._dimensions[partitions]

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...] | None:
        """As `Catalog.inputs`."""
        refs: dict[Ref, None] = {}
        for spec in dataset.inputs:
            keys = self._input_keys(dataset.partitions, spec, partition_key)
            if keys is None:
                return None
            refs.update((make_ref(spec.asset, key), None) for key in keys)
        return tuple(refs)

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...] | None:
        """As `Catalog.launchable`."""
        keys = [key for key in partition_keys if key is not None]
        if dataset.partitions is None or not keys:
            return (partition_keys,)
        dimensions = self.dimensions(dataset.partitions)
        if not all(plainly_has(dimensions, key) for key in keys):
            return None
        along = longest_dimension([isinstance(one.keys, TimeLine) for one in dimensions])
        lines = lines_along(keys, len(dimensions), along, lambda part: dimensions[along].keys.place_of(part) or 0)
        return tuple(tuple(line[at : at + most]) for line in lines for at in range(0, len(line), most))

    def _input_keys(
        self, partitions: str | None, spec: InputSpec, partition_key: str | None
    ) -> Sequence[str | None] | None:
        mapping, is_here, upstream = _recorded(spec.mapping)
        if not is_here and (found := self._dataset_of(spec.asset)) is not None:
            upstream = found.partitions
        if upstream is None:
            return [None]
        if partitions == upstream and mapping in (None, _SAME):
            return [partition_key]
        own = () if partitions is None else self.dimensions(partitions)
        inputs = self.dimensions(upstream)
        if not inputs or bool(own) != bool(partitions):
            return None
        if mapping == _ALL or not own:
            along = [one.keys.all() for one in inputs] if mapping in (None, _ALL) else None
        elif partition_key is None or not plainly_has(own, partition_key):
            return None
        else:
            parts = partition_key.split(DIMENSIONS) if len(own) > 1 else [partition_key]
            along = _mapped(mapping, own, parts, inputs)
        if along is None:
            return None
        keys = [DIMENSIONS.join(found) for found in product(*along)]
        # Dagster has other keys than those of time in a set.
        return keys if len(inputs) == 1 and isinstance(inputs[0].keys, TimeLine) else sorted(keys)


def _mapped(
    mapping: _Mapping | None, own: Sequence[Dimension], parts: Sequence[str], inputs: Sequence[Dimension]
) -> list[Sequence[str]] | None:
    """For each dimension of the input the keys that a key with some parts reads."""
    if len(own) == len(inputs) == 1:
        place, of_input = 0, 0
    elif mapping is None and 1 in (len(own), len(inputs)):
        (single,), many = (own, inputs) if len(own) == 1 else (inputs, own)
        equal = [at for at, one in enumerate(many) if one.definition == single.definition]
        timed = [at for at, one in enumerate(many) if isinstance(one.keys, TimeLine)]
        if len(found := equal or timed) != 1 or not (equal or isinstance(single.keys, TimeLine)):
            return None
        place, of_input = (0, found[0]) if many is inputs else (found[0], 0)
        mapping = _SAME if equal else _SAME_TIME
    else:
        return None
    keys = _keys_read(mapping, own[place], parts[place], inputs[of_input])
    return None if keys is None else [keys if at == of_input else one.keys.all() for at, one in enumerate(inputs)]


def _keys_read(mapping: _Mapping | None, own: Dimension, part: str, read: Dimension) -> Sequence[str] | None:
    if mapping is None:
        mapping = _SAME_TIME if isinstance(own.keys, TimeLine) and isinstance(read.keys, TimeLine) else _SAME
    match mapping, own.keys, read.keys:
        case {"__class__": "IdentityPartitionMapping"}, _, keys:
            return None if keys.place_of(part) is None else [part]
        case {"__class__": "TimeWindowPartitionMapping"}, TimeLine(keys=of_own), TimeLine() as line:
            start = of_own.start_of(part)
            read_by = None if start is None else _windows_read(of_own, start, line, mapping)
            # Of a dimension, Dagster requires also the windows that never exist.
            return read_by[0] if read_by is not None and (read.name is None or read_by[1]) else None
        case _:
            return None


def _windows_read(own: TimeKeys, start: float, line: TimeLine, mapping: _Mapping) -> tuple[Sequence[str], bool] | None:
    """The windows of the input that a window overlaps, after its ends moved by a number of windows; and whether they cover it."""
    times, bounds = line.keys.times, line.bounds
    if bounds is None or bounds[1] < bounds[0] or own.times.zone is not times.zone:
        return None
    if own.exclusions or line.keys.exclusions:
        return None
    first, stop = bounds[0], times.after(bounds[1])
    begin = next(times.back(_moved(own.times, start, mapping["start_offset"], first, stop)))
    end = times.at_or_after(_moved(own.times, own.times.after(start), mapping["end_offset"], first, stop))
    if begin >= end:
        return [], True
    is_over = line.keys.end is not None and stop >= line.keys.end
    if begin >= stop or end <= first or (end > stop and not is_over):
        return None
    # No partition ever exists before the first one, and after the end of the definition.
    exist = takewhile(lambda at: at < min(end, stop), times.onward(max(begin, first)))
    return [line.keys.key_of(at) for at in exist], first <= begin and end <= stop


def _moved(times: CronTimes, moment: float, offset: int, first: float, stop: float) -> float:
    """A moved end does not leave the time of the input's partitions."""
    if offset < 0:
        return max(first, next(islice(times.back(moment), -offset, None)))
    return min(stop, next(islice(times.onward(moment), offset, None))) if offset else moment


class _Recorded(NamedTuple):
    mapping: _Mapping | None = None
    is_here: bool = False
    upstream: str | None = None


@lru_cache(maxsize=MAX_UNPACKED)
def _recorded(text: str | None) -> _Recorded:
    """A mapping as `registration.mapping_from` reads it."""
    if text is None:
        return _Recorded()
    parts = json.loads(text)
    mapping = None if parts["mapping"] is None else json.loads(parts["mapping"])
    return _Recorded(mapping, parts["here"], parts["partitions"])
