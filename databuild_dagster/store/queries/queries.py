"""All queries to the state as one object; each subject has a module. They read by keys and partial indexes."""

from __future__ import annotations

from databuild_dagster.store.queries.canonical import CanonicalQueries
from databuild_dagster.store.queries.datasets import DatasetQueries
from databuild_dagster.store.queries.events import EventQueries
from databuild_dagster.store.queries.instances import InstanceQueries
from databuild_dagster.store.queries.job_runs import JobRunQueries
from databuild_dagster.store.queries.planning import PlanningQueries
from databuild_dagster.store.queries.wants import WantQueries


class Queries(
    CanonicalQueries,
    InstanceQueries,
    WantQueries,
    JobRunQueries,
    PlanningQueries,
    DatasetQueries,
    EventQueries,
):
    """Every query of the floors above. A function that needs one subject can take that subject alone."""
