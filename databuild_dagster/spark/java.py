"""From the environment to a Java that Spark can run on: JAVA_HOME, then `java` on the PATH; 17 or newer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from databuild_dagster.spark.errors import JavaMissing

NEEDED_VERSION = 17
ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answers."""

    executable: str
    version: int

    @property
    def home(self) -> str:
        """What JAVA_HOME should say for it."""
        return os.path.dirname(os.path.dirname(os.path.realpath(self.executable)))


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark's scripts would take in this environment. Raises `JavaMissing`.

    JAVA_HOME wins even when it is wrong, since Spark's own scripts would follow it too.
    """
    if home := environment.get("JAVA_HOME"):
        executable = os.path.join(home, "bin", "java")
        if not os.access(executable, os.X_OK):
            raise JavaMissing(needed=NEEDED_VERSION, found=f"JAVA_HOME is {home}, where there is no bin/java")
    elif found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        executable = found
    else:
        raise JavaMissing(needed=NEEDED_VERSION, found="there is neither JAVA_HOME nor `java` on the PATH")

    version = _version_of(executable)
    if version is None:
        raise JavaMissing(needed=NEEDED_VERSION, found=f"{executable} does not say its version")
    if version < NEEDED_VERSION:
        raise JavaMissing(needed=NEEDED_VERSION, found=f"{executable} is version {version}")
    return Java(executable, version)


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
