"""The number of files that the builds of a plan read of their filtered inputs (rules 8.6, 9.8).

Only live inputs count: inputs in other states have no files yet.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from databuild_dagster.data.read_plan import manifests_in
from databuild_dagster.engine.why.preview import Action, AnnotatedPlan
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.file_index import FilesRead, narrowed
from databuild_dagster.warehouse.filters import parsed_filter
from databuild_dagster.warehouse.layout import Warehouse

#: Partitions of an input whose manifests are read, because a plan must appear at once.
MAX_PARTITIONS = 1000


class PlannedRead(NamedTuple):
    """A filtered input of a job."""

    job: str
    input: str
    where: str
    #: The live partitions whose manifests were read, and all.
    partitions: int
    of_partitions: int
    read: FilesRead


def planned_reads(queries: Queries, warehouse: Warehouse, annotated: AnnotatedPlan) -> Iterator[PlannedRead]:
    """The reads in the plan's order, without inputs that cannot be read: their build says why."""
    for (job, asset, where), refs in _filtered(annotated).items():
        canonical = queries.canonical.of(sorted(refs)).values()
        live = [found for found in canonical if found.state is InstanceState.LIVE and found.manifest_uri is not None]
        with suppress(DatabuildError):
            manifests = manifests_in(warehouse, asset, live[:MAX_PARTITIONS])
            # Without sqlglot the build reads every file.
            _, read = narrowed(warehouse, manifests, parsed_filter(where, spark_decides=True))
            yield PlannedRead(job, asset, where, len(manifests), len(refs), read)


def _filtered(annotated: AnnotatedPlan) -> Mapping[tuple[str, str, str], set[Ref]]:
    """(Job, input, condition) to the refs that the planned builds read."""
    graph = annotated.graph
    found: dict[tuple[str, str, str], set[Ref]] = {}
    for job in graph.jobs:
        for ref in job.produces:
            spec = graph.dataset_of(ref)
            if spec is None or annotated.verdicts[ref].action is not Action.BUILD:
                continue
            for given in spec.inputs:
                if isinstance(given.where, str):
                    refs = (input_ref for input_ref in graph.inputs[ref] if asset_of(input_ref) == given.asset)
                    found.setdefault((job.job, given.asset, given.where), set()).update(refs)
    return found
