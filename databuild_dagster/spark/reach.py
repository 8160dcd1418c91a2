"""Where a session and this process meet: Spark writes two rows, this process lists them, and Spark reads them back.

A Spark elsewhere shares no disk with this process, and its engine may differ from Spark on a JVM. The files of the probe say
so before anything is recorded (rule 10.9)."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, replace
from string import ascii_letters, digits
from threading import Lock
from typing import TYPE_CHECKING, Any
from unicodedata import category
from urllib.parse import quote

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import PARTITION_KEY
from databuild_dagster.spark.errors import SparkRunsNoJob, StoreRefusesSpark, WarehouseOutOfReach
from databuild_dagster.spark.failures import explain_failure, is_lost, refusal, store_trouble
from databuild_dagster.spark.session import engine_name, has_workers_elsewhere, is_client
from databuild_dagster.warehouse.disk import is_data
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.storage import Storage, protocol_of, storage_at
from databuild_dagster.warehouse.threads import T, in_own_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How the folder of a probe begins; each probe removes its own.
PROBE = ".probe"
#: A probe takes 1 s where Spark sees the place; a Spark that does not may retry for minutes.
MAX_PROBE_SECONDS = 8.0
#: A cluster may start its first workers for the first job of a session, and a JVM on a busy machine needs more than a probe.
MAX_START_SECONDS = 300.0

#: A probe, of eight jobs and two listings, may take so many times as long as a job of one row, which shows how busy Spark is.
SLOWER = 20.0

#: A session that takes `%41` for `A` writes to a folder named `A`.
_NAME = "%41"
_DECODED = "A"
#: A batch of keys that an engine may read otherwise: with characters that the name of a folder has escaped, and like a number.
_KEYS = ("1-_.:| %41+", "007", "1.10", "2013-01-01")
#: Written in as many tasks, to see whether the session coalesces them into a single file.
_ROWS = 2
#: Databricks writes `_started_<id>` into a folder first, and at the end this, which names the files that count.
COMMITTED = re.compile(r"_committed_(\d+)")
#: The characters of a pattern in a path.
_WILDCARD = re.compile(r"[{}\[\]*?\\]")
#: The characters of a path that a uri has as they are.
_IN_A_URI = frozenset("/;:@&=+$,_-!.~'()*" + ascii_letters + digits)
#: The further characters that a uri has only quoted: controls and spaces, by their category in Unicode.
_QUOTED = frozenset(("Cc", "Zs", "Zl", "Zp"))
#: Names of the same store: fsspec and Hadoop's file systems differ.
_ALIASES = {"s3": ("s3", "s3a"), "s3a": ("s3a", "s3"), "gcs": ("gs",)}


@dataclass(frozen=True, slots=True)
class Reach:
    """How a session writes and reads below a root. Every field is an answer of the probe, and none names an engine."""

    #: As this process names it.
    root: str
    #: As the session names it.
    spark_root: str
    #: In its urls `%41` is `A`.
    decodes_urls: bool
    #: A finished write leaves `_SUCCESS`.
    leaves_mark: bool
    #: A row has `_metadata.file_path`, and it is as `told_as` expects it.
    names_files: bool
    #: `observe` counts the rows that it writes.
    counts_rows: bool
    #: A finished write leaves `_committed_<id>`, which names its files, as on Databricks.
    names_committed: bool = False
    #: `coalesce` makes fewer files.
    coalesces: bool = True
    #: The folders of a batch give each row its partition key, as it was written.
    reads_keys: bool = False

    def url_of(self, path: str) -> str:
        """The session's name for a file or folder below the root or in a further bucket; a local path is returned unchanged."""
        if (protocol := protocol_of(path)) is None:
            return path
        rest = path.partition("://")[2]
        if protocol == protocol_of(self.root):
            protocol = protocol_of(self.spark_root)
        # Azure's containers are before an `@`.
        return f"{protocol}://{quote(rest, safe='/@') if self.decodes_urls else rest}"


def without_wildcards(path: str) -> str:
    """A path escaped for Spark, which takes paths for patterns; a folder may be named `[old]`."""
    return _WILDCARD.sub(r"\\\g<0>", path)


def told_as(path: str) -> str:
    """A path or url as Spark on a JVM tells it in `_metadata.file_path`, by the rules of `java.net.URI`.

    Rows are compared with it as they are: to decode the path of each row took a hundred times as long as to read it.
    """
    whole = path if protocol_of(path) is not None else f"file:{path}"
    return "".join(
        character
        if character in _IN_A_URI or (ord(character) > 127 and category(character) not in _QUOTED)
        else quote(character, safe="")
        for character in whole
    )


