"""The name of a process that has ended, as the log keeps names of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

_SAY = "from databuild_dagster.engine.holders import this_process; print(this_process())"


@cache
def dead_process() -> str:
    """One is enough for a run: it stays dead."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", _SAY], capture_output=True, text=True, check=True, env=environment, timeout=240
    )
    return done.stdout.strip()
