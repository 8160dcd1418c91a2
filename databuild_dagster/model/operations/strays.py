"""I9: keys that belong to no operation that runs (SPEC 12)."""

from __future__ import annotations

from collections.abc import Iterable

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.meta_storage import Entry
from databuild_dagster.model.operations.keys import SEPARATOR, OperationId, unescape
from databuild_dagster.model.operations.records import run_ops_of


def strays(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """(key, what is wrong) among all keys with a value that begin with `distOp.`, in their order."""
    values = {entry.key: entry.value for entry in entries}
    roots: list[OperationId] = []
    found: list[tuple[str, str]] = []
    allowed: set[str] = set()
    for key, value in values.items():
        parts = key.split(SEPARATOR)
        if len(parts) == 3 and parts[2] in ("runOps", "coordinator"):
            allowed.add(key)
            if parts[2] == "runOps":
                try:
                    roots += run_ops_of(unescape(parts[1]), value)
                except (ValueError, Refused) as error:
                    found.append((key, f"cannot be read: {error}"))
        elif len(parts) == 4 and parts[3] == "nextInstanceId":
            allowed.add(key)
    running = {id.root for id in roots if id.state in values}
    found += [(id.root, "is in runOps and has no state") for id in roots if id.root not in running]
    for key in values.keys() - allowed:
        parts = key.split(SEPARATOR)
        if not any(SEPARATOR.join(parts[:n]) in running for n in (4, 5)):
            found.append((key, "is of no operation that runs"))
    return sorted(found)
