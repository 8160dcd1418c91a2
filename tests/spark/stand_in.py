"""A SPARK_HOME whose server does nothing but listen: for the rules about servers that no JVM is needed to show."""

from __future__ import annotations

import sys
from pathlib import Path

LISTENS = """#!{python} -IS
import socket, sys

properties = open(sys.argv[sys.argv.index("--properties-file") + 1]).read()
port = dict(line.split("=", 1) for line in properties.splitlines())["spark.connect.grpc.binding.port"]
with socket.create_server(("127.0.0.1", int(port))) as server:
    while True:
        server.accept()[0].close()
"""
COMPLAINS = """#!/bin/sh
echo 'Exception in thread "main": {complaint}'
exit 1
"""
#: The warning is the last line that a JVM writes before it is killed.
IS_KILLED = """#!/bin/sh
echo 'WARNING: Using incubator modules: jdk.incubator.vector'
{once}
kill -9 $$
"""
#: The second start is another's.
ONCE = '[ -e {mark} ] && exec {then}/bin/spark-submit "$@"; touch {mark}'
#: As a JVM that a damaged archive of classes crashes.
CRASHES_BY_ARCHIVE = """#!/bin/sh
case "$SPARK_SUBMIT_OPTS" in *SharedArchiveFile*) kill -ABRT $$;; esac
exec {then}/bin/spark-submit "$@"
"""
IS_SILENT = """#!/bin/sh
echo 'Setting Spark log level to "WARN".'
exec sleep 600
"""


def listening_spark(folder: Path) -> str:
    """Its server accepts connections, and closes them."""
    return _spark_home(folder, LISTENS.format(python=sys.executable))


def complaining_spark(folder: Path, complaint: str) -> str:
    """Its server writes one line into its log and ends."""
    return _spark_home(folder, COMPLAINS.format(complaint=complaint))


def killed_spark(folder: Path, then: str | None = None) -> str:
    """Its server is killed while it starts; the first time only, if `then` is another SPARK_HOME."""
    once = "" if then is None else ONCE.format(mark=folder / "mark", then=then)
    return _spark_home(folder, IS_KILLED.format(once=once))


def spark_that_archives_crash(folder: Path, then: str) -> str:
    """Its server crashes with an archive of classes; without one it is the server of another SPARK_HOME."""
    return _spark_home(folder, CRASHES_BY_ARCHIVE.format(then=then))


def silent_spark(folder: Path) -> str:
    """Its server neither listens nor ends."""
    return _spark_home(folder, IS_SILENT)


def _spark_home(folder: Path, submit: str) -> str:
    executable = folder / "bin" / "spark-submit"
    executable.parent.mkdir(parents=True)
    executable.write_text(submit)
    executable.chmod(0o755)
    return str(folder)