def reach_of(spark: SparkSession, root: str, shown: str, *, start_seconds: float = MAX_START_SECONDS) -> Reach:
    """How this session reaches a root, a folder or a url; found once per session. `shown` names the Spark in messages.

    Raises `SparkRunsNoJob` after `start_seconds`, as for a cluster without workers, `WarehouseOutOfReach`, what opening the
    root raises, and errors of Spark.
    """
    key = (os.getpid(), id(spark), root)
    with _lock:
        if key not in _found:
            found: Reach | WarehouseOutOfReach
            try:
                found = _bounded_probe(spark, root, shown, start_seconds)
            except WarehouseOutOfReach as error:
                found = error
            # With the session, whose id Python may give to another object.
            _found[key] = (spark, found)
        reach = _found[key][1]
    if isinstance(reach, WarehouseOutOfReach):
        raise reach
    return reach


def in_place(spark: SparkSession, warehouse: Warehouse, *, start_seconds: float = MAX_START_SECONDS) -> Reach | None:
    """How the session writes and reads a warehouse itself; None where this process does it, on a disk that both see.

    On such a disk, too, a session writes itself if its files differ from the files of Spark on a JVM: it leaves no mark.
    Raises `SparkRunsNoJob` after `start_seconds`: None would give a Spark elsewhere paths of this process's disk.
    """
    shown = engine_name(spark)
    if shown is None:
        return None
    try:
        if protocol_of(warehouse.root) is not None:
            return reach_of(spark, warehouse.root, shown, start_seconds=start_seconds)
        place = warehouse.storage.staging_parent(warehouse.root)
        reach = reach_of(spark, place, shown, start_seconds=start_seconds)
    except WarehouseOutOfReach:
        return None
    return None if reach.leaves_mark else reach


def places_read(spark: SparkSession) -> set[str]:
    """The places from which a session has read a file, as `frames` keeps them."""
    with _lock:
        return _read.setdefault((os.getpid(), id(spark)), (spark, set()))[1]


def check_reach(spark: SparkSession, warehouse: Warehouse, *, start_seconds: float = MAX_START_SECONDS) -> None:
    """Check that a remote session and this process see the same files. A refusal is not kept: the next check probes again.

    Raises `WarehouseOutOfReach`, `SparkRefuses`, `SparkRunsNoJob` after `start_seconds`, `DiskTrouble`, `StorageTrouble`.
    """
    shown = engine_name(spark)
    if shown is None:
        return
    place = warehouse.storage.staging_parent(warehouse.root)
    roots = [warehouse.root, place] if protocol_of(warehouse.root) is not None else [place]
    refusals = []
    for root in roots:
        try:
            reach_of(spark, root, shown, start_seconds=start_seconds)
            return
        except WarehouseOutOfReach as error:
            refusals.append(error)
        except DatabuildError:
            raise
        except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
            raise refusal(shown, error) from error
    with _lock:
        for root in roots:
            _found.pop((os.getpid(), id(spark), root), None)
    # Of a bucket and a folder the bucket counts: it is where Spark should write.
    first = refusals[0]
    raise type(first)(**{**first.facts, "root": warehouse.root}) from first


def check_answers(spark: SparkSession, seconds: float) -> None:
    """Check that a session runs a job. Raises `SparkRefuses`, and `SparkRunsNoJob` after so many seconds."""
    shown = engine_name(spark) or "Spark"
    try:
        _await_job(spark, shown, seconds)
    except DatabuildError:
        raise
    except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
        raise refusal(shown, error) from error


def _await_job(spark: SparkSession, shown: str, seconds: float) -> None:
    if _within(lambda: spark.range(1).collect(), seconds) is None:
        where = ""
        if has_workers_elsewhere(spark) and not is_client(spark):
            host, port = (spark.sparkContext.getConf().get(f"spark.driver.{of}") for of in ("host", "port"))
            where = f" on workers that connect to this process at {host}:{port}"
        raise SparkRunsNoJob(spark=shown, seconds=seconds, where=where)


def _bounded_probe(spark: SparkSession, root: str, shown: str, start_seconds: float) -> Reach:
    began = time.monotonic()
    _await_job(spark, shown, start_seconds)
    # On a busy machine everything takes longer; a first job of more seconds has waited for its workers.
    seconds = max(MAX_PROBE_SECONDS, SLOWER * min(time.monotonic() - began, MAX_PROBE_SECONDS))
    reach = _within(lambda: _probe(spark, root, shown), seconds)
    if reach is None:
        why = f"a file of one row is not back after {seconds:.0f} s"
        raise WarehouseOutOfReach(spark=shown, done="used", root=root, why=why)
    return reach


