"""Doubles of the engine's ports: a Dagster that starts what the engine orders, and ends it when the test says so."""

from __future__ import annotations

from databuild_dagster.engine.ports import DagsterRunState, DagsterRunStatus, LaunchOrder, Observation


class HandLauncher:
    """`engine.ports.Launcher`; a test decides when a Dagster run exists and how it ends."""

    def __init__(self, *, swallows_orders: bool = False) -> None:
        #: Every order ever given, in order; asking again is seen here.
        self.orders: list[LaunchOrder] = []
        self.runs: dict[str, DagsterRunState] = {}
        self.failed: dict[str, str] = {}
        #: A sensor's run request that Dagster never saw.
        self.swallows_orders = swallows_orders

    def launch(self, order: LaunchOrder) -> None:
        self.orders.append(order)
        if not self.swallows_orders:
            self.runs.setdefault(order.launch_id, DagsterRunState(f"run-of-{order.launch_id}", DagsterRunStatus.QUEUED))

    def dagster_runs(self, launches: dict[str, str | None]) -> dict[str, DagsterRunState]:
        return {launch_id: self.runs[launch_id] for launch_id in launches if launch_id in self.runs}

    def fail_dagster_run(self, dagster_run_id: str, message: str) -> None:
        self.failed[dagster_run_id] = message

    # What a test does with them.

    def set_status(self, launch_id: str, status: DagsterRunStatus) -> None:
        self.runs[launch_id] = self.runs[launch_id]._replace(status=status)

    def forget(self, launch_id: str) -> None:
        """A user deleted the Dagster run."""
        del self.runs[launch_id]

    @property
    def last(self) -> LaunchOrder:
        return self.orders[-1]


class HandForeign:
    """`engine.ports.Foreign`: what Dagster knows of plain and external assets is what the test put there."""

    def __init__(self) -> None:
        self.origins: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def observe(self, refs: tuple[str, ...]) -> dict[str, Observation]:
        return {ref: self._observe(ref) for ref in refs}

    def _observe(self, ref: str) -> Observation:
        if ref in self.reasons:
            return Observation(live=False, reason=self.reasons[ref])
        origin = self.origins.get(ref)
        return Observation(live=origin is not None, origin=origin)

    def materialize(self, ref: str, origin: str) -> None:
        self.reasons.pop(ref, None)
        self.origins[ref] = origin

    def fail(self, ref: str, reason: str = "its last run failed") -> None:
        self.reasons[ref] = reason
