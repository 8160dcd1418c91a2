"""One process that ticks over a world."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from databuild_dagster.engine.judge import Judge, Witness
from databuild_dagster.engine.ports import DagsterRunStatus, Provider, Remains
from databuild_dagster.engine.tick import TickReport, tick
from databuild_dagster.engine.tick_pass import Pass, TickLimits
from databuild_dagster.model.refs import Ref

from .catalog import HERE
from .ports import HandForeign, HandLauncher
from .world import World


class Orchestrator:
    """One process that ticks, with what it sees of Dagster."""

    def __init__(
        self,
        world: World,
        *,
        name: str = "orchestrator",
        launcher: HandLauncher | None = None,
        foreign: HandForeign | None = None,
        gone: Callable[[str], bool] = lambda holder: False,
        location: str = HERE,
        remains: Remains | None = None,
        providers: Sequence[Provider] = (),
        witnesses: Sequence[Witness] = (),
    ) -> None:
        self.world = world
        self.name = name
        self.location = location
        self.launcher = launcher or HandLauncher()
        self.foreign = foreign or HandForeign()
        self.judge = Judge(gone=gone, witnesses=witnesses)
        self.remains = remains
        self.providers = providers

    def tick(
        self, *, interval_seconds: float = 0.0, serving: Collection[Ref] | None = None, **limits: int
    ) -> TickReport:
        return tick(
            Pass(
                self.world.engine,
                location=self.location,
                launcher=self.launcher,
                foreign=self.foreign,
                judge=self.judge,
                owner=self.name,
                remains=self.remains,
                limits=TickLimits(**limits),
                interval_seconds=interval_seconds,
                serving=serving,
                providers=self.providers,
            )
        )

    def tick_for(self, seconds: float, every: int = 5) -> TickReport:
        """As the sensor does, every few seconds."""
        reports = TickReport()
        for _ in range(0, int(seconds), every):
            self.world.clock.turn(every)
            reports.add(self.tick())
        return reports

    def start(self, launch_id: str) -> None:
        """The Dagster run of a launch begins in a process."""
        self.launcher.set_status(launch_id, DagsterRunStatus.RUNNING)
        self.world.start_launch(launch_id)
