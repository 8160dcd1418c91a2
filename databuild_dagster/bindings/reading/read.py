"""`read` and `table`: the rows of a ref or of a dataset, now or at an earlier time, as a frame in any Python.

They read the store and the manifests and load no definitions. Dagster is imported only if a `dagster.yaml` moves its
storage, or to explain that a partition key does not exist; Spark only for Spark's frames.
"""

import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import msgspec

from databuild_dagster.bindings.reading.lookups import opened_store
from databuild_dagster.data import read_plan
from databuild_dagster.data.home import existing_home
from databuild_dagster.engine.registering import as_of as definition_as_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.refs import PARTITION_KEY, AnyRef, asset_of, parse_ref, partition_key_of
from databuild_dagster.spark import errors, failures, memory_frames, settings, temporary
from databuild_dagster.spark.frames import filter_in, filtered, no_rows, read_arrow, read_instances, united
from databuild_dagster.spark.keyed import read_keyed, read_keyed_arrow, refuse_taken
from databuild_dagster.spark.session import abandon, open_session
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.file_index import without_needless_files
from databuild_dagster.warehouse.filters import parsed_filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from dagster import DagsterInstance
    from pyspark.sql import DataFrame, SparkSession

Format = Literal["spark", "pandas", "polars", "arrow"]

_FORMATS = tuple(kind.value for kind in memory_frames.FrameKind)
#: A name of a view or of a column that needs no quotes in Spark's SQL.
_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SparkNotGiven(Refused):
    """This process already has a Spark session of another kind; PySpark allows only one kind per process."""

    hint = "Give it, as in read(ref, spark=spark), or read with format='pandas', which needs none."


class _Options(TypedDict, total=False):
    """The options that `read` and `table` share, for the type checker; the functions have their defaults."""

    where: str | None
    as_of: read_plan.AsOf | None
    spark: "SparkSession | None"
    home: str | Path | None
    instance: "DagsterInstance | None"


class _ReadOptions(_Options, total=False):
    allow_tainted: bool


class _TableOptions(_Options, total=False):
    key_column: str | None


@overload
def read(ref: AnyRef, *, format: Literal["spark"] = "spark", **options: Unpack[_ReadOptions]) -> "DataFrame": ...


@overload
def read(ref: AnyRef, *, format: Literal["pandas"], **options: Unpack[_ReadOptions]) -> "pd.DataFrame": ...


@overload
def read(ref: AnyRef, *, format: Literal["polars"], **options: Unpack[_ReadOptions]) -> "pl.DataFrame": ...


@overload
def read(ref: AnyRef, *, format: Literal["arrow"], **options: Unpack[_ReadOptions]) -> "pa.Table": ...


