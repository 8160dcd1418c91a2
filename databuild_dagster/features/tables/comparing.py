"""Compares a published table with the log, both ways, at the seq that its mark names (rule 10.10)."""

from collections.abc import Iterator
from typing import NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.registry.catalog import DagsterCatalog, LateInstance
from databuild_dagster.calls.contributions import Check, Checked
from databuild_dagster.engine.registering import as_of
from databuild_dagster.features.tables.errors import TableAhead, TableOfAnother, TableOfAnotherHistory
from databuild_dagster.features.tables.live_files import contents_of_dataset
from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import OpenTable
from databuild_dagster.features.tables.publisher import is_of_this_log
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.wording import typed
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store


class WrongTableFile(NamedTuple):
    """A file that is missing in a table, superfluous, or in the wrong partition."""

    path: str
    why: str


def wrong_table_files(
    store: Store, dataset: DatasetSpec, warehouse: str, *, open_table: OpenTable = open_table
) -> Iterator[WrongTableFile]:
    """The differences of a dataset's table; none if there is no table yet, or if it is only behind.

    Raises `TableOfAnother`, `TableAhead`, `TableOfAnotherHistory`, and what the table and the manifests raise.
    """
    place = place_of(dataset, warehouse)
    table = open_table(place)
    queries = Queries(store)
    mark, own, head = table.mark(), store.identity().id, queries.events.head().seq
    if mark is None or mark.seq == 0:
        return
    if mark.store_id != own:
        raise TableOfAnother(asset=place.asset, table=place.shown, found=mark.store_id, own=own)
    if mark.seq > head:
        raise TableAhead(asset=place.asset, table=place.shown, found=mark.seq, head=head)
    if not is_of_this_log(queries, mark):
        raise TableOfAnotherHistory(asset=place.asset, table=place.shown, seq=mark.seq)
    # Of dynamic partitions, only Dagster has the keys.
    gone = DagsterCatalog(LateInstance(DagsterInstance.get)).left_out
    contents = contents_of_dataset(queries, as_of(queries, dataset, mark.seq), place, mark.seq, gone)
    wanted = {file.path: values for values, files in contents.files.items() for file in files}
    present = table.files()
    for path in sorted(wanted.keys() | present.keys()):
        if path not in present:
            yield WrongTableFile(path, "it is missing there, and the log lists it")
        elif path not in wanted:
            yield WrongTableFile(path, "it is listed there, and the log does not list it")
        elif present[path] != wanted[path]:
            yield WrongTableFile(
                path, f"it is in partition {present[path]} there, and the log has it in {wanted[path]}"
            )


def _wrong_tables(checked: Checked) -> list[Violation]:
    found = []
    for dataset in Queries(checked.store).datasets.all().values():
        if not dataset.table:
            continue
        asset = dataset.asset
        try:
            for wrong in wrong_table_files(checked.store, dataset, checked.warehouse()):
                why = f"the table of {asset} is wrong: {wrong.why}; `databuild admin publish --repair {typed(asset)}` puts it right"
                found.append(Violation("rule 10.10", wrong.path, why))
        except DatabuildError as error:
            found.append(Violation("rule 10.10", asset, f"its table cannot be compared: {error.message}"))
    return found


CHECKS = (Check("published tables", _wrong_tables),)
