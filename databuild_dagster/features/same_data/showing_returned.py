"""Dagster gets a materialization of each instance that came back in place of a build, as of any publication (rule 4.9)."""

from collections.abc import Collection
from typing import Final

from dagster import DagsterInstance

from databuild_dagster.bindings.display.materialization import report_live
from databuild_dagster.bindings.orchestration.duties import Duty, Work
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.engine.follower import Cursor, LogFollower, apart
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import InstancesReturned, names_of
from databuild_dagster.model.refs import asset_of, derive_partition_uuid


def _show(work: Work) -> None:
    datasets = [dataset for dataset in work.datasets if dataset.deterministic]
    if datasets:
        show_returned(work.instance, work.deployment.location, datasets, head=work.head)


@apart("instances that came back could not be shown in Dagster")
def show_returned(
    instance: DagsterInstance, location: str, datasets: Collection[DatasetSpec], *, head: int | None = None
) -> None:
    """Materialize in Dagster what came back since the last look and is still what readers see."""
    engine = engine_for(instance)
    follower = LogFollower(engine, f"returned_shown/{location}", Cursor, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return
    cursor = follower.load() or Cursor()
    ours = {dataset.asset: dataset for dataset in datasets}
    for event in follower.events(cursor, names_of(InstancesReturned)):
        assert isinstance(event.fact, InstancesReturned), "the names are those of this type"
        returned = {one.ref: one for one in event.fact.returns if asset_of(one.ref) in ours}
        canonical = engine.queries.canonical.of(list(returned)) if returned else {}
        for ref, one in returned.items():
            uuid = derive_partition_uuid(one.job_run_id, ref)
            if canonical[ref].uuid == uuid:
                why = "An earlier instance, whose code and inputs are equal, came back in place of a build."
                report_live(instance, ours[asset_of(ref)], ref, uuid, one.manifest.rows, why)
        follower.keep(Cursor(event.seq))
    follower.keep(Cursor(follower.last_seq(cursor)))
    if follower.last_seq(cursor) == follower.head:
        follower.rest(follower.head)


DUTIES: Final = (
    Duty(
        "show instances that came back",
        _show,
        why="the tick takes instances back in place of builds",
        behind="show taints",
    ),
)
