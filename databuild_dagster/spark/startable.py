"""Whether a session of some settings could be opened, without opening it: a command that would fail says so first."""

from __future__ import annotations

from databuild_dagster.spark.errors import RemoteUnreachable, SparkUnreachable
from databuild_dagster.spark.java import find_java
from databuild_dagster.spark.remote import RemoteSpark
from databuild_dagster.spark.server import check_reachable, server_statuses
from databuild_dagster.spark.settings import SparkMode, SparkSettings


def check_startable(settings: SparkSettings) -> None:
    """Nothing is started. Raises `JavaMissing`, `RemoteUnreachable`, and whatever `SparkSettings.check` raises."""
    settings.check()
    if settings.remote is not None:
        knock(settings.remote)
        if settings.remote.is_connect:
            return  # A cluster's driver runs here, and needs a Java.
    if SparkMode(settings.mode) is SparkMode.SHARED and settings.home and server_statuses(settings.home):
        return
    find_java()


def knock(remote: RemoteSpark) -> None:
    """One of several masters is enough. Raises `RemoteUnreachable`."""
    failures: list[SparkUnreachable] = []
    for host, port in remote.endpoints:
        try:
            check_reachable(host, port)
        except SparkUnreachable as error:
            failures.append(error)
        else:
            return
    if failures:
        raise RemoteUnreachable(url=remote.shown, **failures[0].facts) from failures[0]
