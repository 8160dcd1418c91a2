"""Published tables that are not what the log says (rule 10.10)."""

from __future__ import annotations

from databuild_dagster.features.tables.comparing import wrong_table_files
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.shapes.contributions import Check, Checked
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.queries.queries import Queries


def _wrong_tables(checked: Checked) -> list[Violation]:
    found = []
    for dataset in Queries(checked.store).datasets().values():
        if not dataset.table:
            continue
        asset = dataset.asset
        try:
            for wrong in wrong_table_files(checked.store, dataset, checked.warehouse()):
                why = f"the table of {asset} is wrong: {wrong.why}; `databuild publish {asset} --repair` puts it right"
                found.append(Violation("rule 10.10", wrong.path, why))
        except DatabuildError as error:
            found.append(Violation("rule 10.10", asset, f"its table cannot be compared: {error.message}"))
    return found


CHECKS = (Check("published tables", _wrong_tables),)
