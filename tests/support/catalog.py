"""A catalog of a handful of datasets, in which partitions and mappings are short texts.

Partitions are keys with commas between; a mapping is `same` (the same key, or the unpartitioned upstream), `all` (every
key of the upstream) or a key of the upstream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from databuild_dagster.model.datasets import ArcSpec, DatasetKind, DatasetSpec, InputSpec

HERE = "here"


def dataset(
    asset: str,
    *needs: str | tuple[str, str],
    keys: Iterable[str] = (),
    job: str | None = None,
    kind: DatasetKind = DatasetKind.OURS,
    location: str = HERE,
    code_version: str | None = "1",
    most: int = 1000,
    concurrency: int | None = None,
    subscribe: Iterable[str | tuple[str, str]] = (),
    follow_late: bool = False,
    spark: bool = False,
) -> DatasetSpec:
    """`dataset("b", "a", ("c", "all"), keys=DAYS)` needs the same key of `a` and every key of `c`."""
    inputs, sources = _inputs(needs), _inputs(subscribe)
    return DatasetSpec(
        asset=asset,
        job=job or asset,
        location=location,
        kind=kind,
        partitions=",".join(keys) or None,
        inputs=inputs,
        code_version=code_version,
        max_partitions_per_launch=most,
        concurrency=concurrency,
        arc=ArcSpec(sources, follow_late) if sources else msgspec.UNSET,
        spark=spark or msgspec.UNSET,
    )


def _inputs(named: Iterable[str | tuple[str, str]]) -> tuple[InputSpec, ...]:
    pairs = [(item, "same") if isinstance(item, str) else item for item in named]
    return tuple(InputSpec(asset=upstream, mapping=mapping, param=upstream) for upstream, mapping in pairs)


class SmallCatalog:
    """`model.datasets.Catalog` over `dataset`s."""

    def __init__(self, datasets: Iterable[DatasetSpec]) -> None:
        self.datasets = {spec.asset: spec for spec in datasets}

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        keys = self.keys_of(dataset)
        if partition_key in keys:
            return None
        return f"{partition_key!r} is not one of {', '.join(str(key) for key in keys)}"

    def keys_of(self, dataset: DatasetSpec) -> list[str | None]:
        if dataset.partitions is None:
            return [None]
        return (
            json.loads(dataset.partitions)["partition_keys"]
            if "{" in dataset.partitions
            else dataset.partitions.split(",")
        )

    def absent(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> dict[str | None, str]:
        return {key: why for key in partition_keys if (why := self.why_not(dataset, key)) is not None}

    def left_out(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> frozenset[str | None]:
        return frozenset(partition_keys).difference(self.keys_of(dataset))

    def is_moved(self, dataset: DatasetSpec, partition_key: str | None, before: str | None) -> bool:
        return False

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[str, ...]:
        refs: dict[str, None] = {}
        for need in dataset.inputs:
            refs.update(dict.fromkeys(self._mapped(need, partition_key)))
        return tuple(refs)

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        ref = source.asset if partition_key is None else f"{source.asset}@{partition_key}"
        return tuple(key for key in self.keys_of(dataset) if ref in self._mapped(source, key))

    def _mapped(self, need: InputSpec, partition_key: str | None) -> list[str]:
        keys = self.keys_of(self.datasets[need.asset])
        if keys == [None]:
            return [need.asset]
        chosen = keys if need.mapping == "all" else [partition_key] if need.mapping == "same" else [need.mapping]
        return [f"{need.asset}@{key}" for key in chosen]

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        ordered = sorted(partition_keys, key=self.keys_of(dataset).index)
        return tuple(tuple(ordered[start : start + most]) for start in range(0, len(ordered), most))
