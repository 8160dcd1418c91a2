"""What the rules need to know of partitions, answered by the floor that knows Dagster (SPEC 5.7)."""

from __future__ import annotations

from typing import Protocol

from databuild_dagster.model.datasets import DatasetSpec, InputSpec


class Catalog(Protocol):
    """Partition definitions and mappings, from registered datasets alone; imports no user code."""

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """One sentence why the key is not a partition of the dataset, None if it is."""
        ...

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[str, ...]:
        """The declared input refs of one partition, through the partition mappings; each once."""
        ...

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        """The partition keys of a dataset that have a source's partition among their inputs: `inputs`, read backwards.

        Only those that exist by now.
        """
        ...

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        """The keys in the order of the definition, cut into sets that one Dagster run can host (SPEC 11.2)."""
        ...

    def follows_key(self, dataset: DatasetSpec, spec: InputSpec) -> bool:
        """Whether an input's partitions depend on the output's partition key, by its declared mapping alone."""
        ...
