"""What a Dagster run asks for besides its refs: whether a person asks, and whether what is there will do (SPEC 8.1, 8.7)."""

from collections.abc import Callable
from dataclasses import dataclass

from dagster import DagsterInstance, DagsterRun

from databuild_dagster.bindings.adapter.dagster_private import BACKFILL_ID_TAG, RESUME_RETRY_TAG, RETRY_NUMBER_TAG
from databuild_dagster.bindings.adapter.run_tags import REBUILD_TAG, is_by_person
from databuild_dagster.model.events import MadeWith


@dataclass(frozen=True, slots=True)
class Asking:
    """The one who asks."""

    dagster_run_id: str
    #: A person opens what has failed; others are refused.
    by_person: bool
    #: What was made before this time is to be made anew; None where what is live will do.
    rebuild_before: float | None = None
    #: What it builds with what it gets; None for one that only asks.
    made_with: MadeWith | None = None


def asking(
    instance: DagsterInstance, run: DagsterRun, *, rebuild: bool = False, ahead_seconds: Callable[[], float] = float
) -> Asking:
    """As the run's tags say; `rebuild` is what its Launchpad config says.

    Dagster records when it was asked by the clock, and that is compared with the log's times, which may be ahead of it;
    `ahead_seconds` says by how much, and is asked for a rebuild only.
    """
    rebuilds = rebuild or run.tags.get(REBUILD_TAG) == "true"
    return Asking(
        dagster_run_id=run.run_id,
        by_person=is_by_person(run.tags) or _is_re_executed(run),
        rebuild_before=_asked_at(instance, run) + ahead_seconds() if rebuilds else None,
    )


def _is_re_executed(run: DagsterRun) -> bool:
    """By a person, from the UI: such a run has the tags of the one before it, a sensor's or a schedule's too."""
    automatic = RETRY_NUMBER_TAG in run.tags or BACKFILL_ID_TAG in run.tags
    return run.parent_run_id is not None and not automatic


def _asked_at(instance: DagsterInstance, run: DagsterRun) -> float:
    """A retry goes on where the run before it ended: what that one has rebuilt is what was asked for."""
    goes_on = RETRY_NUMBER_TAG in run.tags or RESUME_RETRY_TAG in run.tags
    first = run.root_run_id if goes_on and run.root_run_id is not None else run.run_id
    record = instance.get_run_record_by_id(first) or instance.get_run_record_by_id(run.run_id)
    assert record is not None, "a run that is executed is recorded"
    return record.create_timestamp.timestamp()
