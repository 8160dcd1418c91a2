"""`read` and `table`: what readers of a ref or a dataset see, now or then, as a frame in any Python.

Everything is told by the store and the manifests: no definitions are loaded. Dagster is imported only where a
`dagster.yaml` moves its storage, or a key has to be told from a typing mistake; Spark only for Spark's frames.
"""

import atexit
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from databuild_dagster.bindings.reading.open_store import opened_store
from databuild_dagster.data.home import existing_home
from databuild_dagster.data.read_plan import (
    AsOf,
    Readable,
    WhyNot,
    live_of_dataset,
    moment_of,
    neighbour,
    readable_ref,
)
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.refs import AnyRef, parse_ref, partition_key_of
from databuild_dagster.spark.errors import SessionModesMixed
from databuild_dagster.spark.failures import is_lost
from databuild_dagster.spark.frames import filter_in, filtered, no_rows, read_instances, read_pandas, united
from databuild_dagster.spark.keyed import read_keyed, read_keyed_pandas, refuse_taken
from databuild_dagster.spark.session import SparkSettings, abandon, open_session
from databuild_dagster.spark.staging import PARTITION_KEY
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.file_index import without_needless_files
from databuild_dagster.warehouse.filters import Filter, parsed_filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest

if TYPE_CHECKING:
    import pandas as pd
    from dagster import DagsterInstance
    from pyspark.sql import DataFrame, SparkSession

Format = Literal["spark", "pandas"]

_FORMATS = ("spark", "pandas")
#: What Spark takes for the name of a view, or of a column, without quotes.
_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SparkNotGiven(Refused):
    """This process has a Spark session that is not ours, and cannot have another kind of them besides."""

    hint = "Give it, as in read(ref, spark=spark), or read with format='pandas', which needs none."


