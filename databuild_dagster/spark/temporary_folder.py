"""One folder for the temporary files of this process and of the JVM that it starts.

Python takes `TMPDIR`, and Java always `/tmp`. Where the root file system is read-only, only the folder of `TMPDIR` can be written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from databuild_dagster.spark.errors import NoTemporaryFolder

#: The variable with options of the JVM that `spark-submit` starts.
JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_PROPERTY: Final = "-Djava.io.tmpdir="


def temporary_folder() -> str:
    """The folder that `tempfile` uses. Raises `NoTemporaryFolder`."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise NoTemporaryFolder(why=error.strerror) from error


def jvm_options(environment: Mapping[str, str], server_folder: Path | None = None) -> str:
    """The environment's options of Spark's JVM, with this folder unless they name another.

    The server of a temporary home has its own folder there, which is removed with it: Spark leaves a folder for models behind.
    Raises `NoTemporaryFolder`.
    """
    given = environment.get(JVM_OPTIONS, "")
    if _PROPERTY in given:
        return given
    folder = temporary_folder()
    if server_folder is not None and server_folder.is_relative_to(folder):
        folder = str(server_folder)
    return f'{given} "{_PROPERTY}{folder}"'.strip()
