"""The copies of lots, as a duty of each tick, at the end of a build, and in a thread beside its launches (rule 10.2)."""

from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.features.lots.copies.copies_beside import CopiesBeside
from databuild_dagster.features.lots.copies.lot_copies import keep_copies
from databuild_dagster.warehouse.storage import protocol_of


def _keep(work: Work) -> None:
    keep_copies(work.instance, work.deployment, work.datasets, head=work.head)


def _finish(place: Place, seconds: float | None) -> None:
    """What was built last is followed by no tick of the build; other tools are to find it all the same."""
    keep_copies(place.instance, place.deployment, place.datasets)


def _beside(place: Place) -> CopiesBeside | None:
    """None on a disk, where a copy takes no time."""
    if protocol_of(place.deployment.warehouse or warehouse_of(place.instance)) is None:
        return None
    return CopiesBeside(place.instance, place.deployment, place.datasets)


DUTIES = (
    Duty(
        "keep copies of lots",
        _keep,
        why="it may take minutes, and no duty before it depends on it",
        finish=_finish,
        needs_warehouse=True,
        beside=_beside,
    ),
)
