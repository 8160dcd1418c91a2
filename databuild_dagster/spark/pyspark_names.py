"""What differs between the supported versions of PySpark, and access to the internals of its clients.

The names by which a dead JVM is forgotten are in `session`, the folder of Spark in `server`.

A name is looked for where it is used and never by the version: databricks-connect 15.4 calls itself 3.5.0 and has names of
Spark 4.0. What an older PySpark lacks is left out, and the table of `docs/how-to/versions.md` says what that costs."""

from __future__ import annotations

import inspect
import io
import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from databuild_dagster.spark.errors import PySparkDiffers
from databuild_dagster.spark.installed import installed_pyspark
from databuild_dagster.warehouse.files import return_freed_memory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.types import StructType

#: A client retries a lost server this often, for two seconds in all. PySpark's own 15 retries take ten minutes, and are
#: repeated when the process ends.
_RETRIES: Final[Mapping[str, Any]] = {
    "max_retries": 4,
    "initial_backoff": 100,
    "max_backoff": 1000,
    "backoff_multiplier": 3.0,
    "jitter": 50,
}

#: What clients call this machine: PySpark makes `localhost` of 127.0.0.1 where a token is sent.
_LOOPBACK: Final = ("localhost", "127.0.0.1")
#: gRPC's variable with the hosts that it reaches without a proxy.
_WITHOUT_PROXY: Final = "no_grpc_proxy"

#: Rows of this process that one task of Spark writes, in bytes of Arrow: a piece in which a client sends a table of more than 1 MB.
_FEW_BYTES: Final = 16 * 1024 * 1024

#: The first Spark whose `min_by` takes a number of values. A client that knows the number may talk to an older server.
_BOUNDED_MIN_BY: Final = (4, 2)

#: The loggers that print each failed query and each broken call as JSON (PySpark 4.0 and later).
_LOGGERS_OF_ERRORS: Final = (
    "SQLQueryContextLogger",
    "DataFrameQueryContextLogger",
    "pyspark.sql.connect.logging",
)


def context_class() -> Any:
    """The class of a JVM's context; None where PySpark is a client alone (pyspark-client)."""
    try:
        from pyspark.core.context import SparkContext
    except ImportError:
        return _older_context_class()
    return SparkContext


def _older_context_class() -> Any:
    """Its place before PySpark 4.0."""
    try:
        from pyspark.context import SparkContext  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return SparkContext


def has_jvm() -> bool:
    """Whether this process has a classic session, with a JVM of its own."""
    jvm = context_class()
    return jvm is not None and jvm._active_spark_context is not None


def is_spark_frame(value: object) -> bool:
    """Whether a value is a frame of any session. Before PySpark 4.0 a client's frame is no `pyspark.sql.DataFrame`."""
    return any(
        base.__name__ == "DataFrame" and base.__module__.startswith("pyspark.sql.") for base in type(value).__mro__
    )


def has_few_rows_of_ours(frame: DataFrame) -> bool:
    """Whether a client's frame is what `createDataFrame` made of so few rows that one task writes them; False if that is unknown."""
    plan = _plan_of_rows(frame)
    if type(plan).__name__ == "LocalRelation":
        return plan._table is None or bool(plan._table.nbytes <= _FEW_BYTES)
    return len(getattr(plan, "_data_hashes", ())) == 1


def _plan_of_rows(frame: DataFrame) -> Any:
    plan: Any = vars(frame).get("_plan")
    # Names of columns.
    return plan._child if type(plan).__name__ == "ToDF" else plan


def silence_query_errors() -> None:
    """Keep PySpark from printing each failed query and each broken call to stderr as JSON, even if it is caught.

    And from a warning beside the error of a server that does not answer.
    """
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]", UserWarning)
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Before PySpark 4.0 it prints none.
        return
    for name in _LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def shorten_retries(client: SparkConnectClient) -> None:
    """Let a client give a lost server up after two seconds."""
    if not hasattr(client, "set_retry_policies"):  # PySpark 3.5 reads its settings at each call.
        client._retry_policy.update(_RETRIES)  # type: ignore[attr-defined,unused-ignore]
        return
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client.set_retry_policies([DefaultPolicy(**_RETRIES)])


def check_client(spark: SparkSession) -> None:
    """Check that a new client's session has the names that are used without a way around them. Raises `PySparkDiffers`."""
    session: Any = spark
    needed = [(session, name) for name in ("_active_session", "client", "session_id")]
    needed += [(session.client, name) for name in ("_builder", "_user_id", "_session_id")]
    for owner, name in needed:
        if not hasattr(owner, name):
            raise PySparkDiffers(found=str(installed_pyspark()), name=f"{type(session).__name__}.{name}")


