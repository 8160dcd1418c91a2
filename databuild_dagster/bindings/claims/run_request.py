"""How a Dagster run asks for its refs: for a person or not, and to rebuild or not (SPEC 8.1, 8.7)."""

from collections.abc import Callable
from dataclasses import dataclass

from dagster import DagsterInstance, DagsterRun

from databuild_dagster.bindings.adapter.dagster_private import BACKFILL_ID_TAG, RESUME_RETRY_TAG, RETRY_NUMBER_TAG
from databuild_dagster.bindings.adapter.run_tags import REBUILD_TAG, is_by_person
from databuild_dagster.model.events import MadeWith


@dataclass(frozen=True, slots=True)
class Asking:
    """A Dagster run as a requester of refs."""

    dagster_run_id: str
    #: A person's request builds failed refs again; other requests are refused.
    by_person: bool
    #: Instances from before this time are rebuilt; None if live instances are enough.
    rebuild_before: float | None = None
    #: The versions that it builds with; None for a run that does not build.
    made_with: MadeWith | None = None


def asking(
    instance: DagsterInstance, run: DagsterRun, *, rebuild: bool = False, ahead_seconds: Callable[[], float] = float
) -> Asking:
    """The requester by the run's tags; `rebuild` is the value of its Launchpad config.

    Dagster records the request by the clock, and the event log may be ahead of the clock. `ahead_seconds` returns by how
    much; it is called for a rebuild only.
    """
    rebuilds = rebuild or run.tags.get(REBUILD_TAG) == "true"
    return Asking(
        dagster_run_id=run.run_id,
        by_person=is_by_person(run.tags) or _is_re_executed(run),
        rebuild_before=_asked_at(instance, run) + ahead_seconds() if rebuilds else None,
    )


def _is_re_executed(run: DagsterRun) -> bool:
    """A person re-executed it in the UI. The run copies the tags of its parent, also those of a sensor or schedule."""
    automatic = RETRY_NUMBER_TAG in run.tags or BACKFILL_ID_TAG in run.tags
    return run.parent_run_id is not None and not automatic


def _asked_at(instance: DagsterInstance, run: DagsterRun) -> float:
    """When the run, or the first run of its retries, was created. A retry keeps what the run before it has rebuilt."""
    is_retry = RETRY_NUMBER_TAG in run.tags or RESUME_RETRY_TAG in run.tags
    first = run.root_run_id if is_retry and run.root_run_id is not None else run.run_id
    record = instance.get_run_record_by_id(first) or instance.get_run_record_by_id(run.run_id)
    assert record is not None, "Dagster records every run that it executes"
    return record.create_timestamp.timestamp()
