"""Operations on a deployed site, whose jobs an executor of the test's process runs."""

import threading
from typing import Any

from databuild_dagster.features.operations.coordinator import Coordinator
from databuild_dagster.features.operations.manager import DistributedOperationManager
from databuild_dagster.features.operations.operation_context import OperationContext
from databuild_dagster.features.operations.operations import (
    executor_of,
    jobs_at_once,
    manager_of,
    operation_resources,
    run_jobs,
)
from databuild_dagster.features.operations.seen import OperationView
from databuild_dagster.model.operations.keys import OperationId
from tests.bindings.conftest import Site


def manager_of_site(site: Site) -> DistributedOperationManager:
    return manager_of(operation_resources(site.instance, site.deployment), site.deployment, actor="user")


class Running:
    """An operation that was started, in this process."""

    def __init__(
        self, site: Site, type_name: str, arg: Any = None, dataset: str = "orders", partitions: Any = None
    ) -> None:
        self.resources = operation_resources(site.instance, site.deployment)
        self.manager: DistributedOperationManager = manager_of(self.resources, site.deployment, actor="user")
        self.id: OperationId = self.manager.start(type_name, dataset, arg, partitions=partitions)

    def run_jobs(self, most: int | None = None) -> None:
        executor = executor_of(self.manager, self.resources)
        run_jobs(executor, self.id, most or jobs_at_once(self.manager, self.id), pause=threading.Event().wait)

    def complete(self) -> OperationView:
        Coordinator(self.manager, contexts=OperationContext).coordinate()
        return self.manager.operation(self.id)

    def end(self) -> OperationView:
        self.run_jobs()
        return self.complete()
