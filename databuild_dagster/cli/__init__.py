"""The `databuild` command: reads by queries, changes by commands, builds by ticks in its own process."""

from databuild_dagster.cli.main import main

__all__ = ["main"]
