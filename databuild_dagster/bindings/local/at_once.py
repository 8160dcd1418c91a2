"""How many launches run at a time in a process that builds, unless the user says (rule 8.9)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.warehouse.storage import protocol_of

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.authoring.location import CodeLocation

#: On this machine one computes while another is published.
HERE = 2
#: With a Spark or a store elsewhere, each waits for answers most of its time.
ELSEWHERE = 4


def launches_at_once(*, may_run_beside: bool, spark: str | None, store: str | None, free_cores: float) -> int:
    """The number for a project whose assets may all run beside others or not.

    `spark` is a mode of `DatabuildSpark`, None for another resource, whose launches share one session. `store` is the protocol
    of a warehouse in a bucket, None on a disk.
    """
    if not may_run_beside or spark is None:
        return 1
    if spark == "remote" or store is not None:
        return ELSEWHERE
    return HERE if free_cores > 1 else 1


def free_cores() -> float:
    """The cores of this machine minus its load of the last minute; 0 where the load cannot be known, as without /proc."""
    try:
        return (os.cpu_count() or 1) - os.getloadavg()[0]
    except OSError:
        return 0.0


def at_once_of(instance: DagsterInstance, locations: Iterable[CodeLocation]) -> int:
    """The number for all locations of this process, on this machine as it is now."""
    numbers = []
    for location in locations:
        assert location.deployment is not None, "only locations with a deployment are opened"
        assets = location.repository.asset_graph.assets_defs
        bodies = [body_of(asset) for asset in assets if asset.is_materializable]
        number = launches_at_once(
            may_run_beside=all(body is not None and body.may_run_beside for body in bodies),
            spark=getattr(location.deployment.spark, "mode", None),
            store=protocol_of(location.deployment.warehouse or warehouse_of(instance)),
            free_cores=free_cores(),
        )
        numbers.append(number)
    return min(numbers, default=1)
