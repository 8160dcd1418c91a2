"""The registration of a dataset by its code location (rule 5.7).

Partition definitions and mappings are opaque texts: the floor that knows Dagster writes and reads them.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import msgspec

from databuild_dagster.model.refs import Ref

#: Decoded registrations in memory; a code location has some hundreds at most.
MAX_UNPACKED = 2_000
#: The location of assets without a deployed location, such as a script's `materialize([…])`. It owns no dataset.
AD_HOC_LOCATION = "(ad hoc)"
#: The rules by which code has a digest, which precede each digest; older versions made `code-sha256:` of a function alone.
CODE_RULES = "tree-1"
#: In place of the digest of code that cannot be followed. It equals nothing.
UNKNOWN_CODE = "unknown"


class DatasetKind(StrEnum):
    """The maker of a dataset's partitions."""

    #: A job of ours: its step claims its refs and reports their builds.
    OURS = "ours"
    #: A plain Dagster asset: launched as an ordinary Dagster run, judged by its run's end (rule 6.11).
    PLAIN = "plain"
    #: No job here; it appears by itself.
    SOURCE = "source"
    #: No job here: files from outside become its lots, each with a manifest of ours (rule 10.6).
    BOUNDARY = "boundary"

    @property
    def is_built(self) -> bool:
        """A job here can build it."""
        return self in _BUILT

    @property
    def is_foreign(self) -> bool:
        """Its data is in a place that is not ours, and Dagster knows of its existence (rule 6.11)."""
        return self in _FOREIGN


# A tick asks for the kind of each dataset, and to look up members takes three times as long.
_BUILT = (DatasetKind.OURS, DatasetKind.PLAIN)
_FOREIGN = (DatasetKind.PLAIN, DatasetKind.SOURCE)


class InputSpec(msgspec.Struct, frozen=True):
    """A declared input of a dataset: the asset, its partition mapping (opaque), and the parameter that reads it."""

    asset: str
    mapping: str | None = None
    #: None when it only has to be live.
    param: str | None = None
    #: A filter of the rows that the parameter gets; absent for all rows.
    where: str | msgspec.UnsetType = msgspec.UNSET


class ArcSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sources whose new live instances make a dataset wanted (rule 10.5)."""

    #: A source that is a declared input has to be live too; the other sources only wake the arc.
    sources: tuple[InputSpec, ...]
    #: A new instance of a source rebuilds a live lot.
    follow_late: bool = False


class TableFormat(StrEnum):
    """The format of a published table."""

    ICEBERG = "iceberg"
    DELTA = "delta"


class PartitionType(StrEnum):
    """The type of a published table's partition column."""

    DATE = "date"
    #: In UTC.
    TIMESTAMP = "timestamp"
    STRING = "string"


class PartitionColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a published table that has a partition key, or a dimension of it."""

    name: str
    type: PartitionType = PartitionType.STRING
    #: How a key is a time, in the words of `strptime`; empty for text.
    format: str = ""
    #: The time zone of the keys.
    timezone: str = "UTC"


class TableSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The table that a dataset is published as (rule 10.10). It holds no secret, because the log keeps it."""

    format: TableFormat
    #: Iceberg: the namespace and the name, `shop.sales`. A Delta table is named by its place.
    name: str = ""
    #: Iceberg: a name in pyiceberg's configuration; empty for the SQLite file in the warehouse.
    catalog: str = ""
    #: The warehouse of the table; empty for the home's own.
    warehouse: str = ""
    #: A column for each dimension of the partition key; none for a dataset without partitions.
    columns: tuple[PartitionColumn, ...] = ()
    #: Tainted instances stay in the table.
    keep_tainted: bool = False
    #: Snapshots of other writers are replaced, not refused.
    rebase: bool = False


class CodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code of a dataset's function and of the project's code that it reaches (rule 4.7)."""

    #: None if it is unknown.
    digest: str | None = None
    #: Why it is unknown.
    unknown: tuple[str, ...] = ()
    #: Its functions, classes and constants, `clean in shop/cleaning.py`, each with a digest.
    parts: tuple[tuple[str, str], ...] = ()
    #: What else decides the rows, by name: resources but Spark's, and the configuration of the run. No digest covers it.
    settings: tuple[str, ...] = ()


class DatasetSpec(msgspec.Struct, frozen=True):
    """A dataset as its code location registered it."""

    asset: str
    #: Assets with the same name are outputs of one job.
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
    #: Absent without an arc, so that the registration stays the text that older versions wrote.
    arc: ArcSpec | msgspec.UnsetType = msgspec.UNSET
    #: The version by which programs outside Dagster know it, from a tag; absent without a version.
    version: str | msgspec.UnsetType = msgspec.UNSET
    #: The open table that it is published as; absent without a table.
    table: TableSpec | msgspec.UnsetType = msgspec.UNSET
    #: The pages may show a few of its rows; absent where its author has not allowed it.
    sample: bool | msgspec.UnsetType = msgspec.UNSET
    #: Builds record the content hash of their rows (rule 4.8); absent where they do not.
    same_data: bool | msgspec.UnsetType = msgspec.UNSET
    #: Its function makes equal rows of equal inputs, so an earlier instance may come back in place of a build (rule 4.9).
    deterministic: bool | msgspec.UnsetType = msgspec.UNSET
    #: Its function asks for Spark, so its launches wait while Spark is out of reach (rule 6.17); absent where it does not.
    spark: bool | msgspec.UnsetType = msgspec.UNSET
    #: Its group and owners in Dagster, by which pages filter; absent for Dagster's default group and without owners.
    group: str | msgspec.UnsetType = msgspec.UNSET
    owners: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    #: The actors who may promote what an environment built of it (rule 16.10); absent where every writer may.
    promoters: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    #: The code of its function; absent where no function of ours builds it, and in registrations of older versions.
    code: CodeSpec | msgspec.UnsetType = msgspec.UNSET

    @property
    def code_text(self) -> str | None:
        """The digest of its code, or `unknown`; None for a registration without code."""
        return (self.code.digest or UNKNOWN_CODE) if isinstance(self.code, CodeSpec) else None

    def is_of_this_code(self, code_version: str | None, code: str | None) -> bool:
        """Whether this code surely built an instance (rule 4.7). A code version of either decides alone; unknown code is no code."""
        if self.code_version is not None or code_version is not None:
            return self.code_version == code_version
        return isinstance(self.code, CodeSpec) and self.code.digest is not None and self.code.digest == code

    def is_of_other_code(self, code_version: str | None, code: str | None) -> bool:
        """Whether other code built an instance, which has a code version and a digest of its code (rule 4.7).

        A code version of either decides alone. Digests of different rules are not compared, so an update of this package changes
        nothing.
        """
        if self.code_version is not None or code_version is not None:
            return self.code_version != code_version
        known = self.code_text
        if known is None or code is None:
            return False
        if UNKNOWN_CODE in (known, code):
            return code == UNKNOWN_CODE or code.startswith(CODE_RULES)
        return known.partition(":")[0] == code.partition(":")[0] and known != code


class Standing(StrEnum):
    """A code location's right to register a dataset, by the registration that is there."""

    #: It registers the dataset.
    OWN = "own"
    #: It declares the asset as a source, and a different location has registered it.
    KNOWN = "known"
    #: A different location can build it. An asset has a single owner, because two owners would overwrite each other.
    TAKEN = "taken"


def standing_of(declared: DatasetSpec, present: DatasetSpec | None) -> Standing:
    """A location that can build a dataset precedes a location that reads it; among equals, the first location does (rule 5.7)."""
    if present is None or present.location in (declared.location, AD_HOC_LOCATION):
        return Standing.OWN
    if declared.kind is DatasetKind.SOURCE:
        return Standing.KNOWN
    return Standing.OWN if present.kind is DatasetKind.SOURCE else Standing.TAKEN


#: The words of `why_not` about a key of a quite different definition; a key in time may come before the first partition, for example.
NO_KEY = "is not one of its partitions"
NO_KEYS = "is not a key of its dimensions"


class Catalog(Protocol):
    """Answers about partitions from registered datasets alone, by the floor that knows Dagster; no user code is imported."""

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """A sentence why the key is not a partition of the dataset; None if it is."""

    def absent(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> dict[str | None, str]:
        """The keys that are not partitions of the dataset, each with the sentence of `why_not`."""

    def left_out(self, dataset: DatasetSpec, partition_keys: Iterable[str | None]) -> frozenset[str | None]:
        """The keys that the dataset's definition does not have, also not at a later time: readers leave them out."""

    def is_moved(self, dataset: DatasetSpec, partition_key: str | None, before: str | None) -> bool:
        """Whether a key of the dataset meant a different window of time under the partitions `before` (rule 2.6)."""

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
        """The declared input refs of a partition, through the partition mappings; each once."""

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        """The existing partition keys of a dataset that have a source's partition among their inputs: `inputs` backwards."""

    def launchable(
        self, dataset: DatasetSpec, partition_keys: tuple[str | None, ...], most: int
    ) -> tuple[tuple[str | None, ...], ...]:
        """The keys in the order of the definition, cut into sets that a single Dagster run can host (rule 11.2)."""

    def follows_key(self, dataset: DatasetSpec, spec: InputSpec) -> bool:
        """An input's partitions depend on the output's partition key, by its declared mapping alone."""


_decoder = msgspec.json.Decoder(DatasetSpec)


@lru_cache(maxsize=MAX_UNPACKED)
def dataset_from(text: str) -> DatasetSpec:
    """The registration of a stored text. The same text is the same object, because partitions may be thousands of names."""
    return _decoder.decode(text)
