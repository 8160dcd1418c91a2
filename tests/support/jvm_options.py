"""The options of the JVMs of tests, which end young."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

#: The second compiler of Java costs such a JVM more than it saves.
YOUNG_JVM: Final = "-XX:TieredStopAtLevel=1"
#: The classes that Spark loads, for this environment (tools/class_archive.py). It is empty where Java cannot write one.
CLASS_ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")


def options_of_young_jvms() -> str:
    """No warning: a JVM that the archive does not fit would write one on its standard output, which some tests read."""
    if not CLASS_ARCHIVE.exists() or not CLASS_ARCHIVE.stat().st_size:
        return YOUNG_JVM
    return f"{YOUNG_JVM} -XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:disable"
