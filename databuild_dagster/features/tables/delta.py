"""Delta: the log is written here, a create-only file per version, and deltalake reads it back (decision 0045).

The root of the table is the folder of its dataset, and paths are relative to it. Each version carries the mark twice: as a `txn`
action, by which other writers of Delta recognize a transaction, and in its `commitInfo`, which says whether the newest version
is ours.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from databuild_dagster.features.tables import errors
from databuild_dagster.features.tables.live_files import columns_of, read_footers, unpublishable
from databuild_dagster.features.tables.port import Contents, Listed, Mark, Partition, Place, Snapshot, TableFile
from databuild_dagster.model.datasets import PartitionType
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.wording import one_line
from databuild_dagster.version import __version__

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: The folder of the log, in the root of the table.
LOG_FOLDER: Final = "_delta_log"
#: Versions between two checkpoints, which spare readers the files before them.
CHECKPOINT_EVERY: Final = 50
#: The key of our facts in a version's `commitInfo`.
OWN: Final = "databuild"

#: A line: the type of an action, and its facts.
Action = dict[str, dict[str, Any]]

_log = logger(__name__)


class DeltaLog:
    """The versions of a table."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def commit(self, version: int, actions: Sequence[Action]) -> None:
        """Create a version. Raises `PublishConflict` if it exists, `DiskTrouble`, `StorageTrouble`."""
        if not self._place.warehouse.storage.create_only(self.path_of(version), _lines(actions)):
            raise errors.PublishConflict(entity=f"the table {self._place.shown}")
        if (version + 1) % CHECKPOINT_EVERY == 0:
            try:
                DeltaTable(self._place.root, version=version).create_checkpoint()
            except DeltaError as error:
                # It only makes reading faster, and the version is committed.
                log_failure(_log, f"the table of {self._place.asset} got no checkpoint", error)

    def actions(self, version: int) -> list[Action]:
        """The actions of a version; none for a version that does not exist any longer. Raises `TableDamaged`."""
        try:
            text = self._place.warehouse.storage.read_bytes(self.path_of(version))
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            why = f"version {version} of its log is no JSON"
            raise errors.TableDamaged(asset=self._place.asset, table=self._place.shown, why=why) from error

    def path_of(self, version: int) -> str:
        """The file of a version."""
        return f"{self._place.root}/{LOG_FOLDER}/{version:020}.json"

    def rewrite(self, version: int, actions: Sequence[Action]) -> None:
        """Replace a version by a version with the same files and rows. Raises `DiskTrouble`, `StorageTrouble`."""
        self._place.warehouse.storage.replace(self.path_of(version), _lines(actions))

    def renew_checkpoint(self, table: DeltaTable) -> None:
        """Replace the checkpoints, if there are any, by a checkpoint of the newest version.

        Raises `DeltaError`, `DiskTrouble`, `StorageTrouble`.
        """
        storage, folder = self._place.warehouse.storage, f"{self._place.root}/{LOG_FOLDER}"
        found = [file.path for file in storage.list_files(folder, deep=False) if ".checkpoint." in file.path]
        newest = f"{folder}/{table.version():020}."
        if found:
            table.create_checkpoint()
            earlier = [path for path in found if not path.startswith(newest)]
            storage.remove_files(earlier, within=folder)