def leave_proxies_out() -> None:
    """Let clients of this process reach servers of this machine without the proxy of `http_proxy`.

    gRPC asks the proxy for every host that `no_grpc_proxy`, or `no_proxy` without such a variable, does not name. A company's
    proxy does not know this machine's loopback. Servers elsewhere are reached as before.
    """
    given = os.environ.get(_WITHOUT_PROXY) or os.environ.get("no_proxy") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    os.environ[_WITHOUT_PROXY] = ",".join(dict.fromkeys([*hosts, *_LOOPBACK]))


def new_client(url: str, user: str | None) -> SparkConnectClient:
    """A client without a session of its own, for the session that the url names. Without a user, PySpark would take $USER."""
    from pyspark.sql.connect.client import SparkConnectClient

    leave_proxies_out()
    client = SparkConnectClient(url, user_id=user)
    client._user_id = user
    shorten_retries(client)
    return client


def address_of(client: SparkConnectClient) -> tuple[str, str | None, str]:
    """The host and port of a client's server, its user, and its session."""
    builder: Any = client._builder
    return str(builder.endpoint), client._user_id, client._session_id


def condition_of(error: Any) -> str | None:
    """The name of an error's condition, such as PATH_NOT_FOUND."""
    ask = getattr(error, "getCondition", None) or error.getErrorClass  # Its name before PySpark 4.0.
    found: str | None = ask()
    return found


def query_contexts(error: Any) -> Sequence[Any]:
    """The places of an error in the user's code; none before PySpark 4.0."""
    ask = getattr(error, "getQueryContext", None)
    return ask() or [] if ask is not None else []


def reports_progress(spark: SparkSession) -> bool:
    """Whether this PySpark reports the progress of operations to a client. Versions from 4.0 on do."""
    return hasattr(spark, "registerProgressHandler")


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Arrow's columns for Spark's; points in time are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before PySpark 4.2 they always are.
    named: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **named)


class _SentRows(NamedTuple):
    """What takes the place of the Arrow table in a client's plan."""

    nbytes: int
    data: bytes


def compress_rows(spark: SparkSession) -> None:
    """Let a client of Sail hold and send the rows of `createDataFrame` compressed, with each plan that has them.

    The client makes up to four more copies of what it sends: 336,776 rows of 53 MB are sent as 11 MB, which also takes less
    processor time. The frame keeps these in place of the table, for all its plans. A Spark server gets large tables
    once, in pieces, and a PySpark without `_serialize_table` sends them as they are.
    """
    import pyarrow as pa

    session: Any = spark
    create = session.createDataFrame

    def create_compressed(*given: Any, **named: Any) -> DataFrame:
        frame: DataFrame = create(*given, **named)
        relation = _plan_of_rows(frame)
        if hasattr(relation, "_serialize_table") and isinstance(relation._table, pa.Table):
            return_freed_memory()
            rows = _SentRows(relation._table.nbytes, _compressed(relation._table))
            relation._table, relation._serialize_table = rows, lambda: rows.data
        return frame

    session.createDataFrame = create_compressed


def _compressed(table: pa.Table) -> bytes:
    import pyarrow as pa

    # Not Arrow's own buffer, of which bytes would be a copy. Level 3 takes no more time than Arrow's 1.
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=3))
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def frame_of_arrow(spark: SparkSession, table: pa.Table, *schema: StructType) -> DataFrame:
    """An Arrow table as a frame; before PySpark 4.0 by way of pandas."""
    from pyspark.sql import DataFrame

    # PySpark 4.0 brought `toArrow` together with Arrow tables in createDataFrame.
    data: Any = table if hasattr(DataFrame, "toArrow") else table.to_pandas()
    return spark.createDataFrame(data, *schema)


def arrow_of_frame(frame: DataFrame) -> pa.Table:
    """A frame as an Arrow table; before PySpark 4.0 by way of pandas."""
    import pyarrow as pa

    return frame.toArrow() if hasattr(frame, "toArrow") else pa.Table.from_pandas(frame.toPandas())


def spark_version(spark: SparkSession) -> tuple[int, ...]:
    """Major and minor version of the Spark behind a session, which may be older or newer than the PySpark here."""
    return tuple(map(int, re.findall(r"\d+", spark.version)[:2]))


def smallest(column: Column, count: int, spark: SparkSession) -> Column:
    """An aggregate: the `count` smallest values of a column; at most one before Spark 4.2, which cannot bound their number."""
    import pyspark.sql.functions as F

    if not count:  # Spark takes no 0.
        return F.lit(None)
    if "k" in inspect.signature(F.min_by).parameters and spark_version(spark) >= _BOUNDED_MIN_BY:
        return F.min_by(column, column, count)
    return F.array_compact(F.array(F.min(column)))
