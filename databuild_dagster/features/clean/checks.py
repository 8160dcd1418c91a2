"""Storage that no instance uses and no clean-up removes (rule 10.8)."""

from __future__ import annotations

import time

from databuild_dagster.data.known_warehouses import warehouses_of
from databuild_dagster.features.clean.orphan_files import unlisted_storage
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.shapes.contributions import Check, Checked
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.queries.queries import Queries


def _unlisted(checked: Checked) -> list[Violation]:
    queries = Queries(checked.store)
    found = []
    for warehouse in warehouses_of(queries, checked.warehouse()):
        try:
            unlisted = unlisted_storage(queries, warehouse, time.time())
        except DatabuildError as error:
            why = f"the warehouse cannot be looked through: {error.message}"
            found.append(Violation("rule 10.8", warehouse.root, why))
            continue
        for storage in unlisted:
            whose = f" of {storage.ref}" if storage.ref else ""
            n_files = f"{storage.files} file{'' if storage.files == 1 else 's'}, " if storage.is_folder else ""
            what = f"{n_files}{storage.bytes:,} bytes"
            found.append(Violation("rule 10.8", storage.path, f"nothing reads this{whose} ({what}): {storage.why}"))
    return found


CHECKS = (Check("unlisted storage", _unlisted),)
