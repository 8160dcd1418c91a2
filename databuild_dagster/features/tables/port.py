"""`Table`: the interface of a published table, with an adapter per format."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from datetime import date, datetime
from typing import NamedTuple, Protocol, TypeVar

from databuild_dagster.features.tables.errors import TableSilent
from databuild_dagster.model.datasets import TableFormat, TableSpec
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.threads import in_own_thread

T = TypeVar("T")

#: The seconds that a receipt waits for a table, which is only a part of its answer.
RECEIPT_SECONDS = 30.0
#: The folder of the metadata of an Iceberg table without a named catalog, in that of its dataset.
METADATA_FOLDER = "iceberg"
#: The values of the partition columns of a row, in their order; empty for a dataset without partitions.
Partition = tuple[date | datetime | str, ...]


class Mark(NamedTuple):
    """The writer of a table's newest snapshot."""

    store_id: str
    #: The table is what readers of the dataset saw when this was the last event.
    seq: int
    #: That of the event (`EventQueries.fingerprint`); empty at seq 0, before the first event.
    fingerprint: str = ""


class Listed(NamedTuple):
    """A snapshot of a table's history."""

    #: The snapshot id of Iceberg, the version of Delta.
    id: int
    mark: Mark
    tags: tuple[str, ...] = ()


class TableFile(NamedTuple):
    """A data file of an instance."""

    #: A local path, or a url.
    path: str
    bytes: int
    rows: int


class Source(NamedTuple):
    """The instance that is in a partition from a snapshot on."""

    ref: Ref
    uuid: str
    job_run: str


class Snapshot(NamedTuple):
    """A snapshot that was committed, or that a dry run would commit."""

    #: The snapshot id of Iceberg, the version of Delta; None in a dry run.
    id: int | None
    files_added: int
    files_removed: int
    #: The rows of the whole table; None in a dry run.
    rows: int | None = None
    #: The place of the table, and the file that describes this snapshot; empty in a dry run.
    uri: str = ""
    metadata_file: str = ""


class Contents(NamedTuple):
    """The files that partitions of a table should have."""

    #: A partition without files has none in the table.
    files: Mapping[Partition, Sequence[TableFile]]
    #: Whether partitions that are not named should have no files.
    is_whole: bool
    sources: Sequence[Source] = ()
    #: Partitions that had equal rows when the event of the mark before was the last one (rule 4.8).
    equal: frozenset[Partition] = frozenset()

    def keeping_rows(
        self, gone: Iterable[tuple[Partition, int]], new: Iterable[tuple[Partition, int]]
    ) -> set[Partition]:
        """The partitions among `equal` from which as many rows leave as come; the files that move have a partition and rows each.

        The table may lack the rows of a partition that the log has: its key was left out when the mark was written.
        """
        n_more: Counter[Partition] = Counter()
        for partition, rows in new:
            n_more[partition] += rows
        for partition, rows in gone:
            n_more[partition] -= rows
        return {partition for partition in self.equal if n_more[partition] == 0}


class Place(NamedTuple):
    """The table of a dataset."""

    asset: str
    spec: TableSpec
    #: The folder of its dataset is the root of a Delta table; an Iceberg table without a named catalog has its metadata there.
    warehouse: Warehouse

    @property
    def root(self) -> str:
        return self.warehouse.dataset_dir(self.asset)

    @property
    def uri(self) -> str | None:
        """Where the table is; None for a table of a named catalog, which alone knows it."""
        if self.spec.format is TableFormat.DELTA:
            return self.root
        return None if self.spec.catalog else f"{self.root}/{METADATA_FOLDER}"

    @property
    def shown(self) -> str:
        """The name of the table in messages."""
        return self.spec.name if self.spec.format is TableFormat.ICEBERG else self.root


class Table(Protocol):
    """A published table. Its methods raise `CatalogAway`, and errors of the warehouse."""

    def mark(self) -> Mark | None:
        """The mark of the newest snapshot; None if there is no table yet.

        Raises `TableElsewhere`, `TableNotOurs`, `TableOfAnotherDataset`, `ForeignSnapshot` and `PartitionColumnsDiffer`.
        """

    def replace(
        self, contents: Contents, mark: Mark, before: Mark | None, *, dry_run: bool = False, always: bool = False
    ) -> Snapshot | None:
        """A snapshot after which the partitions have exactly the files of `contents`; None if they have them already, unless `always`.

        `before` is the mark that the caller has read; None also for a table whose mark cannot be read. Creates the table. Files
        that move between equal rows are marked as without a change of rows, as far as the format can.
        Raises `PublishConflict`, `ColumnRefused`, `ColumnsDiffer`, `OutsideOfTable`, `NameNotOfTables`, `ListedFileLost`.
        """

    def files(self) -> dict[str, Partition]:
        """Each file of the newest snapshot with its partition; empty if there is no table."""

    def kept(self, since: float) -> set[str]:
        """The files of each snapshot that was the newest at or after a time, in seconds since 1970 UTC."""

    def expire(self, since: float) -> int:
        """Forget the other snapshots, as far as the format forgets; returns their number."""

    def history(self) -> Iterator[Listed]:
        """The snapshots with a mark, newest first, as the iteration asks for them."""

    def tag(self, name: str, snapshot: int) -> None:
        """Give a snapshot a name, under which `expire` keeps it. Raises `NoTags`, `TagTaken`, `SnapshotExpired`, `PublishConflict`."""


#: From a place to its table.
OpenTable = Callable[[Place], Table]


def within(seconds: float | None, place: Place, call: Callable[[], T]) -> T:
    """The result of a call that asks the table of a place; None waits without a bound.

    Raises `TableSilent`, and what the call raises. A call that is late continues in its thread, and ends with the process.
    """
    if seconds is None:
        return call()
    late = in_own_thread(call, f"databuild table of {place.asset}")
    if not wait([late], seconds).done:
        raise TableSilent(asset=place.asset, table=place.shown, seconds=seconds)
    return late.result()
