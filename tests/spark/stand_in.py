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


def listening_spark(folder: Path) -> str:
    """Its server accepts connections, and closes them."""
    return _spark_home(folder, LISTENS.format(python=sys.executable))


def complaining_spark(folder: Path, complaint: str) -> str:
    """Its server writes one line into its log and ends."""
    return _spark_home(folder, COMPLAINS.format(complaint=complaint))


def _spark_home(folder: Path, submit: str) -> str:
    executable = folder / "bin" / "spark-submit"
    executable.parent.mkdir(parents=True)
    executable.write_text(submit)
    executable.chmod(0o755)
    return str(folder)
