"""A ref that a person typed: its canonical instance, or why no partition has that name."""

from databuild_dagster.cli.state import the_catalog
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import UnknownPartition
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.selections import RANGE
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries


def canonical_of(queries: Queries, ref: Ref) -> Canonical:
    """Raises `UnknownAsset` and `UnknownPartition`, so that a typing mistake is not taken for a missing partition."""
    asset = asset_of(ref)
    dataset = queries.datasets.known(asset)
    canonical = queries.canonical.of([ref])[ref]
    # What has an instance has a key that was right.
    if canonical.state is None and (why := why_not(dataset, partition_key_of(ref))):
        raise UnknownPartition(ref=ref, why=why, asset=asset)
    return canonical


def why_not(dataset: DatasetSpec, partition_key: str | None) -> str | None:
    """A sentence why the key is not a partition, None if it is."""
    why = the_catalog().why_not(dataset, partition_key)
    return f"{why} This command takes one partition." if why and RANGE in (partition_key or "") else why
