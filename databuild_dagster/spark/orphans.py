"""From a session whose client has died to the end of what still runs in it.

A client's death stops nothing: its server goes on with the operation until it is done, on cores that the next try
needs. Any process that knows the session's address can stop it. The address holds no token; that is looked up where
it may be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from databuild_dagster.spark.remote import CONNECT_PORT, RemoteSpark, parse_url
from databuild_dagster.spark.server import HOST, check_reachable, record_at
from databuild_dagster.spark.session import (
    CLIENT_FIRST_WAIT_MS,
    CLIENT_LONGEST_WAIT_MS,
    CLIENT_RETRIES,
    is_client,
)
from databuild_dagster.spark.settings import SparkMode, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as ConnectSession


def session_address(spark: SparkSession) -> str | None:
    """`sc://host:port/;user_id=…;session_id=…`: for who wants to interrupt it from elsewhere; no token in it.

    None for a session in a JVM of this process, which ends with it.
    """
    if not is_client(spark):
        return None
    client = cast("ConnectSession", spark).client
    builder = cast("DefaultChannelBuilder", client._builder)
    return f"sc://{builder.endpoint}/;user_id={client._user_id or ''};session_id={client._session_id}"


def interrupt_orphans(settings: SparkSettings, address: str) -> tuple[str, ...]:
    """Stop everything that runs in a session of a dead client; the ids of what was asked to stop.

    The token is that of the home's server, or the one in the url of `settings`. Raises `SparkUnreachable` when the
    server is gone too, and with it whatever ran there, or what PySpark raises when it is not let in.
    """
    from pyspark.sql.connect.client import SparkConnectClient

    place = parse_url(address)
    (host, port) = place.endpoints[0]
    check_reachable(host, port)
    user = dict(place.parameters).get("user_id") or None
    client = SparkConnectClient(
        _with_access(place, settings),
        user_id=user,
        retry_policy={
            "max_retries": CLIENT_RETRIES,
            "initial_backoff": CLIENT_FIRST_WAIT_MS,
            "max_backoff": CLIENT_LONGEST_WAIT_MS,
        },
    )
    try:
        # It may be nobody's, and $USER would be filled in.
        client._user_id = user
        return tuple(client.interrupt_all() or ())
    finally:
        client.close()


def _with_access(place: RemoteSpark, settings: SparkSettings) -> str:
    (host, port) = place.endpoints[0]
    session_id = dict(place.parameters)["session_id"]
    if host == HOST and (record := record_at(settings.home, port)) is not None:
        return f"{record.url};session_id={session_id}"
    remote = settings.remote if SparkMode(settings.mode) is SparkMode.REMOTE else None
    theirs = remote.parameters if remote is not None and remote.endpoints == place.endpoints else ()
    parameters = [(key, value) for key, value in theirs if key not in ("user_id", "session_id")]
    text = ";".join(f"{key}={value}" for key, value in (*parameters, ("session_id", session_id)))
    return f"sc://{_bracketed(host)}:{port or CONNECT_PORT}/;{text}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