def own_facts(actions: Sequence[Action]) -> dict[str, Any] | None:
    """What databuild records about a version; None for a version of a foreign writer."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return next((info[OWN] for info in infos if OWN in info), None)


def _lines(actions: Sequence[Action]) -> bytes:
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()


#: The key of the store in the table's configuration.
STORE_ID: Final = "databuild.store-id"
#: VACUUM of other writers takes the files of instances that no version lists for leftovers, once they are older than this.
RETENTION: Final = {"delta.deletedFileRetentionDuration": "interval 36500 days"}
#: Instances and job runs that a version names.
MAX_NAMED: Final = 100
#: Statistics have values of at most so many characters: a longer largest value would have to be rounded up.
MAX_CHARACTERS: Final = 32
#: Letters that a path keeps; any other letter is encoded, as Delta asks for.
_PLAIN: Final = "/=-_.~+,:@"
_TYPES: Final[Mapping[PartitionType, pa.DataType]] = {
    PartitionType.DATE: pa.date32(),
    PartitionType.TIMESTAMP: pa.timestamp("us", "UTC"),
    PartitionType.STRING: pa.string(),
}
_WITHOUT_ZONES: Final = "timestampNtz"


class _Present(NamedTuple):
    """A file of a version."""

    partition: Partition
    bytes: int
    #: None in a version of a foreign writer that does not count rows.
    rows: int | None


class DeltaTableHere:
    """`Table` in the folder of a dataset."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._facts = {"asset": place.asset, "table": place.shown}
        self._log = DeltaLog(place)
        self._partition_names = [column.name for column in place.spec.columns]

    # Reading

    def mark(self) -> Mark | None:
        table = self._load()
        if table is None:
            return None
        if STORE_ID not in table.metadata().configuration:
            raise errors.TableNotOurs(**self._facts)
        self._check_partitions(table)
        own = own_facts(self._log.actions(table.version()))
        if own is None:
            raise errors.ForeignSnapshot(**self._facts, snapshot=table.version())
        return mark_of(own)

    def files(self) -> dict[str, Partition]:
        table = self._load()
        return (
            {}
            if table is None
            else {self._whole(path): found.partition for path, found in self._present(table).items()}
        )

    def kept(self, since: float) -> set[str]:
        """Versions are not forgotten, but each file that was removed after the time counts as listed."""
        table = self._load()
        if table is None:
            return set()
        kept = {self._whole(path) for path in self._present(table)}
        for version in range(table.version(), -1, -1):
            actions = self._log.actions(version)
            # Delta asks no writer for the time of a version.
            times = [at for action in actions if (at := action.get("commitInfo", {}).get("timestamp")) is not None]
            if not actions or any(at < since * 1000 for at in times):
                break
            kept |= {self._whole(unquote(action["remove"]["path"])) for action in actions if "remove" in action}
        return kept

    def expire(self, since: float) -> int:
        """Delta's log has no record of expired versions: a version whose files are gone cannot be read."""
        return 0

    def history(self) -> Iterator[Listed]:
        table = self._load()
        for version in range(-1 if table is None else table.version(), -1, -1):
            if not (actions := self._log.actions(version)):
                return
            if (own := own_facts(actions)) is not None:
                yield Listed(version, mark_of(own))

    def tag(self, name: str, snapshot: int) -> None:
        raise errors.NoTags(asset=self._place.asset)

    def forget_values(self) -> None:
        """Take the statistics of files that left the table out of its log."""
        table = self._load()
        if table is None:
            return
        present = {quote(path, safe=_PLAIN) for path in self._present(table)}
        for version in range(table.version(), -1, -1):
            actions = self._log.actions(version)
            added = [action["add"] for action in actions if "add" in action]
            # Another writer may have written null there.
            with_values = [
                add for add in added if "minValues" in (add.get("stats") or "") and add["path"] not in present
            ]
            for add in with_values:
                add["stats"] = json.dumps({"numRecords": json.loads(add["stats"])["numRecords"]}, separators=(",", ":"))
            if with_values:
                self._log.rewrite(version, actions)
        with self._reached():
            self._log.renew_checkpoint(table)

    # Writing

    def replace(
        self, contents: Contents, mark: Mark, before: Mark | None, *, dry_run: bool = False, always: bool = False
    ) -> Snapshot | None:
        table = self._load()
        is_known = before is not None or not always
        if is_known and (None if table is None else self.mark()) != before:
            raise errors.PublishConflict(entity=f"the table {self._place.shown}")
        present = {} if table is None else self._present(table)
        wanted = {
            self._relative(file.path): (partition, file)
            for partition, files in contents.files.items()
            for file in files
        }
        gone = {
            path: found
            for path, found in present.items()
            if path not in wanted and (contents.is_whole or found.partition in contents.files)
        }
        new = {path: found for path, found in wanted.items() if path not in present}
        if not gone and not new and (table is None or not always):
            return None
        if dry_run:
            return Snapshot(None, len(new), len(gone))
        equal = contents.keeping_rows(
            ((found.partition, found.rows or 0) for found in gone.values()),
            ((partition, file.rows) for partition, file in new.values()),
        )
        footers = read_footers([file for _, file in new.values()])
        actions = [
            self._commit_info(contents, mark),
            {"txn": {"appId": f"databuild/{mark.store_id}", "version": mark.seq, "lastUpdated": _now()}},
            *self._schema_actions(table, new, footers, mark),
            *(self._remove(path, found, equal) for path, found in gone.items()),
            *(
                self._add(path, values, file, footer, equal)
                for (path, (values, file)), footer in zip(new.items(), footers, strict=True)
            ),
        ]
        version = 0 if table is None else table.version() + 1
        self._log.commit(version, actions)
        left = sum(found.rows or 0 for path, found in present.items() if path not in gone)
        rows = left + sum(file.rows for _, file in new.values())
        return Snapshot(version, len(new), len(gone), rows, self._place.root, self._log.path_of(version))

    def _commit_info(self, contents: Contents, mark: Mark) -> Action:
        named = contents.sources[:MAX_NAMED]
        own = {
            "storeId": mark.store_id,
            "seq": mark.seq,
            "fingerprint": mark.fingerprint,
            "dataset": self._place.asset,
            "instancesTotal": len(contents.sources),
            "instances": [source.uuid for source in named],
            "jobRuns": list(dict.fromkeys(source.job_run for source in named)),
        }
        facts = {
            "timestamp": _now(),
            "operation": "WRITE",
            "operationParameters": {"mode": "Overwrite" if contents.is_whole else "Append"},
            "engineInfo": f"databuild_dagster/{__version__}",
            OWN: own,
        }
        return {"commitInfo": facts}

    def _schema_actions(
        self,
        table: DeltaTable | None,
        new: Mapping[str, tuple[Partition, TableFile]],
        footers: Sequence[pq.FileMetaData],
        mark: Mark,
    ) -> Iterator[Action]:
        """The protocol and the columns, where they change. Raises `ColumnsDiffer`, `ColumnRefused`."""
        before = None if table is None else self._data_columns(table)
        columns = pa.schema([]) if before is None else before
        for (_, file), footer in zip(new.values(), footers, strict=True):
            if refused := unpublishable(footer):
                raise errors.ColumnRefused(**self._facts, column=refused[0], why=refused[1])
            columns = self._united(columns, columns_of(footer), file.path)
        settings = {} if table is None else table.metadata().configuration
        is_taken_over = table is not None and settings[STORE_ID] != mark.store_id
        if before is not None and columns == before and not is_taken_over:
            return
        own = [pa.field(column.name, _TYPES[column.type]) for column in self._place.spec.columns]
        schema = self._schema_json(pa.schema([*columns, *own]))
        if _WITHOUT_ZONES.lower() in schema.replace("_", "").lower():
            features = {"readerFeatures": [_WITHOUT_ZONES], "writerFeatures": [_WITHOUT_ZONES]}
            yield {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
        elif table is None:
            yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        yield {
            "metaData": {
                "id": str(uuid4() if table is None else table.metadata().id),
                "name": self._place.asset,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": self._partition_names,
                "configuration": {**RETENTION, **settings, STORE_ID: mark.store_id},
                "createdTime": _now() if table is None else table.metadata().created_time,
            }
        }

    def _united(self, columns: pa.Schema, found: pa.Schema, path: str) -> pa.Schema:
        for column in found:
            at = columns.get_field_index(column.name)
            if at < 0:
                self._check_name(columns, column.name)
                columns = columns.append(column)
            elif not self._is_same(columns.field(at).type, column.type):
                why = f"{column.name!r} is {columns.field(at).type} there, and {column.type} in the file"
                raise errors.ColumnsDiffer(**self._facts, path=path, why=why)
        return columns

    def _is_same(self, one: pa.DataType, other: pa.DataType) -> bool:
        """Whether Delta has the same type for both."""
        if one == other:
            return True
        as_delta = [self._schema_json(pa.schema([pa.field("x", kind)])) for kind in (one, other)]
        return as_delta[0] == as_delta[1]

    def _check_name(self, columns: pa.Schema, name: str) -> None:
        why = None
        own = {other.casefold(): other for other in self._partition_names}
        if name.casefold() in own:
            why = errors.name_of_partition(own[name.casefold()], "Delta(partition_column=…)")
        elif not name or any(letter in " ,;{}()\n\t=\0" for letter in name):
            why = "Delta allows none of ' ,;{}()=' in a name, nor an empty one"
        elif name.casefold() in {other.casefold() for other in columns.names}:
            why = "Delta sees upper and lower case as one, and there is such a column already"
        if why is not None:
            raise errors.ColumnRefused(**self._facts, column=name, why=why)

    def _schema_json(self, columns: pa.Schema) -> str:
        """Raises `ColumnRefused`."""
        for column in columns:
            try:
                Schema.from_arrow(pa.schema([column]))
            except Exception as error:  # deltalake raises several types here, with the frames of its backtrace.
                why = f"Delta has no type for {column.type}"
                raise errors.ColumnRefused(**self._facts, column=column.name, why=why) from error
        return str(Schema.from_arrow(columns).to_json())

    def _data_columns(self, table: DeltaTable) -> pa.Schema:
        columns = pa.schema(table.schema().to_arrow())
        return pa.schema([pa.field(one.name, one.type) for one in columns if one.name not in self._partition_names])

    def _add(
        self, path: str, values: Partition, file: TableFile, footer: pq.FileMetaData, equal: Container[Partition]
    ) -> Action:
        return {
            "add": {
                "path": quote(path, safe=_PLAIN),
                "partitionValues": self._partition_values(values),
                "size": file.bytes,
                "modificationTime": _now(),
                "dataChange": values not in equal,
                "stats": json.dumps(statistics_of(footer), separators=(",", ":")),
            }
        }

    def _remove(self, path: str, found: _Present, equal: Container[Partition]) -> Action:
        return {
            "remove": {
                "path": quote(path, safe=_PLAIN),
                "deletionTimestamp": _now(),
                "dataChange": found.partition not in equal,
                "extendedFileMetadata": True,
                "partitionValues": self._partition_values(found.partition),
                "size": found.bytes,
            }
        }

    def _partition_values(self, values: Partition) -> dict[str, str]:
        return {name: _as_text(value) for name, value in zip(self._partition_names, values, strict=True)}

    # The log and its paths

    def _load(self) -> DeltaTable | None:
        with self._reached():
            try:
                return DeltaTable(self._place.root)
            except TableNotFoundError:
                return None

    def _present(self, table: DeltaTable) -> dict[str, _Present]:
        """The files of the newest version by relative path."""
        with self._reached():
            actions = pa.table(table.get_add_actions(flatten=True))
        columns = [actions[f"partition.{name}"].to_pylist() for name in self._partition_names]
        partitions: Iterator[Partition] = zip(*columns, strict=True) if columns else iter([()] * actions.num_rows)
        named = ("size_bytes", "num_records")
        facts = zip(
            actions["path"].to_pylist(), partitions, *(actions[name].to_pylist() for name in named), strict=True
        )
        return {unquote(path): _Present(values, size, rows) for path, values, size, rows in facts}

    def _check_partitions(self, table: DeltaTable) -> None:
        found = table.metadata().partition_columns
        if found != self._partition_names:
            own = ", ".join(self._partition_names)
            raise errors.PartitionColumnsDiffer(
                **self._facts, found=", ".join(found) or "nothing", own=own or "nothing"
            )
        columns = pa.schema(table.schema().to_arrow())
        for column in self._place.spec.columns:
            if not self._is_same(columns.field(column.name).type, _TYPES[column.type]):
                found_type = f"{column.name} ({columns.field(column.name).type})"
                own = f"{column.name} ({column.type.value})"
                raise errors.PartitionColumnsDiffer(**self._facts, found=found_type, own=own)

    def _relative(self, path: str) -> str:
        """Raises `OutsideOfTable`."""
        root = f"{self._place.root}/"
        if not path.startswith(root):
            raise errors.OutsideOfTable(asset=self._place.asset, path=path, root=self._place.root)
        return path.removeprefix(root)

    def _whole(self, path: str) -> str:
        return f"{self._place.root}/{path}"

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Errors of deltalake and of its storages as ours. Raises `CatalogAway`."""
        try:
            yield
        except (DatabuildError, TableNotFoundError):
            raise
        except (DeltaError, OSError, ValueError) as error:
            raise errors.CatalogAway(
                **self._facts, why=f"{type(error).__name__}: {one_line(error).rstrip('.')}"
            ) from error


def mark_of(own: Mapping[str, Any]) -> Mark:
    """The mark in our facts of a version."""
    return Mark(own["storeId"], own["seq"], own.get("fingerprint", ""))


def statistics_of(footer: pq.FileMetaData) -> dict[str, Any]:
    """Rows, and of each plain column the smallest and largest value and the number of nulls, as far as the footer has them."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    without: set[str] = set()
    for group in range(footer.num_row_groups):
        for position in range(footer.num_columns):
            column = footer.row_group(group).column(position)
            name = column.path_in_schema
            statistics = column.statistics
            if "." in name or name in without:
                continue
            values = None if statistics is None or not statistics.has_null_count else _bounds(statistics)
            if values is None:
                without.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + statistics.null_count
            if values:
                lows[name] = min(lows.get(name, values[0]), values[0])
                highs[name] = max(highs.get(name, values[1]), values[1])
    for name in without:
        for found in (lows, highs, nulls):
            found.pop(name, None)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _json_value(value) for name, value in lows.items()},
        "maxValues": {name: _json_value(value) for name, value in highs.items()},
        "nullCount": nulls,
    }


def _bounds(statistics: Any) -> tuple[Any, ...] | None:
    """The smallest and largest value; empty for nulls alone, None for values whose order or form may differ, such as NaN."""
    if not statistics.has_min_max:
        return () if statistics.num_values == 0 else None
    low, high = statistics.min, statistics.max
    match low:
        case bool() | datetime() | Decimal() | bytes():
            return None
        case int() | date():
            return low, high
        case str():
            return (low, high) if max(len(low), len(high)) <= MAX_CHARACTERS else None
        case _:
            return None


def _json_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _as_text(value: date | datetime | str) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return value.isoformat() if isinstance(value, date) else value


def _now() -> int:
    """Milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)
