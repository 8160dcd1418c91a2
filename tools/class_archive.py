"""Keeps the classes that Spark loads in one file, from which the JVMs of the tests start in about half the time.

The file belongs to one Java and one PySpark. A JVM that it does not fit reads its classes from the jars, as without the file. Where
Java cannot write such a file, an empty one says so.

    python -m tools.class_archive    # writes .venv/spark-classes.jsa
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from databuild_dagster.spark.errors import JavaMissing
from databuild_dagster.spark.installed import JVM_OPTIONS, find_java
from tests.support.child_environment import child_environment
from tests.support.jvm_options import CLASS_ARCHIVE, YOUNG_JVM

#: What the tests do with Spark most: rows to files and back, through Spark Connect.
JOB = """
from pyspark.sql import SparkSession

session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for number in range(3):
    rows = session.range(100).selectExpr("id", "id % 3 AS kind")
    rows.groupBy("kind").count().write.mode("overwrite").partitionBy("kind").parquet("rows")
    session.read.parquet("rows").join(rows, "kind").orderBy("id").collect()
    session.createDataFrame([(number, "a")], "id long, word string").filter("word = 'a'").collect()
session.stop()
"""
MAX_SECONDS = 600


def archive_classes(archive: Path) -> None:
    """Run a job whose JVM writes the archive when it ends. Raises `JavaMissing`."""
    with tempfile.TemporaryDirectory(prefix="databuild-classes-") as folder:
        written = Path(folder, archive.name)
        environment = child_environment() | {
            JVM_OPTIONS: f"{YOUNG_JVM} -XX:ArchiveClassesAtExit={written}",
            "JAVA_HOME": find_java().home,
        }
        # The JVM has this pipe, too: `run` returns when both processes have ended.
        subprocess.run(
            [sys.executable, "-c", JOB],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=MAX_SECONDS,
            check=True,
        )
        content = written.read_bytes() if written.exists() else b""
    temporary = archive.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(archive)


def main() -> None:
    print("Keeping the classes of Spark in one file, for the tests; this takes half a minute")
    try:
        archive_classes(CLASS_ARCHIVE)
    except (JavaMissing, subprocess.SubprocessError) as error:
        print(f"There is none: {error}", file=sys.stderr)
        CLASS_ARCHIVE.touch()
    else:
        if not CLASS_ARCHIVE.stat().st_size:
            print("This Java writes no such file; the tests run without it")


if __name__ == "__main__":
    main()
