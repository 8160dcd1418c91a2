"""All queries to the state as one object; each subject has a module. They read by keys and partial indexes."""

from __future__ import annotations

from databuild_dagster.store.queries.arcs import ArcQueries
from databuild_dagster.store.queries.canonical import CanonicalQueries
from databuild_dagster.store.queries.compared import ComparedQueries
from databuild_dagster.store.queries.datasets import DatasetQueries
from databuild_dagster.store.queries.events import EventQueries
from databuild_dagster.store.queries.gaps import GapQueries
from databuild_dagster.store.queries.instances import InstanceQueries
from databuild_dagster.store.queries.job_runs import JobRunQueries
from databuild_dagster.store.queries.lineage_at import LineageAtQueries
from databuild_dagster.store.queries.marks import MarkQueries
from databuild_dagster.store.queries.planning import PlanningQueries
from databuild_dagster.store.queries.requesters import RequesterQueries
from databuild_dagster.store.queries.served import ServedQueries
from databuild_dagster.store.queries.set_aside import AsideQueries
from databuild_dagster.store.queries.taints import TaintQueries
from databuild_dagster.store.queries.wants import WantQueries


class Queries(
    CanonicalQueries,
    InstanceQueries,
    LineageAtQueries,
    ComparedQueries,
    TaintQueries,
    WantQueries,
    JobRunQueries,
    PlanningQueries,
    ServedQueries,
    GapQueries,
    MarkQueries,
    DatasetQueries,
    EventQueries,
    AsideQueries,
    ArcQueries,
    RequesterQueries,
):
    """Every query of the floors above. A function that needs one subject can take that subject alone."""
