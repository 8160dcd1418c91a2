"""What a code location says of its datasets (SPEC 5.7).

Partition definitions and mappings are opaque texts here: the floor that knows Dagster writes and reads them.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import msgspec

from databuild_dagster.model.refs import Ref

#: Registrations kept unpacked; a code location has some hundreds at most.
MAX_UNPACKED = 2_000
#: The location of assets that run without a deployed one: a script's or a test's `materialize([…])`. It owns nothing.
AD_HOC_LOCATION = "(ad hoc)"


class DatasetKind(StrEnum):
    """Who can build a dataset."""

    #: Built by a job of ours: its step claims its refs and reports for itself.
    OURS = "ours"
    #: A plain Dagster asset: launched as an ordinary Dagster run, judged by its run's end (SPEC 6.11).
    PLAIN = "plain"
    #: Nothing here can build it; it waits until it appears.
    SOURCE = "source"
    #: Nothing here can build it: files that come from outside become its lots, each with a manifest of ours (SPEC 10.6).
    BOUNDARY = "boundary"

    @property
    def is_built(self) -> bool:
        """Whether somebody here can be told to build it."""
        return self in (DatasetKind.OURS, DatasetKind.PLAIN)

    @property
    def is_foreign(self) -> bool:
        """Whether its data is in a place of its own, and Dagster is who knows whether it is there (SPEC 6.11)."""
        return self in (DatasetKind.PLAIN, DatasetKind.SOURCE)


class InputSpec(msgspec.Struct, frozen=True):
    """One declared input of a dataset: the asset, its partition mapping (opaque), and the parameter that reads it."""

    asset: str
    mapping: str | None = None
    #: None when it only has to be live.
    param: str | None = None
    #: Which of its rows the parameter gets; not there at all where it gets all of them.
    where: str | msgspec.UnsetType = msgspec.UNSET


class ArcSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What wakes a dataset by itself: a new live instance of any of its sources (SPEC 10.5)."""

    #: Declared inputs among them have to be live too; the others only wake it.
    sources: tuple[InputSpec, ...]
    #: A source's new instance has a lot that is live built anew.
    follow_late: bool = False


class DatasetSpec(msgspec.Struct, frozen=True):
    """One dataset as its code location registered it."""

    asset: str
    #: What builds it together with the other outputs of the same name.
    job: str
    location: str
    kind: DatasetKind = DatasetKind.OURS
    #: The partitions definition, None when unpartitioned.
    partitions: str | None = None
    inputs: tuple[InputSpec, ...] = ()
    code_version: str | None = None
    max_partitions_per_launch: int = 1000
    #: Launches of its job that may run at once; None leaves it to the tick's limits.
    concurrency: int | None = None
    #: Not there at all in what is not an arc, so that its registration stays the text that older versions wrote.
    arc: ArcSpec | msgspec.UnsetType = msgspec.UNSET
    #: As whoever takes its lots up outside of Dagster knows it; declared by a tag, and not there where it is not.
    version: str | msgspec.UnsetType = msgspec.UNSET


class Standing(StrEnum):
    """How a code location's word on a dataset stands to what is registered under that name."""

    #: Its own to tell.
    OWN = "own"
    #: It only says that the asset exists, and another location has registered it: nothing to tell.
    KNOWN = "known"
    #: Another location can build it. One asset has one owner, or each load would overwrite the other's.
    TAKEN = "taken"


def standing_of(told: DatasetSpec, present: DatasetSpec | None) -> Standing:
    """Who can build a dataset goes before who only waits for it; among equals, who was first (SPEC 5.7)."""
    if present is None or present.location in (told.location, AD_HOC_LOCATION):
        return Standing.OWN
    if told.kind is DatasetKind.SOURCE:
        return Standing.KNOWN
    return Standing.OWN if present.kind is DatasetKind.SOURCE else Standing.TAKEN


class Catalog(Protocol):
    """Answers about partitions from registered datasets alone, by the floor that knows Dagster; no user code is imported."""

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """One sentence why the key is not a partition of the dataset, None if it is."""
        ...

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
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


_decoder = msgspec.json.Decoder(DatasetSpec)


@lru_cache(maxsize=MAX_UNPACKED)
def dataset_from(text: str) -> DatasetSpec:
    """A registration as the store has it. The same text is the same object: partitions may be thousands of names."""
    return _decoder.decode(text)
