"""Announcements of lots, with the lot ids of their datasets (rule 10.3)."""

from collections.abc import Iterator

from databuild_dagster.bindings.registry.lot_partitions import lot_id_of
from databuild_dagster.engine.publishing import Publication, published_stretches
from databuild_dagster.model.refs import partition_key_of
from databuild_dagster.store.queries.queries import Queries


def announced_lots(queries: Queries, after_seq: int, *, follow: bool) -> Iterator[Publication]:
    """The publications after a seq, to the end of the log; with `follow`, without end.

    A lot id follows from the present registration. A partition of an earlier definition, or of a removed dataset, may have none.
    """
    for _, publications in published_stretches(queries, after_seq, follow=follow):
        datasets = {spec.asset: spec for spec in queries.datasets().values()} if publications else {}
        for found in publications:
            dataset = datasets.get(found.dataset)
            lot = None if dataset is None else lot_id_of(dataset, partition_key_of(found.ref))
            yield found._replace(lot=lot)
