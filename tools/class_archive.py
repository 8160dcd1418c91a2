"""Keeps the classes that Spark loads in one file, from which the JVMs of the tests start in about half the time.

python -m tools.class_archive    # writes .venv/spark-classes.jsa
"""

from __future__ import annotations

import subprocess
import sys

from databuild_dagster.spark.class_archive import write_archive
from databuild_dagster.spark.errors import JavaMissing
from tests.support.jvm_options import CLASS_ARCHIVE, YOUNG_JVM


def main() -> None:
    print("Keeping the classes of Spark in one file, for the tests; this takes half a minute")
    try:
        write_archive(CLASS_ARCHIVE, YOUNG_JVM)
    except (JavaMissing, subprocess.SubprocessError) as error:
        print(f"There is none: {error}", file=sys.stderr)
        CLASS_ARCHIVE.touch()
    else:
        if not CLASS_ARCHIVE.stat().st_size:
            print("This Java writes no such file; the tests run without it")


if __name__ == "__main__":
    main()
