"""Whether a session of some settings could be opened, without opening it: a command that would fail says so first."""

from __future__ import annotations

from databuild_dagster.spark.java import find_java
from databuild_dagster.spark.server import server_statuses
from databuild_dagster.spark.settings import SparkMode, SparkSettings


def check_startable(settings: SparkSettings) -> None:
    """Nothing is started. Raises `JavaMissing`, and whatever `SparkSettings.check` raises."""
    settings.check()
    if settings.remote is not None and settings.remote.is_connect:
        return  # Opening it knocks; a cluster's driver runs here, and needs a Java.
    if SparkMode(settings.mode) is SparkMode.SHARED and settings.home and server_statuses(settings.home):
        return
    find_java()
