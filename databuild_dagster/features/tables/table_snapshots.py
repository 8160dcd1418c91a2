"""Published tables in Dagster's catalog: name and place beside each materialization, and an observation per snapshot.

A snapshot follows the materializations of its partitions, because a tick publishes them later, many at once. So its id is in an
observation of the asset, which has no partition.
"""

from typing import Any

from dagster import AssetObservation, DagsterInstance, MetadataValue

from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.engine.follower import apart
from databuild_dagster.features.tables.opening import place_of
from databuild_dagster.features.tables.publisher import Published
from databuild_dagster.model.datasets import DatasetSpec

#: Dagster's own names, which its catalog shows at the head of an asset.
TABLE_NAME, URI = "dagster/table_name", "dagster/uri"


def table_entries(dataset: DatasetSpec, warehouse: str) -> dict[str, Any]:
    """The metadata of a materialization: the name and the place of the table; none for a dataset without one.

    `warehouse` is the home's own.
    """
    if not dataset.table:
        return {}
    place = place_of(dataset, warehouse)
    named = {TABLE_NAME: place.spec.name or None, URI: place.uri}
    return {name: value for name, value in named.items() if value is not None}


@apart("a snapshot of a published table could not be shown in Dagster")
def report_snapshot(instance: DagsterInstance, dataset: DatasetSpec, published: Published | None) -> None:
    """Observe a snapshot that a tick has committed. A process that dies before leaves the snapshot without an observation."""
    if published is None or published.snapshot is None or not dataset.table:
        return
    snapshot = published.snapshot
    metadata: dict[str, Any] = {
        **({TABLE_NAME: dataset.table.name} if dataset.table.name else {}),
        URI: snapshot.uri,
        "dagster/row_count": snapshot.rows,
        # As text: JavaScript's numbers are too short for an id of Iceberg.
        "databuild/table_snapshot": MetadataValue.text(str(snapshot.id)),
        "databuild/table_seq": published.seq,
        "databuild/table_metadata": MetadataValue.path(snapshot.metadata_file),
        "databuild/files_added": snapshot.files_added,
        "databuild/files_removed": snapshot.files_removed,
    }
    description = f"{published.table} holds up to seq {published.seq}, in snapshot {snapshot.id}."
    instance.report_runless_asset_event(
        AssetObservation(asset_key=asset_key(dataset.asset), description=description, metadata=metadata)
    )
