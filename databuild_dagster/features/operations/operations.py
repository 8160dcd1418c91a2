"""The types of operations of a location, and the manager, executor, heartbeat and resources of operations.

They serve a Dagster run, the sensor and a command line.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import Any, Final

from dagster import DagsterInstance, build_resources

from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import Setting, imported
from databuild_dagster.bindings.reading.frames import Frames
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark, forget_session_of
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.launch_heartbeat import Beating
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import JobContext
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.features.operations.operation_context import OperationContext, OperationResources, explained
from databuild_dagster.features.operations.provided import PROVIDED
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.logs import logger
from databuild_dagster.model.operations.compatibility import check_name
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Mark, Trouble
from databuild_dagster.model.wording import few_of
from databuild_dagster.warehouse.threads import DaemonThreads, n_cores

#: The entry point group in which a package lists operations: objects, or classes without arguments.
ENTRY_POINTS: Final = "databuild_dagster.operations"

Operations = tuple[DistributedOperation[Any], ...]


class InvalidOperationType(Exception):
    """An operation that cannot be registered; the message has its name and the reason."""


def known_operations(given: Iterable[DistributedOperation[Any]] = ()) -> Operations:
    """All of them, each type once. Raises `InvalidOperationType`."""
    found: dict[str, tuple[DistributedOperation[Any], str]] = {}
    for operation, source in [
        *((operation, "databuild itself") for operation in PROVIDED),
        *((_loaded(entry), f"the package {_package(entry)}") for entry in entry_points(group=ENTRY_POINTS)),
        *((operation, "build_definitions(operations=…)") for operation in given),
    ]:
        name = _checked(operation, source)
        if name in found:
            raise InvalidOperationType(
                f"{source} gives an operation {name!r}, which {found[name][1]} gives already; give it another type_name."
            )
        found[name] = operation, source
    return tuple(operation for operation, _ in found.values())


def _checked(operation: object, source: str) -> str:
    if not isinstance(operation, DistributedOperation):
        made = f"; make an object of it: {operation.__name__}()" if isinstance(operation, type) else ""
        raise InvalidOperationType(f"{source} gives {operation!r}, which is no DistributedOperation{made}.")
    name = getattr(operation, "type_name", None)
    if not isinstance(name, str):
        raise InvalidOperationType(f"{type(operation).__name__}, of {source}, has no type_name; give it one, a text.")
    try:
        return check_name("its type_name", name)
    except InvalidRequest as error:
        raise InvalidOperationType(f"{type(operation).__name__}, of {source}: {error.message}") from None


def _loaded(entry: EntryPoint) -> Any:
    try:
        found = entry.load()
        return found() if isinstance(found, type) else found
    except Exception as error:  # Code of other packages may raise anything while it is imported.
        raise InvalidOperationType(
            f"The operation {entry.name!r} of the package {_package(entry)} cannot be loaded "
            f"({type(error).__name__}: {' '.join(str(error).split())}); repair or remove that package."
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _operation(place: str, name: str) -> DistributedOperation[Any]:
    """Raises `InvalidAsset` for a name that is not found or is no operation."""
    module_name, _, own = name.rpartition(".")
    found = getattr(imported(module_name), own, None) if module_name else None
    if found is None:
        raise InvalidAsset(
            f"{place} names the operation {name!r}, which cannot be imported; write it as my_project.quality.RowCount."
        )
    made = found() if isinstance(found, type) else found
    if not isinstance(made, DistributedOperation):
        raise InvalidAsset(f"{place} names the operation {name!r}, which is no DistributedOperation.")
    return made


def _of_files(names: Iterable[str], place: str) -> list[DistributedOperation[Any]]:
    return [_operation(place, name) for name in names]


#: The types of a code location: given types, types of installed packages, provided types.
OPERATIONS: Final = Setting[Operations](
    name="operations",
    default=known_operations,
    checked=lambda operations, place: known_operations(operations),
    in_yaml=Sequence[str],
    yaml_default=(),
    description=(
        "Operations over whole datasets, besides those that databuild and installed packages have: "
        "my_project.quality.RowCount, a class that is made without arguments, or an object."
    ),
    from_yaml=_of_files,
)
SETTINGS: Final = (OPERATIONS,)


#: Jobs that an executor takes at once; a batched type gets all of them in a single call.
JOBS_AT_ONCE = 10
JOBS_OF_A_BATCH = 200
#: How long an executor with nothing due waits.
LOOK_SECONDS = 1.0


class OwnSpark:
    """The code location's Spark resource outside of Dagster runs, set up when its session is first used."""

    def __init__(self, spark: Any, instance: DagsterInstance) -> None:
        self._spark = spark
        self._instance = instance
        self._held = ExitStack()
        self._resource: Any = None
        self._lock = Lock()

    @property
    def spark_session(self) -> Any:
        with self._lock:
            if self._resource is None:
                resources = build_resources({"spark": self._spark or DatabuildSpark()}, instance=self._instance)
                self._resource = self._held.enter_context(resources).spark
            return self._resource.spark_session

    def forget_session(self) -> None:
        if self._resource is not None:
            forget_session_of(self._resource, None)

    def close(self) -> None:
        self._held.close()


