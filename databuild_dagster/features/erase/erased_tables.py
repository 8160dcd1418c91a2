"""The published table of a dataset from which rows are erased: it follows the log at once, and forgets values of erased rows (rule
10.11).

Metadata has the smallest and largest value of each column of each file. In Iceberg they are in manifests, which no engine removes
with an expired snapshot. In Delta they are in the versions of the log, from which the values of files that left are taken out.
"""

import time
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, cast, runtime_checkable

from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.tables.keeping import PublishedFiles
from databuild_dagster.features.tables.opening import place_of
from databuild_dagster.features.tables.port import Table, within
from databuild_dagster.features.tables.publisher import publish
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.storage import storage_at

#: A younger manifest without a snapshot may be of a publisher that commits just now.
YOUNG_SECONDS: Final = 600.0


class ErasedTables(PublishedFiles):
    """The published tables of datasets, which list files until they follow the log."""

    def __init__(self, engine: Engine, warehouse: str, **options: Any) -> None:
        super().__init__(engine.store, warehouse, **options)
        self._engine = engine
        #: Metadata of snapshots that this process has expired, by dataset.
        self._expired: dict[str, set[str]] = {}

    def follow(self, asset: str) -> None:
        """Publish what the log has; nothing for a dataset without a table. Raises what publishing raises."""
        dataset = self._engine.queries.datasets.get(asset)
        if dataset is not None and dataset.table:
            # A table that has all files already is behind, too: a removal waits for its mark.
            follow = partial(publish, self._engine, dataset, self._warehouse, advance=True, open_table=self._open)
            within(self._seconds, place_of(dataset, self._warehouse), follow)

    def tags(self, asset: str) -> list[str]:
        """The names under which snapshots are kept; none of a dataset without a table."""
        return self._ask(asset, lambda table: sorted({tag for one in table.history() for tag in one.tags})) or []

    def expire(self, asset: str, older_than_seconds: float) -> int:
        before = self._ask(asset, _metadata) or set()
        n_expired = super().expire(asset, older_than_seconds)
        self._expired.setdefault(asset, set()).update(before)
        return n_expired

    def clear(self, asset: str) -> list[str]:
        """Remove statistics of expired snapshots; returns the files that still have some and that are not ours to remove."""
        return self._ask(asset, lambda table: self._clear(asset, table)) or []

    def _clear(self, asset: str, table: Table) -> list[str]:
        if not self._is_own(table):
            return []
        if isinstance(table, ForgetsValues):
            table.forget_values()
        return _clear_iceberg(table, self._expired.pop(asset, set())) if isinstance(table, ForgetsSnapshots) else []


@runtime_checkable
class ForgetsValues(Protocol):
    """A table whose metadata keeps values of files that left."""

    def forget_values(self) -> None:
        """Take them out."""


@runtime_checkable
class ForgetsSnapshots(Protocol):
    """A table whose expired snapshots leave files with values behind."""

    def loaded(self) -> Any:
        """pyiceberg's table; None if there is none."""

    def own_metadata(self) -> list[Listed]:
        """The files of the metadata; none where a named catalog has the place of them."""


def _metadata(table: Table) -> set[str]:
    """The manifests, and their lists, of all snapshots of an Iceberg table; none of a Delta table, which forgets no version."""
    found = table.loaded() if isinstance(table, ForgetsSnapshots) else None
    if found is None:
        return set()
    lists = {snapshot.manifest_list for snapshot in found.snapshots()}
    manifests = (manifest for snapshot in found.snapshots() for manifest in snapshot.manifests(found.io))
    return lists | {manifest.manifest_path for manifest in manifests}


def _clear_iceberg(table: ForgetsSnapshots, expired: set[str]) -> list[str]:
    """Remove the manifests of expired snapshots; returns manifests too young to surely belong to an expired snapshot."""
    there = [file for file in table.own_metadata() if file.path.endswith(".avro")]
    loaded = table.loaded()
    if loaded is None:
        return []
    used = _metadata(cast("Table", table))
    for url in expired - used:
        with suppress(FileNotFoundError):
            loaded.io.delete(url)
    known = {url.removeprefix("file://") for url in used | expired}
    left = [file for file in there if file.path not in known]
    old = [file.path for file in left if time.time() - file.modified > YOUNG_SECONDS]
    if old:
        storage_at(old[0]).remove_files(old, within=old[0].rpartition("/")[0])
    return sorted({file.path for file in left}.difference(old))
