"""Dagster runs as anyone may ask for them over GraphQL: forged tags, ranges that are none, odd configuration (rules 8).

The request, the run if there is one, and the tick after it fail by typed errors alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster_graphql.test.utils import execute_dagster_graphql

from databuild_dagster.bindings.adapter import run_tags
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.authoring.location import load_code_locations
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.bindings.registry.instance import close_engine, engine_for, store_url
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.registering import register
from databuild_dagster.model.commands import ClaimRefs, CreateWants
from databuild_dagster.model.events import BufferedRun
from tests.support.checking import check
from tests.support.dagster_files import copy_dagster_files

from .values import TEXTS, any_json, any_text

NAME = "requests"
N_IN_CI = 12

DEFINITIONS = """
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
cells = dg.MultiPartitionsDefinition({"day": daily, "shop": dg.StaticPartitionsDefinition(["x", "y"])})


@databuild_asset(partitions_def=daily)
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@databuild_asset(partitions_def=daily)
def doubles(numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers


@databuild_asset(partitions_def=cells)
def sold(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"cell": [context.partition_key]})


@databuild_asset
def whole() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


defs = build_definitions([numbers, doubles, sold, whole], location="tests")
"""
ASSETS = ("numbers", "doubles", "sold", "whole")
KEYS = (
    *(
        "2013-01-01",
        "2013-01-02",
        "2013-01-31",
        "2013-02-30",
        "1999-01-01",
        "99999-01-01",
        "2013-01-01|x",
        "x|2013-01-01",
    ),
    *("|", "", "*", "2013-01-01..2013-01-03", "numbers@2013-01-01", *TEXTS),
)
#: Dagster's own tags for partitions, and ours.
PARTITION_TAGS = (
    *("dagster/partition", "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"),
    *(
        "dagster/partition/day",
        "dagster/partition/shop",
        "dagster/backfill",
        "dagster/run_key",
        "dagster/parent_run_id",
    ),
)
OWN_TAGS = (
    *(value for name, value in vars(run_tags).items() if name.endswith("_TAG") and str(value).startswith("databuild/")),
    *("databuild/wants", "databuild/spark", "databuild/nothing"),
)
FLAGS = (
    "true",
    "false",
    "True",
    "1",
    run_tags.RELEASED,
    run_tags.OVER,
    run_tags.OUTCOME_WAITING,
    run_tags.OUTCOME_DENIED,
)

LAUNCH = """
mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { className message stack } } }"""


class Requests:
    """A deployment with the coordinator, a launch of another process, and an open want."""

    def __init__(self, instance: dg.DagsterInstance, workspace: WorkspaceProcessContext, file: Path) -> None:
        self.instance, self.workspace = instance, workspace
        (location,) = load_code_locations(files=[str(file)])
        assert location.deployment is not None
        self.repository, self.deployment = location.repository, location.deployment
        self.engine = engine_for(instance)
        register(self.engine, "tests", datasets_of(self.repository.asset_graph, "tests"))
        launch, job_run = self.engine.new_id(), self.engine.new_id()
        self.engine.handle(
            ClaimRefs(
                launch_id=launch,
                job="numbers",
                location="tests",
                dagster_run_id=self.engine.new_id(),
                holder=this_process(),
                runs=(BufferedRun(job_run, ("numbers@2013-01-05",), "2013-01-05"),),
            )
        )
        want = self.engine.handle(CreateWants(wants=(("doubles@2013-01-06",),)))
        #: Placeholders for what exists, because ids differ in every run.
        self.ids = {"LAUNCH": launch, "JOB_RUN": job_run, "REQUEST": str(want.request_id), "PROCESS": this_process()}

    def make(self, random: Random) -> dict[str, Any]:
        tags = {}
        asset = random.choice(ASSETS)
        if random.random() < 0.9 and asset != "whole":
            if random.random() < 0.7:
                tags["dagster/partition"] = random.choice(("2013-01-01|x",) if asset == "sold" else KEYS[:3])
            else:
                tags |= dict(zip(PARTITION_TAGS[1:3], random.choices(KEYS, k=2), strict=True))
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            tags[random.choice((*OWN_TAGS, *OWN_TAGS, *PARTITION_TAGS))] = self._value(random)
        given: dict[str, Any] = {"assets": [asset], "tags": tags}
        if random.random() < 0.2:
            given["assets"] = random.sample(ASSETS, 2)
        if random.random() < 0.2:
            given["config"] = self._config(random)
        return given

    def _value(self, random: Random) -> str:
        table = random.choice((FLAGS, FLAGS, tuple(self.ids), tuple(self.ids), KEYS))
        return random.choice(table) if random.random() < 0.8 else any_text(random)

    def _config(self, random: Random) -> Any:
        inner = random.choice((any_json(random), {"rebuild": any_json(random, 0)}, {"config": any_json(random)}))
        if random.random() < 0.5:
            inner = {"databuild": {"config": inner}}
        return {random.choice(("resources", "ops", "execution", "loggers", "x")): inner}

    def feed(self, given: dict[str, Any]) -> None:
        tags = {name: self.ids.get(value, value) for name, value in given["tags"].items()}
        selector = {
            "repositoryLocationName": self.workspace.code_location_names[0],
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [asset]} for asset in given["assets"]],
        }
        params = {
            "selector": selector,
            "mode": "default",
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
            "runConfigData": given.get("config", {}),
        }
        context = self.workspace.create_request_context()
        answer = execute_dagster_graphql(context, LAUNCH, variables={"params": params}).data["launchPipelineExecution"]
        if answer["__typename"] == "PythonError":
            # Dagster's own errors are its own; none may come out of this package.
            assert "/databuild_dagster/" not in "".join(answer["stack"]), answer
        elif answer["__typename"] == "LaunchRunSuccess":
            self._execute(answer["run"]["runId"], given["assets"])
        problems: list[str] = []
        run_tick(
            self.instance,
            self.repository,
            self.deployment,
            OrderCollector(self.instance),
            report_problem=problems.append,
        )
        assert not [sentence for sentence in problems if "The tick could not" in sentence], problems
        assert list(check(self.engine.store)) == []

    def _execute(self, run_id: str, assets: list[str]) -> None:
        """The run as a worker executes it, unless it has ended or is held."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        if run.is_finished or run.tags.get(run_tags.HOLD_TAG) == run_tags.HELD:
            return
        self.instance.launch_run(run_id, self.workspace.create_request_context())
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        keys = frozenset(dg.AssetKey([asset]) for asset in assets)
        for event in execute(self.instance, self.repository, run, keys):
            if event.is_step_failure and event.step_failure_data.error is not None:
                error = event.step_failure_data.error
                while error.cause is not None:
                    error = error.cause
                assert error.cls_name not in UNTYPED, error.to_string()


#: Errors of Python that no rule raises: a mistake of ours.
UNTYPED = frozenset(
    {"AttributeError", "AssertionError", "IndexError", "KeyError", "TypeError", "UnicodeEncodeError", "IntegrityError"}
)


@contextmanager
def ready(folder: Path) -> Iterator[Requests]:
    tune_dagster_writes()
    copy_dagster_files()
    file, home = folder / "definitions.py", folder / "home"
    file.write_text(DEFINITIONS)
    home.mkdir()
    overrides = {
        "run_coordinator": {"module": "databuild_dagster", "class": "DatabuildRunCoordinator"},
        "run_launcher": {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"},
    }
    origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=str(file), attribute="defs"))
    logging.disable(logging.CRITICAL)
    try:
        with (
            dg.instance_for_test(overrides=overrides, temp_dir=str(home)) as instance,
            WorkspaceProcessContext(instance, InProcessTestWorkspaceLoadTarget(origin)) as workspace,
        ):
            yield Requests(instance, workspace, file)
            close_engine(store_url(instance))
    finally:
        logging.disable(logging.NOTSET)
