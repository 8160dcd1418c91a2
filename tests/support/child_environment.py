"""The environment of a process that a test starts."""

from __future__ import annotations

import os

from databuild_dagster.spark.installed import JVM_OPTIONS


def child_environment() -> dict[str, str]:
    """Ours without the marks of PySpark: a process that has had a Spark client has them, and its children would be clients too.

    The options of the tests' JVMs stay. A crash in native code names the Python calls of each thread.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_") or name == JVM_OPTIONS}
    return {**kept, "PYTHONFAULTHANDLER": "1"}
