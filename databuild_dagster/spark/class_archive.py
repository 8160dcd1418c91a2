"""The classes that Spark loads, in one file per Java and PySpark of a user, from which a JVM starts in half the processor time.

    ~/.cache/databuild/classes/<key>.jsa

A JVM compares the file with its Java, its jars and a checksum, and reads the jars in place of a file that does not fit. Where Java
cannot write such a file, an empty one says so.

    python -m databuild_dagster.spark.class_archive FILE    # writes it, by a job of half a minute that gives way to all other work
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from databuild_dagster.spark.installed import JVM_OPTIONS, Java, cache_folder, find_java

#: What builds do with Spark most: rows to files and back, through Spark Connect.
_JOB: Final = """
from pyspark.sql import SparkSession

session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for number in range(3):
    rows = session.range(100).selectExpr("id", "id % 3 AS kind")
    rows.groupBy("kind").count().write.mode("overwrite").partitionBy("kind").parquet("rows")
    session.read.parquet("rows").join(rows, "kind").orderBy("id").collect()
    session.createDataFrame([(number, "a")], "id long, word string").filter("word = 'a'").collect()
session.stop()
"""
#: The job gives way to all other work.
MAX_SECONDS: Final = 3600.0
#: Archives of a user: each has 200 MB. The one that was used longest ago goes first.
MAX_ARCHIVES: Final = 3
#: A JVM takes the archive of its options, and no second one.
_OPTION: Final = "-XX:SharedArchiveFile="


def archive_for(java: Java, spark_home: str, spark_version: str) -> Path | None:
    """The place of the archive of this Java and this PySpark, whether it is written or not; None if the user names another."""
    options = os.environ.get(JVM_OPTIONS, "")
    if _OPTION in options:
        return None
    facts = json.dumps([os.path.realpath(java.executable), java.answer, spark_home, spark_version, options])
    return cache_folder() / "classes" / f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"


def options_with(archive: Path | None, options: str) -> str:
    """The options of a JVM, with the archive if it is written."""
    with suppress(OSError):
        if archive is not None and archive.stat().st_size:
            os.utime(archive)
            # Without the verification a JVM crashes by a damaged file whose header is good.
            return f'{options} "{_OPTION}{archive}" -Xshare:auto -XX:+VerifySharedSpaces'.strip()
    return options


def write_archive(archive: Path, options: str = "") -> None:
    """Run a job whose JVM writes the archive when it ends. Raises `JavaMissing`, `OSError`, `subprocess.SubprocessError`."""
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = archive.with_suffix(f".{os.getpid()}.part")
    environment = {name: value for name, value in os.environ.items() if name not in NOT_FOR_A_SERVER}
    environment |= {
        JVM_OPTIONS: f'{options} "-XX:ArchiveClassesAtExit={written}"'.strip(),
        "JAVA_HOME": find_java().home,
    }
    with tempfile.TemporaryDirectory(prefix="databuild-classes-") as folder:
        command = [sys.executable, "-c", _JOB]
        job = subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            # The JVM has these pipes, too: both processes have ended then.
            _, error = job.communicate(timeout=MAX_SECONDS)
            if job.returncode:
                raise subprocess.CalledProcessError(job.returncode, command, stderr=error)
            written.touch()
            written.replace(archive)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            written.unlink(missing_ok=True)


#: Variables that would make a server a client.
NOT_FOR_A_SERVER: Final = frozenset(
    {"SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "MASTER"}
)


def main() -> None:
    archive = Path(sys.argv[1])
    os.nice(10)
    write_archive(archive, os.environ.get(JVM_OPTIONS, ""))
    newest_first = sorted(archive.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest_first[MAX_ARCHIVES:]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
