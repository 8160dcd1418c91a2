"""Errors of published tables."""

from databuild_dagster.model.errors import Conflict, DatabuildError, NotFound, Refused


class NotPublished(Refused):
    """{asset} is published as no table."""

    hint = "Give the asset publish=Iceberg(…) or publish=Delta(), or build_definitions a default, and load the definitions."


class TableLibraryMissing(DatabuildError):
    """The table of {asset} needs {module}, which is not installed here."""

    hint = "Install it: pip install 'databuild-dagster[{extra}]'."


class UnknownCatalog(Refused):
    """The table of {asset} is in catalog {catalog!r}, which pyiceberg does not know: {why}."""

    hint = (
        "Describe it in .pyiceberg.yaml, or by PYICEBERG_CATALOG__{variable}__URI in the environment of each process."
    )


class CatalogAway(DatabuildError):
    """The table {table} of {asset} cannot be reached: {why}."""

    hint = (
        "Builds continue, and the next tick publishes what is new since; `databuild status` shows how far the table is."
    )


class PublishingContinues(DatabuildError):
    """The table of {asset} is not published yet: its catalog or storage does not answer, or takes long."""

    hint = "The next tick looks again. `databuild admin publish {asset}` waits for the end, and Ctrl-C ends that wait."


class NoPlaceForCatalog(Refused):
    """The table of {asset} has no catalog, and {root} is an object store, where no SQLite file can be."""

    hint = "Name a catalog of pyiceberg's configuration: Iceberg(catalog=…)."


class TableOfAnother(Refused):
    """The table {table} of {asset} belongs to another build state ({found}; this one is {own})."""

    hint = "Name another table; after a move, a restore or an import, `databuild admin publish --take-over {asset}` takes it over."


class TableOfAnotherDataset(Refused):
    """The table {table} of {asset} is that of dataset {found}."""

    hint = "Name another table for one of them; the table of a renamed dataset has to be dropped in its catalog first."


class TableElsewhere(Refused):
    """The metadata of the table {table} of {asset} is not in {folder}, which is the place of its dataset now."""

    hint = "After a move or a copy of the home, `databuild admin publish --take-over {asset}` creates the table there."


class TableNotOurs(Refused):
    """The table {table} of {asset} was there before, and databuild has not made it."""

    hint = "Name another table, or drop that one in its catalog."


class ForeignSnapshot(Refused):
    """Another writer has changed the table {table} of {asset}: its snapshot {snapshot} does not say up to which seq it holds."""

    hint = (
        "`databuild admin publish --repair {asset}` makes it what the log says; on_conflict='rebase' does so each time."
    )


class TableAhead(Refused):
    """The table {table} of {asset} holds up to seq {found}, and the log ends at seq {head}."""

    hint = "The log was restored from a backup; `databuild admin publish --repair {asset}` makes the table what the log says now."


class TableOfAnotherHistory(Refused):
    """The table {table} of {asset} holds up to seq {seq} of another history of this log: event {seq} is not the one it was."""

    hint = "The log was restored from a backup; `databuild admin publish --repair {asset}` makes the table what the log says now."


class StoreIsACopy(Refused):
    """The table of {asset} is not published from here: this build state is a copy, or was moved or restored."""

    hint = "`databuild log take-over` makes it the owner of its warehouses and tables."


class PartitionColumnsDiffer(Refused):
    """The table {table} of {asset} is partitioned by {found}, and the dataset by {own}."""

    hint = "A table's partition columns stay: publish under another name, or drop the table."


class KeyWithoutValue(Refused):
    """The partition key {key!r} of {asset} is no {type} by the format {format!r}."""

    hint = "Publish the key as text: partition_type='string'."


class ColumnRefused(Refused):
    """The table {table} of {asset} cannot have the column {column!r}: {why}."""

    hint = "Rename or convert the column in the asset's function, or publish the dataset in the other format."


def name_of_partition(own: str, keyword: str) -> str:
    """Why a column is refused that has the name of a partition column, in any case of its letters."""
    return f"it is the name of the partition column {own!r}, upper and lower case being one; publish={keyword} gives that another"


class ColumnsDiffer(Refused):
    """The columns of {path} do not fit the table {table} of {asset}: {why}."""

    hint = "A table's columns can be added and widened; for any other change publish under another name."


class OutsideOfTable(Refused):
    """The Delta table of {asset} cannot list {path}, which is outside of its root {root}."""

    hint = "Delta's paths are relative. Publish as Iceberg, or build the partition here instead of adopting its files."


class NameNotOfTables(Refused):
    """The Iceberg table of {asset} cannot list {path!r}: its readers open no name with #, ? or a control character."""

    hint = "Rename the file and record it again, or build the partition here."


class FormatNotOfTables(Refused):
    """The table of {asset} cannot list {path}, which is {format} and not Parquet."""


class PublishConflict(Conflict):
    """Another publisher changed {entity} first."""


class TableDamaged(NotFound):
    """The table {table} of {asset} cannot be read: {why}."""

    hint = "`databuild admin publish --repair {asset}` makes it what the log says."


class NoTags(Refused):
    """The table of {asset} is a Delta table, and Delta has no tags."""

    hint = "`databuild show --full` names the version; publish the dataset as Iceberg to keep a snapshot by a name."


class TagTaken(Refused):
    """The table {table} of {asset} has a branch or tag {tag!r} already, on snapshot {found}."""

    hint = "Choose another name, or drop that tag in the catalog."


class SnapshotExpired(NotFound):
    """Snapshot {snapshot} of the table {table} of {asset} has just expired."""

    hint = "Run the command again: it looks for the newest snapshot that holds the instance."


class NotInTable(Refused):
    """No snapshot of the table {table} of {asset} holds instance {uuid}."""

    hint = "`databuild admin publish {asset}` publishes what is live; snapshots of earlier instances expire with `databuild gc`."


class TableSilent(DatabuildError):
    """The table {table} of {asset} was not done within {seconds:.0f} s."""

    hint = "Its catalog or storage does not answer, or takes long; give it more time by --timeout. A repetition changes nothing."