@overload
def read(
    ref: AnyRef,
    *,
    where: str | None = None,
    as_of: AsOf | None = None,
    format: Literal["spark"] = "spark",
    allow_tainted: bool = False,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> "DataFrame": ...


@overload
def read(
    ref: AnyRef,
    *,
    where: str | None = None,
    as_of: AsOf | None = None,
    format: Literal["pandas"],
    allow_tainted: bool = False,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> "pd.DataFrame": ...


def read(
    ref: AnyRef,
    *,
    where: str | None = None,
    as_of: AsOf | None = None,
    format: Format = "spark",
    allow_tainted: bool = False,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> Any:
    """One partition's rows, as its readers see them: `read("flight_delays@2013-01-01")`.

    With `where`, a condition of Spark's SQL, only the rows that it lets through: files in which an index knows none
    are not read (`databuild operate build_index`). pandas' frames take comparisons of a column with a value, IN,
    BETWEEN, IS NULL, AND, OR and NOT.
    `as_of` reads what they saw then: an aware datetime, ISO 8601 text with its offset, or a seq of the event log.
    What is tainted is refused unless `allow_tainted`. As a Spark frame it is of `spark`, or else of the shared
    server of the home; pandas needs no Spark server. The home is `home`, or DAGSTER_HOME, or the `.dagster_home`
    of the project that the working directory lies in; or that of a Dagster `instance`, an ephemeral one included.

    Raises a `DatabuildError` that says what to do: `BadFilter`, `InvalidRef`, `UnknownAsset`, `UnknownPartition`, `NotLive`,
    `TaintedRef`, `NotOurs`, `DataRemoved`, `InvalidAsOf`, `BeforeAnything`, `NothingBuilt`; and `BadHome`.
    """
    _check_format(format)
    with _opened(home, instance) as place:
        moment = moment_of(place.queries, as_of, datetime.now(UTC))
        found = readable_ref(place.queries, parse_ref(ref), moment, place.why_not, allow_tainted=allow_tainted)
        manifests = _with_columns(place.queries, [found])
    if format == "pandas":
        wanted = None if where is None else parsed_filter(where)
        if not manifests:
            return no_rows(None)
        return read_pandas(found.warehouse, without_needless_files(found.warehouse, manifests, wanted), where=wanted)
    session = place.session(spark)
    wanted = None if where is None else filter_in(session, where)
    if not manifests:
        return no_rows(session)
    needed = without_needless_files(found.warehouse, manifests, wanted)
    frame = read_instances(session, found.warehouse, needed)
    return frame if wanted is None else filtered(frame, wanted)


@overload
def table(
    dataset: str,
    *,
    where: str | None = None,
    as_of: AsOf | None = None,
    format: Literal["spark"] = "spark",
    view: str | None = None,
    key_column: str | None = PARTITION_KEY,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> "DataFrame": ...


@overload
def table(
    dataset: str,
    *,
    where: str | None = None,
    as_of: AsOf | None = None,
    format: Literal["pandas"],
    view: None = None,
    key_column: str | None = PARTITION_KEY,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> "pd.DataFrame": ...


def table(
    dataset: str,
    *,
    where: str | None = None,
    as_of: AsOf | None = None,
    format: Format = "spark",
    view: str | None = None,
    key_column: str | None = PARTITION_KEY,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> Any:
    """All live partitions of a dataset in one frame: `table("flight_delays", view="flight_delays")`.

    The last column, `key_column`, is the row's partition key, None for no such column; a filter on it reads only
    the files of those partitions. A dataset without partitions has none. With `view` the frame is also a temporary
    view of its session, `frame.sparkSession`. What is not live, tainted partitions included, is left out. The
    rest is as for `read`.

    Raises what `read` does, `NothingLive` where no partition is, `KeyColumnTaken`, and `SchemasDiffer` where the
    partitions' columns cannot be united.
    """
    _check_format(format)
    _check_name("view", view)
    _check_name("key_column", key_column)
    if view is not None and format != "spark":
        raise InvalidRequest(what="view", value=view, why="only a Spark frame can be one; leave format out")
    if "@" in dataset:
        raise InvalidRequest(what="dataset", value=dataset, why="it names one partition; read(…) reads that")
    with _opened(home, instance) as place:
        moment = moment_of(place.queries, as_of, datetime.now(UTC))
        found = live_of_dataset(place.queries, dataset, moment)
        manifests = _with_columns(place.queries, found)
    has_keys = key_column is not None and partition_key_of(found[0].ref) is not None
    column = key_column if has_keys else None
    if column is not None:
        refuse_taken(column, manifests)
    by_warehouse: dict[Warehouse, list[Manifest]] = {}
    warehouse_of = {each.manifest.instance_uuid: each.warehouse for each in found}
    for manifest in manifests:
        by_warehouse.setdefault(warehouse_of.get(manifest.instance_uuid, found[0].warehouse), []).append(manifest)
    if format == "pandas":
        wanted = None if where is None else parsed_filter(where)
        return _table_pandas(_needed(by_warehouse, wanted), column, wanted)
    session = place.session(spark)
    wanted = None if where is None else filter_in(session, where)
    frame = _table_spark(session, _needed(by_warehouse, wanted), column)
    if wanted is not None:
        frame = filtered(frame, wanted)
    if view is not None:
        frame.createOrReplaceTempView(view)
    return frame


def _needed(
    by_warehouse: Mapping[Warehouse, Sequence[Manifest]], wanted: Filter | None
) -> dict[Warehouse, Sequence[Manifest]]:
    return {
        warehouse: without_needless_files(warehouse, manifests, wanted) for warehouse, manifests in by_warehouse.items()
    }


def _table_pandas(
    by_warehouse: Mapping[Warehouse, Sequence[Manifest]], column: str | None, wanted: Filter | None
) -> Any:
    frames = [
        read_pandas(warehouse, manifests, where=wanted)
        if column is None
        else read_keyed_pandas(warehouse, _keyed(manifests), column=column, where=wanted)
        for warehouse, manifests in by_warehouse.items()
    ]
    if not frames:
        return no_rows(None, *([] if column is None else [column]))
    return united(frames)


def _table_spark(spark: Any, by_warehouse: Mapping[Warehouse, Sequence[Manifest]], column: str | None) -> Any:
    frames = [
        read_instances(spark, warehouse, manifests)
        if column is None
        else read_keyed(spark, warehouse, _keyed(manifests), _links_for(spark), column=column)
        for warehouse, manifests in by_warehouse.items()
    ]
    if not frames:
        return no_rows(spark, *([] if column is None else [column]))
    whole = united(frames, allow_missing_columns=True)
    if len(frames) == 1 or column is None:
        return whole
    # Columns that only a later warehouse has came after it. Not for one frame: asking for columns lists its files.
    return whole.select(*(each for each in whole.columns if each != column), column)


def _keyed(manifests: Sequence[Manifest]) -> dict[str, list[Manifest]]:
    return {key: [each] for each in manifests if (key := partition_key_of(each.ref)) is not None}


def _with_columns(queries: Queries, found: Sequence[Readable]) -> list[Manifest]:
    """Those that have columns; where EMPTY was all there ever was of them, no rows with a neighbour's columns.

    Nothing where no partition of the dataset ever had columns.
    """
    usable = [each.manifest for each in found if each.manifest.schema.columns]
    if usable:
        return usable
    asset = found[0].manifest.dataset
    known = neighbour(queries, asset)
    return [] if known is None else [msgspec.structs.replace(found[0].manifest, schema=known.schema)]


def _check_format(format: str) -> None:
    if format not in _FORMATS:
        raise InvalidRequest(what="format", value=format, why=f"it is one of {', '.join(_FORMATS)}")


def _check_name(what: str, name: str | None) -> None:
    if name is not None and not _A_NAME.fullmatch(name):
        raise InvalidRequest(what=what, value=name, why="letters, digits and _ make a name that needs no quotes in SQL")


# Where to read from


@dataclass(frozen=True)
class _Place:
    """The store to ask, and how to come to a session beside it."""

    queries: Queries
    why_not: WhyNot
    own_session: "Callable[[], Any]"

    def session(self, given: Any) -> Any:
        """Raises what opening one raises, and `SparkNotGiven`."""
        return self.own_session() if given is None else given


@contextmanager
def _opened(home: str | Path | None, instance: "DagsterInstance | None") -> Iterator[_Place]:
    with opened_store(home, instance) as store:
        if instance is not None:
            yield _place_of_instance(instance)
            return
        path = existing_home(home)
        yield _Place(Queries(store), lambda spec, key: _why_not(path, spec, key), lambda: _session_of_home(path))


def _place_of_instance(instance: "DagsterInstance") -> _Place:
    from databuild_dagster.bindings.reading.spark_resource import temporary_session
    from databuild_dagster.bindings.registry.instance import engine_for

    engine = engine_for(instance)
    root = None if instance.is_ephemeral else Path(instance.root_directory)
    return _Place(
        engine.queries,
        engine.catalog.why_not,
        temporary_session if root is None else lambda: _session_of_home(root),
    )


def _why_not(home: Path, spec: Any, key: str | None) -> str | None:
    """Only the error's way to Dagster: whether the key could be one needs its partitions definition."""
    from databuild_dagster.bindings.registry.instance import engine_for, open_instance

    return engine_for(open_instance(home)).catalog.why_not(spec, key)


# Spark

#: By process and home: a session takes seconds to open, and a notebook reads often.
_sessions: dict[tuple[int, str], Any] = {}
_folders: dict[int, str] = {}
_lock = Lock()


def _session_of_home(home: Path) -> Any:
    key = (os.getpid(), str(home.absolute()))
    with _lock:
        known = _sessions.get(key)
        if known is not None and _answers(known):
            return known
        try:
            _sessions[key] = open_session(SparkSettings(home=home))
        except SessionModesMixed as error:
            raise SparkNotGiven() from error
        return _sessions[key]


def _answers(spark: Any) -> bool:
    """Whether the server is still there: `databuild spark stop` may have stopped it since."""
    with warnings.catch_warnings():
        # It warns of having tried in vain, which is what is asked here.
        warnings.simplefilter("ignore")
        try:
            spark.conf.get("spark.sql.session.timeZone")
        except Exception as error:
            if not is_lost(error):
                raise
            abandon(spark)
            return False
    return True


def _links_for(spark: Any) -> str | None:
    """A new folder of this process, for links that Spark's tasks follow; None where they run on other machines.

    It stays until the process ends, for nobody knows how long a frame, or a view, is used.
    """
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        return None
    with _lock:
        pid = os.getpid()
        if pid not in _folders:
            _folders[pid] = tempfile.mkdtemp(prefix="databuild-read-")
            atexit.register(_remove_links, pid)
        return tempfile.mkdtemp(dir=_folders[pid])


def _remove_links(pid: int) -> None:
    if os.getpid() == pid and (folder := _folders.pop(pid, None)) is not None:
        shutil.rmtree(folder, ignore_errors=True)
