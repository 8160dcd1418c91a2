"""The pass over the operations, as `databuild build` and `databuild tick` do and show it."""

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.orchestration.side_ticks import SideReport, SideTick
from databuild_dagster.features.operations.executor_runs import operations_tick
from databuild_dagster.model.operations.states import OperationState


def _tick(instance: DagsterInstance, deployment: Deployment) -> SideReport:
    """Its requests for executors are left to the sensor: a command starts no Dagster runs of the daemon."""
    done, _ = operations_tick(instance, deployment)()
    return SideReport(
        ended={str(id): outcome.value for id, outcome in done.completed.items()},
        failed=frozenset(str(id) for id, outcome in done.completed.items() if outcome is OperationState.FAILED),
        stuck={str(id): why for id, why in (done.problems | done.backing_off).items()},
        waiting={str(id): n for id, n in done.waiting.items() if n},
    )


SIDE_TICKS = (SideTick("operations", _tick),)
