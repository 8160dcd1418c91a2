"""Open job runs with who asked for them and how long such builds take."""

from __future__ import annotations

from statistics import median
from typing import Final, TypedDict

from databuild_dagster.engine.who_asked import who_asked
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import asset_of
from databuild_dagster.shapes.job_runs import JobRunShape, job_run_shape
from databuild_dagster.store.queries.queries import Queries

#: Requesters that are named.
MAX_ASKERS: Final = 3


class BuildShape(TypedDict):
    """An open job run. The requesters are people, schedules and arcs, without the job runs in between."""

    job_run: JobRunShape
    asked_by: list[str]
    #: The seconds of its past launches, the middle one; null without any.
    usual_seconds: float | None


def open_builds(queries: Queries, most: int) -> list[BuildShape]:
    """The newest open job runs."""
    job_runs = queries.job_runs(open_only=True, most=most)
    askers = who_asked(queries, [uuid for job_run in job_runs for uuid in job_run.instances[:1]])
    usual: dict[str, float | None] = {}
    found: list[BuildShape] = []
    for job_run in job_runs:
        asset = asset_of(job_run.refs[0])
        if asset not in usual:
            spans = queries.launch_spans(asset)
            usual[asset] = median(span.seconds for span in spans) if spans else None
        asked = [asker for uuid in job_run.instances[:1] for asker in askers[uuid] if asker.source != DERIVATIVE]
        names = list(dict.fromkeys(asker.actor for asker in asked))[:MAX_ASKERS]
        found.append({"job_run": job_run_shape(job_run), "asked_by": names, "usual_seconds": usual[asset]})
    return found