def read(
    ref: AnyRef,
    *,
    where: str | None = None,
    as_of: read_plan.AsOf | None = None,
    format: Format = "spark",
    allow_tainted: bool = False,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> Any:
    """The rows of a partition as its readers see them: `read("flight_delays@2013-01-01")`.

    `where` is a condition of Spark's SQL that selects rows. Files in which an index finds no such row are not read
    (`databuild operation run build_index`, and the extra `filters`). For frames that are not Spark's the extra is needed, and the
    condition may have comparisons of a column with a value, IN, BETWEEN, IS NULL, AND, OR and NOT.
    `as_of` selects an earlier time: an aware datetime, ISO 8601 text with its offset, or a seq of the event log.
    A tainted partition is refused unless `allow_tainted`. A Spark frame belongs to the session `spark`, or else to the
    shared server of the home; the formats pandas, polars and arrow need no Spark server. The home is `home`, or
    DAGSTER_HOME, or the `.dagster_home` of the project around the working directory, or the home of a Dagster `instance`,
    which may be ephemeral.

    Raises a `DatabuildError` that says what to do: `BadFilter`, `InvalidRef`, `UnknownAsset`, `UnknownPartition`, `NotLive`,
    `TaintedRef`, `NotOurs`, `DataRemoved`, `InvalidAsOf`, `BeforeAnything`, `NothingBuilt`; and `BadHome`.
    """
    check_format(format)
    with _opened(home, instance) as place:
        moment = read_plan.moment_of(place.queries, as_of, datetime.now(UTC))
        found = read_plan.readable_ref(
            place.queries, parse_ref(ref), moment, place.why_not, allow_tainted=allow_tainted
        )
        manifests = _by_warehouse(place.queries, [found])
        spec = place.queries.datasets.get(asset_of(found.ref))
    with read_plan.damage_named(spec, {found.manifest.instance_uuid: found.ref}):
        return _frame(manifests, where, format, place.own_session if spark is None else lambda: spark)


@overload
def table(
    dataset: str, *, format: Literal["spark"] = "spark", view: str | None = None, **options: Unpack[_TableOptions]
) -> "DataFrame": ...


@overload
def table(
    dataset: str, *, format: Literal["pandas"], view: None = None, **options: Unpack[_TableOptions]
) -> "pd.DataFrame": ...


@overload
def table(
    dataset: str, *, format: Literal["polars"], view: None = None, **options: Unpack[_TableOptions]
) -> "pl.DataFrame": ...


@overload
def table(
    dataset: str, *, format: Literal["arrow"], view: None = None, **options: Unpack[_TableOptions]
) -> "pa.Table": ...


def table(
    dataset: str,
    *,
    where: str | None = None,
    as_of: read_plan.AsOf | None = None,
    format: Format = "spark",
    view: str | None = None,
    key_column: str | None = PARTITION_KEY,
    spark: "SparkSession | None" = None,
    home: str | Path | None = None,
    instance: "DagsterInstance | None" = None,
) -> Any:
    """All live partitions of a dataset in a single frame: `table("flight_delays", view="flight_delays")`.

    The last column, `key_column`, is the row's partition key; None leaves it out. A filter on it reads only the files
    of matching partitions. A dataset without partitions has no such column. With `view` the frame is also a temporary view
    of its session, `frame.sparkSession`. Partitions that are not live, or tainted, are left out. Everything else is as
    for `read`.

    Raises what `read` does, `NothingLive` where no partition is live, `KeyColumnTaken`, and `SchemasDiffer` where the
    partitions' columns cannot be united.
    """
    check_format(format)
    _check_name("view", view)
    _check_name("key_column", key_column)
    if view is not None and format != "spark":
        raise InvalidRequest(what="view", value=view, why="only a Spark frame can be one; leave format out")
    if "@" in dataset:
        raise InvalidRequest(what="dataset", value=dataset, why="it names one partition; read(…) reads that")
    with _opened(home, instance) as place:
        moment = read_plan.moment_of(place.queries, as_of, datetime.now(UTC))
        found = read_plan.live_of_dataset(place.queries, dataset, moment, partial(_gone_then, place, moment))
        manifests = _by_warehouse(place.queries, found)
        spec = place.queries.datasets.get(asset_of(found[0].ref))
    column = key_column if partition_key_of(found[0].ref) is not None else None
    if column is not None:
        refuse_taken(column, [manifest for in_warehouse in manifests.values() for manifest in in_warehouse])
    with read_plan.damage_named(spec, {one.manifest.instance_uuid: one.ref for one in found}):
        frame = _frame(manifests, where, format, place.own_session if spark is None else lambda: spark, column)
    if view is not None:
        frame.createOrReplaceTempView(view)
    return frame


def _gone_then(
    place: "_Place", moment: read_plan.Moment, spec: DatasetSpec, keys: Sequence[str | None]
) -> frozenset[str | None]:
    """The keys that the definition of that time does not have."""
    return place.gone(spec if moment.seq is None else definition_as_of(place.queries, spec, moment.seq), keys)


def _frame(
    by_warehouse: dict[Warehouse, list[Manifest]],
    where: str | None,
    format: Format,
    session_of: Callable[[], Any],
    column: str | None = None,
) -> Any:
    """A frame of all manifests; `column` is the name of the column with the partition key, None without that column."""
    kind = memory_frames.FrameKind(format)
    session = session_of() if kind is memory_frames.FrameKind.SPARK else None
    wanted = None
    if where is not None:
        wanted = parsed_filter(where) if session is None else filter_in(session, where)
    if not by_warehouse:
        return no_rows(kind, session_of, *([] if column is None else [column]))
    frames = []
    for warehouse, manifests in by_warehouse.items():
        needed = without_needless_files(warehouse, manifests, wanted)
        keyed = {key: [manifest] for manifest in needed if (key := partition_key_of(manifest.ref)) is not None}
        if session is None:
            frames.append(
                read_arrow(warehouse, needed, where=wanted)
                if column is None
                else read_keyed_arrow(warehouse, keyed, column=column, where=wanted)
            )
        elif column is None:
            frames.append(read_instances(session, warehouse, needed))
        else:
            frames.append(read_keyed(session, warehouse, keyed, _links_for(session), column=column))
    if session is None:
        return memory_frames.from_arrow(united(frames), kind)
    whole = united(frames, allow_missing_columns=True)
    if len(frames) > 1 and column is not None:
        # A column that only a later warehouse has is after the key. One frame is in order: asking for its columns would
        # list its files.
        whole = whole.select(*(name for name in whole.columns if name != column), column)
    return whole if wanted is None else filtered(whole, wanted)


def _by_warehouse(queries: Queries, found: Sequence[read_plan.Readable]) -> dict[Warehouse, list[Manifest]]:
    """The manifests that have columns. If no manifest has columns, a manifest without rows that has a neighbour's columns.

    The result is empty if no partition of the dataset ever had columns.
    """
    usable = [readable for readable in found if readable.manifest.schema.columns]
    if not usable and (known := read_plan.neighbour(queries, found[0].manifest.dataset)) is not None:
        usable = [replace(found[0], manifest=msgspec.structs.replace(found[0].manifest, schema=known.schema))]
    by_warehouse: dict[Warehouse, list[Manifest]] = {}
    for readable in usable:
        by_warehouse.setdefault(readable.warehouse, []).append(readable.manifest)
    return by_warehouse


def check_format(format: str) -> None:
    """Raises `InvalidRequest`."""
    if format not in _FORMATS:
        raise InvalidRequest(what="format", value=format, why=f"it is one of {', '.join(_FORMATS)}")


def _check_name(what: str, name: str | None) -> None:
    if name is not None and not _A_NAME.fullmatch(name):
        raise InvalidRequest(what=what, value=name, why="letters, digits and _ make a name that needs no quotes in SQL")


# The place to read from


@dataclass(frozen=True)
class _Place:
    """The store to read, and the Spark session that belongs to it."""

    queries: Queries
    why_not: read_plan.WhyNot
    gone: read_plan.Gone
    #: Raises what opening a session raises, and `SparkNotGiven`.
    own_session: Callable[[], Any]


@contextmanager
def _opened(home: str | Path | None, instance: "DagsterInstance | None") -> Iterator[_Place]:
    with opened_store(home, instance) as store:
        if instance is not None:
            yield _place_of_instance(instance)
            return
        path = existing_home(home)
        yield _Place(
            Queries(store),
            lambda spec, key: _why_not(path, spec, key),
            lambda spec, keys: _gone(path, spec, keys),
            lambda: _session_of_home(path),
        )


def _place_of_instance(instance: "DagsterInstance") -> _Place:
    from databuild_dagster.bindings.reading.spark_resource import temporary_session
    from databuild_dagster.bindings.registry.instance import engine_for

    engine = engine_for(instance)
    root = Path(instance.root_directory)
    own_session = temporary_session if instance.is_ephemeral else lambda: _session_of_home(root)
    return _Place(engine.queries, engine.catalog.why_not, engine.catalog.left_out, own_session)


def _why_not(home: Path, spec: Any, key: str | None) -> str | None:
    """Only this error needs Dagster: its partitions definition says whether the key could be one."""
    from databuild_dagster.bindings.registry.instance import engine_for, open_instance

    return engine_for(open_instance(home)).catalog.why_not(spec, key)


def _gone(home: Path, spec: DatasetSpec, keys: Sequence[str | None]) -> frozenset[str | None]:
    """Dagster is asked only of keys that its common definitions do not have now."""
    from databuild_dagster.bindings.registry.plain_keys import plain_dimensions, plainly_has

    known = () if spec.partitions is None else plain_dimensions(spec.partitions, time.time()) or ()
    if not (unsure := [key for key in keys if key is not spec.partitions and not plainly_has(known, key or "")]):
        return frozenset()
    from databuild_dagster.bindings.registry.instance import engine_for, open_instance

    return engine_for(open_instance(home)).catalog.left_out(spec, unsure)


# Spark

#: By process and home: opening a session takes seconds, and a notebook reads often.
_sessions: dict[tuple[int, str], Any] = {}
_lock = Lock()


def _session_of_home(home: Path) -> Any:
    key = (os.getpid(), str(home.absolute()))
    with _lock:
        known = _sessions.get(key)
        if known is not None and _answers(known):
            return known
        try:
            _sessions[key] = open_session(settings.SparkSettings(home=home))
        except errors.SessionModesMixed as error:
            raise SparkNotGiven() from error
        return _sessions[key]


def _answers(spark: Any) -> bool:
    """Whether the server still answers: `databuild spark --stop` may have stopped it."""
    with warnings.catch_warnings():
        # PySpark warns about its own retries.
        warnings.simplefilter("ignore")
        try:
            spark.conf.get("spark.sql.session.timeZone")
        except Exception as error:
            if not failures.is_lost(error):
                raise
            abandon(spark)
            return False
    return True


def _links_for(spark: Any) -> str | None:
    """A new folder for links that Spark's tasks follow; None where the tasks run on other machines.

    The folder exists as long as the process, because a frame or a view may be used at any later time.
    """
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        return None
    return tempfile.mkdtemp(dir=temporary.folder_of_process("databuild-read-"))
