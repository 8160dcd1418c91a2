"""The homes whose whole paths an older version's log has, found once, when the log is migrated (rule 3.10).

An older version recorded whole paths. Those that were inside its home, wherever that was then, are inside this home if the
manifest that they name is here at the same place.
"""

from __future__ import annotations

import json
import os

from databuild_dagster.store.format import FIRST_RELATIVE, FORMER_HOMES
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

#: Folders and files of a manifest's path that belong to one asset, at least: root, asset, `data`, instance, manifest.
_LEAST = 5


def note_former_homes(store: Store) -> list[str]:
    """Record and return the former homes in the log of an older version; none for a log of this one."""
    home = store.places.home
    if home is None or store.versions()[0] >= FIRST_RELATIVE:
        return []
    found = {_former_home(uri, home) for uri in Queries(store).recorded_manifests()} - {None}
    former = sorted(str(path) for path in found)
    store.describe({FORMER_HOMES: json.dumps(former)})
    return former


def _former_home(uri: str, home: str) -> str | None:
    if not uri.startswith("/"):
        return None
    if uri.startswith(f"{home}/"):
        return home
    parts = uri.split("/")
    for cut in range(2, len(parts) - _LEAST + 1):
        if os.path.exists(os.path.join(home, *parts[cut:])):
            return "/".join(parts[:cut])
    return None
