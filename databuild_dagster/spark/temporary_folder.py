"""One folder for the temporary files of this process and of the JVM that it starts.

Python takes `TMPDIR`, and Java always `/tmp`. Where the root file system is read-only, only the folder of `TMPDIR` can be written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
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


def jvm_options(environment: Mapping[str, str]) -> str:
    """The environment's options of Spark's JVM, with this folder unless they name another. Raises `NoTemporaryFolder`."""
    given = environment.get(JVM_OPTIONS, "")
    return given if _PROPERTY in given else f'{given} "{_PROPERTY}{temporary_folder()}"'.strip()
