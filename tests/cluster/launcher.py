"""A run launcher for hosts with an `agent`. It answers Dagster's run monitoring as the launcher of Kubernetes does."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData

from .agent import PORT

HOST_TAG: Final = "lab/host"
#: An agent that was not reached within that time starts nothing, as far as this launcher knows.
SECONDS: Final = 5.0
_STATUS: Final = {
    "runs": WorkerStatus.RUNNING,
    "succeeded": WorkerStatus.SUCCESS,
    "failed": WorkerStatus.FAILED,
    "unknown": WorkerStatus.UNKNOWN,
}


class AgentLauncher(RunLauncher, ConfigurableClass):
    """Starts each run on one of its `hosts`. A run gets the environment of its image in `images`."""

    def __init__(
        self,
        hosts: Sequence[str] = (),
        images: Mapping[str, Mapping[str, str]] = {},
        inst_data: ConfigurableClassData | None = None,
    ) -> None:
        super().__init__()
        self._hosts = hosts
        self._images = images
        self._inst_data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> Any:
        return {"hosts": [str], "images": dict}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> AgentLauncher:
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        run, origin = context.dagster_run, context.job_code_origin
        assert origin is not None
        command = ExecuteRunArgs(
            job_origin=origin, run_id=run.run_id, instance_ref=self._instance.get_ref()
        ).get_command_args()
        image = origin.repository_origin.container_image
        body = {"id": run.run_id, "command": command, "environment": self._images.get(image or "", {})}
        first = int(run.run_id[:8], 16)
        for n in range(len(self._hosts)):
            host = self._hosts[(first + n) % len(self._hosts)]
            # Before the request: its answer may be lost.
            self._instance.add_run_tags(run.run_id, {HOST_TAG: host})
            try:
                _ask(host, "POST", "/runs", body)
                return
            except OSError as error:
                self._instance.report_engine_event(f"The agent of {host} does not answer: {error}", run)
        raise dg.DagsterError(f"None of the agents of {', '.join(self._hosts)} answers.")

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """A node that does not answer has its pods for the next five minutes; one that was started again has none of them."""
        try:
            answer = _ask(run.tags[HOST_TAG], "GET", f"/runs/{run.run_id}") if HOST_TAG in run.tags else "unknown"
        except OSError:
            answer = "runs"
        return CheckRunHealthResult(_STATUS[answer], f"its worker: {answer}")

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        if run is None or HOST_TAG not in run.tags:
            return False
        self._instance.report_run_canceling(run)
        return _ask(run.tags[HOST_TAG], "DELETE", f"/runs/{run_id}") == "terminated"


def _ask(host: str, method: str, path: str, body: object = None) -> str:
    """Raises `OSError` if the agent does not answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{host}:{PORT}{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return str(response.read().decode())
