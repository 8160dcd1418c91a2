"""Run launchers of tests."""

from __future__ import annotations

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.test_utils import MockedRunLauncher


class Unknowing(MockedRunLauncher):
    """It started no pod or container for the run, and answers as the launchers of Docker and of Kubernetes do."""

    supports_check_run_worker_health = True

    def __init__(self, status: WorkerStatus) -> None:
        super().__init__()
        self._status = status

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        return CheckRunHealthResult(self._status, "No container ID tag for run.")
