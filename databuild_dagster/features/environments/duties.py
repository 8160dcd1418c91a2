"""What environments add to a tick: in an environment, and in its base."""

from typing import Final

from databuild_dagster.bindings.orchestration.duties import Duty
from databuild_dagster.features.environments import announcing, probing

DUTIES: Final = (
    Duty(
        "show borrowed partitions",
        announcing.in_tick,
        why="the tick borrows",
        behind="tend held Dagster runs",
        finish=announcing.at_end,
    ),
    Duty(
        "look for the disks of environments",
        probing.in_tick,
        why="a tick that fails takes nothing on",
        behind="show borrowed partitions",
        is_public=True,
    ),
)
