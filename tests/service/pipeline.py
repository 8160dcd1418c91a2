"""The pipeline of the clients: `b` reads `a`. Each call of a function makes data that no other call makes, and notes its begin and end."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

KEYS = ("x", "y")
REFS = tuple(f"{asset}@{key}" for asset in "ab" for key in KEYS)
#: Functions note here when they begin and end.
CALLS = "calls.jsonl"

_folder = Path(os.environ.get("SERVICE_FOLDER", "."))
_partitions = dg.StaticPartitionsDefinition(list(KEYS))


def _call(ref: str) -> str:
    """The token of this call."""
    token = uuid.uuid4().hex
    for what in ("begin", "end"):
        line = json.dumps({"what": what, "ref": ref, "token": token, "pid": os.getpid(), "at": time.monotonic()})
        with (_folder / CALLS).open("a") as calls:
            calls.write(line + "\n")
        if what == "begin":
            threading.Event().wait(random.uniform(0.0, 0.5))
    return token


@databuild_asset(partitions_def=_partitions)
def a(context: BuildContext) -> pd.DataFrame:
    """A token."""
    return pd.DataFrame({"a": [_call(str(context.ref))]})


@databuild_asset(partitions_def=_partitions)
def b(context: BuildContext, a: pd.DataFrame) -> pd.DataFrame:
    """A token, beside that of the input."""
    return a.assign(b=_call(str(context.ref)))


defs = build_definitions([a, b])
