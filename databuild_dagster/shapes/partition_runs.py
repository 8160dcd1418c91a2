"""Partitions of a dataset become runs: windows of time that follow one another and are alike.

A list for people has a line for each run. A run has a name that selects exactly its partitions, `ASSET@FROM..TO` (rule 2.5),
so only windows of time are put together: the names of other partitions do not follow from those of their neighbors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from databuild_dagster.bindings.registry.plain_keys import dimensions_of_time
from databuild_dagster.engine.why.alike import likeness_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.selections import DIMENSIONS, RANGE


class Listed(NamedTuple):
    """A partition of a list."""

    ref: Ref
    #: None for a missing one.
    state: str | None
    uuid: str | None
    why: str | None


class Run(NamedTuple):
    """Partitions that are alike, in the order of time."""

    partitions: Sequence[Listed]
    #: The ref, or the range of them.
    name: Ref

    @property
    def why(self) -> str | None:
        """The reason of the first, and the number of others that differ from it in names and times alone."""
        why = self.partitions[0].why
        n_others = len({partition.why for partition in self.partitions}) - 1
        return f"{why} (and {n_others} like it)" if n_others else why


def runs_of(dataset: DatasetSpec, existing: Iterable[Ref], listed: Iterable[Listed]) -> list[Run]:
    """The listed partitions in runs; `existing` are the refs between which a listed one may be missing, in their order."""
    are_windows = [] if dataset.partitions is None else dimensions_of_time(dataset.partitions)
    if True not in are_windows:
        return [Run([partition], partition.ref) for partition in listed]
    n, time = len(are_windows), are_windows.index(True)
    windows = dict.fromkeys(key[time] for key in (_key_of(ref, n) for ref in existing) if key is not None)
    place_of = {window: place for place, window in enumerate(windows)}
    runs: list[list[Listed]] = []
    # By the keys of the other dimensions: the newest run, the likeness of its partitions, and the place that continues it.
    newest: dict[tuple[str, ...], tuple[list[Listed], object, int]] = {}
    for partition in listed:
        key, likeness = _key_of(partition.ref, n), _likeness(partition)
        # A partition that the definition has not any more has no neighbors.
        place = None if key is None else place_of.get(key[time])
        if key is None or place is None:
            runs.append([partition])
            continue
        others = (*key[:time], *key[time + 1 :])
        run, of_run, following = newest.get(others, ([], None, place))
        if place != following or likeness != of_run:
            run = []
            runs.append(run)
        run.append(partition)
        newest[others] = run, likeness, place + 1
    return [Run(run, _name_of(run, n, time)) for run in runs]


def _key_of(ref: Ref, n: int) -> list[str] | None:
    """The key of each of n dimensions; None for a key of another number of them."""
    key = partition_key_of(ref)
    keys = [] if key is None else key.split(DIMENSIONS) if n > 1 else [key]
    return keys if len(keys) == n else None


def _likeness(partition: Listed) -> tuple[str | None, str | None]:
    return partition.state, None if partition.why is None else likeness_of(partition.ref, partition.why)


def _name_of(run: Sequence[Listed], n: int, time: int) -> Ref:
    first, last = run[0].ref, run[-1].ref
    keys, keys_of_last = _key_of(first, n), _key_of(last, n)
    if len(run) == 1 or keys is None or keys_of_last is None:
        return first
    keys[time] = f"{keys[time]}{RANGE}{keys_of_last[time]}"
    return make_ref(asset_of(first), DIMENSIONS.join(keys))
