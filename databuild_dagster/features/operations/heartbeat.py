"""The heartbeat of an executor of operations."""

from databuild_dagster.engine.launch_heartbeat import Beating
from databuild_dagster.features.operations.executor import Executor


class ExecutorHeartbeat(Beating):
    """The heartbeat around the work of an executor of operations; it stops jobs whose lease or operation is gone."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(f"executor {executor.id}", executor.beat, executor.watch)
