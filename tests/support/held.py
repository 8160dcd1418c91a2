"""The open files and threads of this process, counted by kind: what they have in common without its numbers and ids."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections import Counter
from contextlib import suppress

_NUMBERS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


def held() -> Counter[str]:
    """Such as `{"databuild.db": 2, "N.db-wal": 14, "thread MainThread": 1}`. Only on Linux."""
    gc.collect()
    names = [f"thread {thread.name}" for thread in threading.enumerate()]
    for number in os.listdir("/proc/self/fd"):
        # The one of the listing is closed by now.
        with suppress(FileNotFoundError):
            names.append(os.path.basename(os.readlink(f"/proc/self/fd/{number}")))
    return Counter(_NUMBERS.sub("N", name) for name in names)