def operation_resources(
    instance: DagsterInstance, deployment: Deployment, *, spark: Any = None, log: logging.Logger | None = None
) -> OperationResources:
    """The resources of a code location's operations; `spark` is a resource that Dagster has set up, if any."""
    frames = Frames(
        spark_resource=spark or OwnSpark(deployment.spark, instance),
        warehouse=deployment.warehouse or warehouse_of(instance),
        instance=instance,
    )
    return OperationResources(instance, frames, log or logger("databuild"))


def manager_of(resources: OperationResources, deployment: Deployment, *, actor: str) -> DistributedOperationManager:
    return DistributedOperationManager(resources.engine, OPERATIONS.of(deployment), actor=actor, resources=resources)


def operation_manager(
    instance: DagsterInstance, operations: Iterable[DistributedOperation[Any]] = (), *, actor: str | None = None
) -> DistributedOperationManager:
    """A manager to start, read and cancel operations from Python, with the provided, the packages' and the given types.

    Raises `InvalidOperationType`, `UnsupportedInstance`.
    """
    deployment = Deployment(of_features={OPERATIONS.name: known_operations(operations)})
    resources = operation_resources(instance, deployment)
    return manager_of(resources, deployment, actor=actor or this_user())


def executor_of(
    manager: DistributedOperationManager,
    resources: OperationResources,
    *,
    judge: Judge | None = None,
    on_ended: Callable[[JobContext, Mark], None] = lambda context, mark: None,
    on_retry: Callable[[JobContext, Trouble], None] = lambda context, trouble: None,
) -> Executor:
    """An executor whose jobs have an `OperationContext`."""
    return Executor(
        manager,
        judge=judge,
        extras=resources,
        contexts=OperationContext,
        around=resources.around,
        on_ended=on_ended,
        on_retry=on_retry,
        explained=explained,
    )


def jobs_at_once(manager: DistributedOperationManager, id: OperationId) -> int:
    """Raises `UnknownOperationType`."""
    return JOBS_OF_A_BATCH if manager.type_named(id.type).batched else JOBS_AT_ONCE


def calls_at_once(manager: DistributedOperationManager, id: OperationId, asked: int | None = None) -> int:
    """The calls that an executor makes at a time: as asked, as the type declares, or as the cores allow (rule 9.4).

    Raises `UnknownOperationType`.
    """
    operation = manager.type_named(id.type)
    return asked or operation.parallel or (1 if operation.batched else n_cores())


def run_jobs(
    executor: Executor,
    id: OperationId,
    most: int,
    *,
    parallel: int = 1,
    pause: Callable[[float], object],
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Run jobs of an operation until none is left; the operation bounds the loop.

    The executor takes `most` jobs at a time, and more if `parallel` calls would leave a thread idle. In any case running
    jobs are asked to end, and jobs that end are given back. Raises `UnknownOperationType`, `NewerOperation`,
    `CannotExecute`, and errors of the store.
    """
    threads = DaemonThreads[None](parallel, "databuild job")
    with ExecutorHeartbeat(executor):
        try:
            while executor.step(id, max(most, parallel), threads) or executor.jobs:
                after_step()
                if executor.jobs:
                    pause(min(executor.seconds_until_due, LOOK_SECONDS))
        finally:
            threads.close()
            executor.interrupt()
            threads.stop(
                lambda: few_of([str(job.context.ref) for job in [*executor.jobs.values()] if job.is_running], 3)
            )
            executor.give_back()


class ExecutorHeartbeat(Beating):
    """The heartbeat around the work of an executor of operations; it stops jobs whose lease or operation is gone."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(f"executor {executor.id}", executor.beat, executor.watch)