def _probe(spark: SparkSession, root: str, shown: str) -> Reach:
    storage = storage_at(root)
    folder = f"{root}/{PROBE}-{secrets.token_hex(4)}"
    failures = []
    try:
        for spark_root in _names_of(root):
            try:
                two = spark.range(_ROWS, numPartitions=_ROWS).coalesce(1)
                two.write.format("parquet").save(f"{spark_root}{folder.removeprefix(root)}/{_NAME}")
            except Exception as error:  # The errors of PySpark, grpc and py4j have no common class.
                if is_lost(error):
                    raise
                if (trouble := store_trouble(error)) is not None:
                    facts = {"why": trouble.why, "advice": trouble.advice}
                    raise StoreRefusesSpark(spark=shown, done="written", root=root, **facts) from error
                failures.append(why_not_read(error))
                continue
            return _judged(spark, storage, folder, root, spark_root, shown)
    finally:
        with suppress(DatabuildError, OSError):
            storage.remove_tree(folder)
    raise WarehouseOutOfReach(spark=shown, done="written", root=root, why=failures[0])


def _judged(spark: SparkSession, storage: Storage, folder: str, root: str, spark_root: str, shown: str) -> Reach:
    """The answers of the files of a finished write, and of a read of them."""
    names = _names_below(storage, folder)
    data = [name for name in names if is_data(name.rpartition("/")[2])]
    if not data:
        why = f"Spark wrote a file into {root}, and this process does not see it"
        raise WarehouseOutOfReach(spark=shown, done="shared with this process", root=root, why=why)
    plain = Reach(
        root,
        spark_root,
        decodes_urls=data[0].startswith(f"{_DECODED}/"),
        leaves_mark=any(name.endswith("/_SUCCESS") for name in names),
        names_files=False,
        counts_rows=False,
        names_committed=any(COMMITTED.fullmatch(name.rpartition("/")[2]) for name in names),
        coalesces=len(data) == 1,
    )
    paths = [without_wildcards(plain.url_of(f"{folder}/{name}")) for name in data]

    def read() -> DataFrame:
        return spark.read.format("parquet").schema("id long").load(paths)

    def names_files() -> bool:
        named = {row[0] for row in read().select("_metadata.file_path").collect()}
        return named == {told_as(plain.url_of(f"{folder}/{name}")) for name in data}

    try:
        found = len(read().collect())
    except Exception as error:
        raise WarehouseOutOfReach(spark=shown, done="read", root=root, why=why_not_read(error)) from error
    if found != _ROWS:
        why = f"Spark finds {found} of {_ROWS} rows in a file that it has just written"
        raise WarehouseOutOfReach(spark=shown, done="read", root=root, why=why)
    return replace(
        plain,
        names_files=_answers(names_files),
        counts_rows=_answers(lambda: _counted(spark)),
        reads_keys=_answers(lambda: _keys_read(spark, plain.url_of(f"{folder}/by-key")) == sorted(_KEYS)),
    )


def _keys_read(spark: SparkSession, url: str) -> list[str]:
    """Write a row for each of `_KEYS` by key; returns the keys of `_KEYS` that the session reads back, sorted."""
    import pyspark.sql.functions as F

    of_keys = spark.createDataFrame(list(enumerate(_KEYS)), f"id int, {PARTITION_KEY} string")
    of_keys.write.format("parquet").partitionBy(PARTITION_KEY).save(url)
    rows = spark.read.format("parquet").schema(f"id int, {PARTITION_KEY} string").load(url)
    return sorted(row[PARTITION_KEY] for row in rows.where(F.col(PARTITION_KEY).isin(list(_KEYS))).collect())


def _counted(spark: SparkSession) -> bool:
    import pyspark.sql.functions as F
    from pyspark.sql import Observation

    counted = Observation()
    spark.range(3).observe(counted, F.count(F.lit(1)).alias("rows")).collect()
    return bool(counted.get["rows"] == 3)


def why_not_read(error: Exception) -> str:
    """The failure without the page of XML that a store answers with."""
    return explain_failure(error).partition(": <?xml")[0].rstrip(".")


def _names_of(root: str) -> Iterator[str]:
    """The names that a session may have for a root, the given name first."""
    protocol = protocol_of(root)
    for alias in _ALIASES.get(protocol or "", (protocol,)):
        yield root if alias is None else f"{alias}://{root.partition('://')[2]}"


def _names_below(storage: Storage, folder: str) -> list[str]:
    try:
        found = storage.list_files(folder, deep=True)
    except FileNotFoundError:
        return []
    return [file.path.removeprefix(f"{folder}/") for file in found]


def _answers(ask: Callable[[], bool]) -> bool:
    """False where the engine refuses the question, too."""
    try:
        return ask()
    except Exception as error:
        if is_lost(error):
            raise
        return False


def _within(do: Callable[[], T], seconds: float) -> T | None:
    """The result of a call in a thread, None if it takes longer. Raises what the call raises."""
    future = in_own_thread(do, "databuild probe")
    return future.result() if wait([future], seconds).done else None


_found: dict[tuple[int, int, str], tuple[Any, Reach | WarehouseOutOfReach]] = {}
#: With the session, too.
_read: dict[tuple[int, int], tuple[Any, set[str]]] = {}
_lock = Lock()
