"""The copies of lots, as a duty of each tick, at the end of a build, and in a thread beside its launches (rule 10.2).

In a bucket a copy is a request, so the copies of a launch take as long as its manifests. Between two launches they would delay the
next launch; beside it they use the time in which the builder waits for Spark. The cursor of `lot_copies` is stored as by a tick:
a process that dies leaves the rest to the next process.
"""

from collections.abc import Collection
from threading import Condition, Thread

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.features.lots.copies.lot_copies import keep_copies
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.warehouse.storage import protocol_of

#: The more refs are written together, the fewer listings their folders take.
PORTION_REFS = 500
#: The wait at the end of a build for copies that are left.
MAX_SECONDS = 60.0
#: Seconds of a pass beside a launch; its cursor is stored afterwards.
PASS_SECONDS = 2.0


class CopiesBeside:
    """Follows the log for a location of a build, in a thread that begins with the first call of `follow`."""

    def __init__(self, instance: DagsterInstance, deployment: Deployment, datasets: Collection[DatasetSpec]) -> None:
        self._instance = instance
        self._deployment = deployment
        self._datasets = datasets
        self._changed = Condition()
        self._has_work = False
        self._is_busy = False
        self._is_closed = False
        self._thread: Thread | None = None

    def follow(self) -> None:
        """Let the thread follow the log up to its present end."""
        with self._changed:
            self._has_work = True
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="databuild copies", daemon=True)
                self._thread.start()

    def finish(self, seconds: float | None) -> None:
        """Follow the log to its end, for at most so many seconds, or else `MAX_SECONDS`, and close."""
        self.follow()
        with self._changed:
            most_seconds = MAX_SECONDS if seconds is None else seconds
            self._changed.wait_for(lambda: not (self._has_work or self._is_busy), most_seconds)
        self.close()

    def close(self) -> None:
        """End the thread after its present pass; what is left is written by the next tick."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            # The end of the process must not interrupt a pass.
            self._changed.wait_for(lambda: not self._is_busy, 2 * PASS_SECONDS)

    def _run(self) -> None:
        while self._begins():
            # None after an error, which is logged; the next call of `follow` tries again.
            is_at_end = keep_copies(
                self._instance,
                self._deployment,
                self._datasets,
                max_seconds=PASS_SECONDS,
                portion_refs=PORTION_REFS,
            )
            with self._changed:
                self._is_busy = False
                self._has_work = self._has_work or is_at_end is False
                self._changed.notify_all()

    def _begins(self) -> bool:
        """Wait for the next pass; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_work or self._is_closed)
            # Work that is added during a pass needs a further pass.
            self._has_work, self._is_busy = False, not self._is_closed
            return self._is_busy


def _keep(work: Work) -> None:
    keep_copies(work.instance, work.deployment, work.datasets, head=work.head)


def _finish(place: Place, seconds: float | None) -> bool | None:
    """What was built last is followed by no tick of the build; other tools are to find it all the same."""
    return keep_copies(place.instance, place.deployment, place.datasets)


def _beside(place: Place) -> CopiesBeside | None:
    """None on a disk, where a copy takes no time."""
    if protocol_of(place.deployment.warehouse or warehouse_of(place.instance)) is None:
        return None
    return CopiesBeside(place.instance, place.deployment, place.datasets)


DUTIES = (
    Duty(
        "keep copies of lots",
        _keep,
        is_public=True,
        why="it may take minutes, and no duty before it depends on it",
        finish=_finish,
        needs_warehouse=True,
        beside=_beside,
    ),
)
