"""`check`: every invariant recomputed, and the log folded anew beside the tables (SPEC 3.4, 12)."""

from __future__ import annotations

from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.store.invariants import Violation, violations
from databuild_dagster.store.rebuild import differences
from databuild_dagster.store.store import Store


def check(store: Store) -> list[Violation]:
    """All violations, in one consistent look. A log that does not fold is a violation too."""
    with store.reading() as connection:
        found = violations(connection)
        try:
            found += [Violation("I5", table, detail) for table, detail in differences(connection)]
        except IllegalMove as broken:
            found.append(Violation("I5", "log", str(broken)))
        return found
