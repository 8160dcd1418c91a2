"""A deployment with an asset for each door of Dagster, and the doors as people, programs and daemons open them.

Every asset has the same partitions, named after their state at the time of a request: `live` is live, `failed`
has failed, `held` is being built by another Dagster run, and of `missing` nothing is there. What an asset's function
does is set by files in the project's folder, and each call of it leaves one behind.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from dagster import DagsterInstance

from databuild_dagster.bindings.adapter.keys import ORCHESTRATOR
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.coordination import Answer
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.ledger import Ledger, LedgerEntry

from .conftest import MAX_SECONDS, Dagster

FAILED, LIVE, HELD, MISSING = KEYS = ("failed", "live", "held", "missing")

DEFINITIONS = '''
import threading
import uuid
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, build_definitions, databuild_asset

HERE = Path(__file__).parent
partitions = dg.StaticPartitionsDefinition(["failed", "live", "held", "missing"])
running = dict(minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
seldom = {**running, "minimum_interval_seconds": 10}


def see(what):
    """The test reads in the file that it happened."""
    (HERE / f"seen-{what}").touch()


def wait_for(path):
    """Until the test makes the file."""
    for _ in range(20000):
        if path.exists():
            return
        threading.Event().wait(0.1)
    raise TimeoutError(f"{path} did not come")


def build(name, key):
    """What every asset does; the test reads in the files how often."""
    (HERE / "calls" / f"{name}@{key}#{uuid.uuid4()}").touch()
    if name not in ("parent", "job_first"):
        if key.startswith("held"):
            wait_for(HERE / f"go-{name}")
        if key == "failed" and not (HERE / f"mended-{name}").exists():
            raise ValueError("not today")
    return pd.DataFrame({"key": [key]})


def asset(name, partitions_def=partitions, **options):
    @databuild_asset(name=name, partitions_def=partitions_def, **options)
    def function(context: BuildContext) -> pd.DataFrame:
        return build(name, context.partition_key)

    return function


@databuild_asset(partitions_def=partitions)
def job_second(job_first: pd.DataFrame, context: BuildContext) -> pd.DataFrame:
    return build("job_second", context.partition_key)


@databuild_asset(partitions_def=partitions, automation_condition=dg.AutomationCondition.eager())
def eager(parent: pd.DataFrame, context: BuildContext) -> pd.DataFrame:
    return build("eager", context.partition_key)


@dg.success_hook
def on_success(context):
    see("success-hook")


@dg.failure_hook
def on_failure(context):
    see(f"failure-hook-{type(context.op_exception.__cause__).__name__}")


@dg.asset_check(asset="watched")
def looked_at():
    see("check")
    return dg.AssetCheckResult(passed=True)


@dg.run_status_sensor(run_status=dg.DagsterRunStatus.SUCCESS, **seldom)
def succeeded(context):
    see(f"success-of-{context.dagster_run.run_id}")


@dg.run_failure_sensor(**seldom)
def failed(context):
    see(f"failure-of-{context.dagster_run.run_id}")


@dg.asset_sensor(asset_key=dg.AssetKey("watched"), job_name="refilling", **seldom)
def arrived(context, event):
    see(f"arrival-of-{event.dagster_event.partition}")
    return dg.SkipReason("It is only watched.")


names = ["button", "job_first", "command", "materialized", "built", "scheduled", "parent", "again", "crowded"]
names += ["deleted", "refilled"]
assets = [*map(asset, names), job_second, eager]
assets += [
    asset("filled", backfill_policy=dg.BackfillPolicy.single_run()),
    asset(
        "watched",
        hooks={on_success, on_failure},
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
    ),
]


@dg.schedule(cron_schedule="* * * * *", target="scheduled", default_status=dg.DefaultScheduleStatus.RUNNING)
def nightly():
    if not (HERE / "night").exists():
        return dg.SkipReason("It is day.")
    return [dg.RunRequest(run_key=key, partition_key=key) for key in ("failed", "held")]


automation = dg.AutomationConditionSensorDefinition("automation", target=["eager"], **running)

defs = dg.Definitions.merge(
    build_definitions(
        assets,
        asset_checks=[looked_at],
        jobs=[dg.define_asset_job("several", ["job_first", "job_second"]), dg.define_asset_job("refilling", ["refilled"])],
        schedules=[nightly],
        sensors=[automation, succeeded, failed, arrived],
        location="doors",
    ),
    # A process for each step besides that of each run would double the time of the tests.
    dg.Definitions(executor=dg.in_process_executor),
)
'''

#: Many processes for the price of one: what takes seconds, the imports, is done once before they part.
CROWD = '''
"""`crowd.py ASSET,ASSET@KEY…`: a process for each that calls `materialize()` as a test does; tells how each ended."""

import json
import os
import sys
from pathlib import Path

import dagster as dg

import definitions

by_name = {asset.key.path[0]: asset for asset in definitions.assets if len(asset.keys) == 1}


def materialize(ref):
    names, _, key = ref.partition("@")
    names = names.split(",")
    with dg.DagsterInstance.get() as instance:
        for attempt in range(3):
            assets = [by_name[name] for name in names]
            done = dg.materialize(assets, instance=instance, partition_key=key, raise_on_error=False)
            if done.success or any(Path("calls").glob(f"{name}@{key}#*") for name in names):
                break
            # Many processes begin at once, and a step may fail for want of one of Dagster's databases before its
            # function is called.
            os.write(2, f"{ref}: attempt {attempt} called no function\\n".encode())
    answer = {"ref": ref, "run_id": done.run_id, "success": done.success}
    os.write(1, (json.dumps(answer) + "\\n").encode())


children = []
for ref in sys.argv[1:]:
    if (child := os.fork()) == 0:
        try:
            materialize(ref)
        finally:
            os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
'''

_SETTINGS = """
telemetry: {enabled: false}
concurrency:
  runs: {max_concurrent_runs: 40, tag_concurrency_limits: [{key: crowd, limit: 2}]}
freshness: {enabled: true}
"""

#: Dagster's own run queue, and ours.
SETTINGS = _SETTINGS + "run_queue: {dequeue_interval_seconds: 1}\n"
OUR_COORDINATOR = f"""{_SETTINGS}
run_coordinator:
  {{module: databuild_dagster, class: DatabuildRunCoordinator, config: {{dequeue_interval_seconds: 1}}}}
"""

_LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_REEXECUTE = """mutation($params: ReexecutionParams!) { launchPipelineReexecution(reexecutionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_BACKFILL_STATUS = """query($id: String!) { partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status } } }"""
_RUNS = """query($filter: RunsFilter) { runsOrError(filter: $filter) { ... on Runs { results {
    runId status tags { key value } } } } }"""
_FRESHNESS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    freshnessStatusInfo { freshnessStatus } } } }"""
_LOCATION = """{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }"""

ENDED = ("SUCCESS", "FAILURE", "CANCELED")

#: Assets whose held partition a test itself begins to build.
LATER = ("crowded", "deleted")
#: What some assets are built from.
UPSTREAM = ("job_first", "parent")


class Run(NamedTuple):
    """A Dagster run as GraphQL tells of it."""

    run_id: str
    status: str
    tags: Mapping[str, str]

    @property
    def is_launch(self) -> bool:
        """Whether the orchestrator's sensor launched it; GraphQL leaves out the tag of the launch."""
        return self.tags.get("dagster/sensor_name") == ORCHESTRATOR


class Deployment(Dagster):
    """Every door of one running Dagster, and what the store says of those who came through."""

    def __init__(self, folder: Path, settings: str = SETTINGS) -> None:
        super().__init__(folder, DEFINITIONS, settings)
        (folder / "crowd.py").write_text(CROWD)
        (folder / "calls").mkdir()
        # Dagster's databases are made by one process: several at once get in each other's way.
        self.instance = DagsterInstance.from_config(str(self.home))
        #: The canonical instances before anybody came through a door.
        self.given: dict[str, str] = {}

    # What the assets do

    def tell(self, name: str) -> None:
        """`go-ASSET` lets the builds of its held partition go on; `mended-ASSET` makes its failed one succeed."""
        (self.folder / name).touch()

    def has_seen(self, *things: str) -> bool:
        """What the hooks, sensors and checks of the project have come upon."""
        return all((self.folder / f"seen-{thing}").exists() for thing in things)

    def calls(self, ref: str) -> int:
        """How often the asset's function was called for a partition."""
        return len(list((self.folder / "calls").glob(f"{ref}#*")))

    # What the store says

    @property
    def engine(self) -> Engine:
        return engine_for(self.instance)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store)

    def uuids(self, *refs: str) -> dict[str, str]:
        """The canonical instance of each."""
        return {ref: str(canonical.uuid) for ref, canonical in self.queries.canonical.of(list(refs)).items()}

    def answers(self, requester: str) -> dict[str, LedgerEntry]:
        """What a requester got, by ref."""
        return {entry.ref: entry for entry in self.ledger.of_requester(requester)}

    def wait_for_joiner(self, ref: str) -> str:
        """The requesters that wait for another's build of a ref."""

        def joiners() -> list[str]:
            return [entry.requester for entry in self.ledger.of_ref(ref) if entry.kind is Answer.JOIN]

        self.wait_until(lambda: bool(joiners()), f"a requester waits for {ref}")
        return joiners()[0]

    def newest_requester(self, ref: str) -> str:
        return self.ledger.of_ref(ref)[0].requester

    # Dagster's doors

    @cached_property
    def repository(self) -> dict[str, str]:
        (node,) = self.graphql(_LOCATION)["repositoriesOrError"]["nodes"]
        return {"repositoryLocationName": node["location"]["name"], "repositoryName": node["name"]}

    def press_materialize(
        self,
        *assets: str,
        key: str | None = None,
        keys: tuple[str, str] | None = None,
        job: str = "__ASSET_JOB",
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """The Materialize button, for nothing, a partition, or a range in a single run; returns the run's id."""
        all_tags = dict(tags or {})
        if key is not None:
            all_tags["dagster/partition"] = key
        if keys is not None:
            all_tags |= {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
        params = {
            "selector": {
                **self.repository,
                "pipelineName": job,
                "assetSelection": [{"path": [asset]} for asset in assets] or None,
                "assetCheckSelection": [],
            },
            "mode": "default",
            "executionMetadata": {"tags": [{"key": name, "value": value} for name, value in all_tags.items()]},
            "runConfigData": "{}",
        }
        return self._launched(self.graphql(_LAUNCH, params=params)["launchPipelineExecution"])

    def mutate(self, call: str) -> str:
        """A mutation that only says how it went; returns the name of what it answered."""
        (answer,) = self.graphql(f"mutation {{ {call} {{ __typename }} }}").values()
        typename: str = answer["__typename"]
        return typename

    @property
    def selector(self) -> str:
        """The repository, as a GraphQL literal's fields."""
        return ", ".join(f'{name}: "{value}"' for name, value in self.repository.items())

    def reexecute(self, run_id: str, strategy: str) -> str:
        """The run page's button; the strategy is FROM_FAILURE or ALL_STEPS."""
        params = {"parentRunId": run_id, "strategy": strategy}
        return self._launched(self.graphql(_REEXECUTE, params=params)["launchPipelineReexecution"])

    def _launched(self, answer: dict[str, Any]) -> str:
        assert answer["__typename"] == "LaunchRunSuccess", answer
        run_id: str = answer["run"]["runId"]
        return run_id

    def backfill(self, asset: str, *keys: str) -> str:
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys)}
        answer = self.graphql(_BACKFILL, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        backfill_id: str = answer["backfillId"]
        return backfill_id

    def backfill_status(self, backfill_id: str) -> str:
        status: str = self.graphql(_BACKFILL_STATUS, id=backfill_id)["partitionBackfillOrError"]["status"]
        return status

    def freshness(self, asset: str) -> str:
        """The status of an asset's freshness policy."""
        found = self.graphql(_FRESHNESS, key={"path": [asset]})["assetNodeOrError"]["freshnessStatusInfo"]
        status: str = found["freshnessStatus"]
        return status

    def wait_for_backfill(self, backfill_id: str) -> str:
        # While it is REQUESTED, CANCELING or FAILING, the daemon goes on with it.
        def has_ended() -> bool:
            return self.backfill_status(backfill_id).startswith(("COMPLETED", "FAILED", "CANCELED"))

        self.wait_until(has_ended, f"backfill {backfill_id} has ended")
        return self.backfill_status(backfill_id)

    def runs(self, **tags: str) -> list[Run]:
        """The Dagster runs with these tags, the newest first; `dagster__partition` is `dagster/partition`."""
        wanted = [{"key": name.replace("__", "/"), "value": value} for name, value in tags.items()]
        answer = self.graphql(_RUNS, filter={"tags": wanted} if wanted else None)["runsOrError"]["results"]
        return [_run(entry) for entry in answer]

    def run(self, run_id: str) -> Run:
        (found,) = self.graphql(_RUNS, filter={"runIds": [run_id]})["runsOrError"]["results"]
        return _run(found)

    def wait_for_run(self, run_id: str) -> Run:
        self.wait_until(lambda: self.run(run_id).status in ENDED, f"run {run_id} has ended")
        return self.run(run_id)

    def run_of_each_key(self, asset: str, *keys: str, **tags: str) -> dict[str, str]:
        """The first Dagster run with the tags for each partition key alone, once all are there."""

        def first() -> dict[str, str]:
            # Automation asks for several partitions by one run, which has no such tag.
            by_key = {run.tags.get("dagster/partition", ""): run.run_id for run in self.runs(**tags)}
            return {key: run_id for key, run_id in by_key.items() if key}

        self.wait_until(lambda: first().keys() >= set(keys), f"runs of {', '.join(keys)} of {asset}")
        return {key: run_id for key, run_id in first().items() if key in keys}

    def log_of(self, run_id: str) -> str:
        """What a Dagster run's page shows."""
        return "\n".join(entry.message for entry in self.instance.all_logs(run_id))

    def wait_until_automation_has_looked(self) -> None:
        """Conditions speak of what has changed since they were evaluated first."""
        query = f"""{{ sensorOrError(sensorSelector: {{{self.selector}, sensorName: "automation"}}) {{ ... on Sensor {{
            sensorState {{ ticks(limit: 9) {{ status }} }} }} }} }}"""

        def has_looked() -> bool:
            ticks = self.graphql(query)["sensorOrError"]["sensorState"]["ticks"]
            return any(tick["status"] in ("SUCCESS", "SKIPPED") for tick in ticks)

        self.wait_until(has_looked, "automation has looked once")

    # Doors that are processes

    def start_module(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        return self.start_process(sys.executable, "-m", module, *arguments)

    def start_crowd(self, *refs: str) -> "subprocess.Popen[str]":
        """Dagster logs some 4 KB for each step there, and those who build what is held are not read before their end."""
        with (self.folder / "crowd.log").open("a") as log:
            return self.start_process(sys.executable, "crowd.py", *refs, stderr=log)


@contextmanager
def deployed(folder: Path, assets: Sequence[str], settings: str) -> Iterator[Deployment]:
    """A running Dagster in which all of `KEYS` is true of these assets."""
    deployment = _prepared(folder, assets, settings) or _prepared(folder / "again", assets, settings)
    assert deployment is not None, "what is to be live was not built in two deployments"
    held = [f"{asset}@{HELD}" for asset in assets]
    builders = deployment.start_crowd(*held)
    # A schedule ticks every minute, so it had better begin now.
    deployment.tell("night")
    with deployment.running():
        try:
            deployment.wait_until(lambda: all(deployment.calls(ref) for ref in held), "others build what is held")
            deployment.given = deployment.uuids(*(ref for asset in assets for ref in refs(asset)))
            yield deployment
        finally:
            for asset in (*assets, *LATER):
                deployment.tell(f"go-{asset}")
            # They are shown beside the error that a test or the wait above has raised.
            others = answers_of(builders)
            print(
                f"Those who built what is held: {others}; not called: {[ref for ref in held if not deployment.calls(ref)]}"
            )
    assert all(other["success"] for other in others)


def _prepared(folder: Path, assets: Sequence[str], settings: str) -> Deployment | None:
    """A deployment with live and failed partitions; None if one did not end as it was to, and it prints why.

    Many processes begin in a new home there, and a step may fail for want of one of Dagster's databases.
    """
    folder.mkdir(exist_ok=True)
    deployment = Deployment(folder, settings)
    upstream, everything = ",".join(UPSTREAM), ",".join((*UPSTREAM, *assets))
    answers_of(deployment.start_crowd(f"{everything}@{LIVE}", f"{everything}@{FAILED}", f"{upstream}@{HELD}"))
    canonical = deployment.queries.canonical.of([f"{asset}@{LIVE}" for asset in assets])
    not_live = {ref: (str(it.state), it.reason) for ref, it in canonical.items() if it.state is not InstanceState.LIVE}
    not_failed = [asset for asset in assets if not deployment.calls(f"{asset}@{FAILED}")]
    if not_live or not_failed:
        print(f"In {folder} these are not live: {not_live}; and these did not fail: {not_failed}", file=sys.stderr)
        return None
    return deployment


def answers_of(crowd: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """How each process of a crowd ended."""
    out, _ = crowd.communicate(timeout=MAX_SECONDS)
    assert crowd.returncode == 0, f"{crowd.args} ended with {crowd.returncode}: see crowd.log in its folder"
    return [json.loads(line) for line in out.splitlines()]


def refs(asset: str, keys: Iterable[str] = KEYS) -> list[str]:
    return [f"{asset}@{key}" for key in keys]


def spoken(answers: Iterable[LedgerEntry], of: str | None = None) -> dict[str, str]:
    """Partition key to kind and outcome; `of` one asset, where several were asked for."""
    return {
        answer.ref.partition("@")[2]: f"{answer.kind.value}, {answer.outcome.value}"
        for answer in answers
        if of in (None, answer.ref.partition("@")[0])
    }


def _run(answer: dict[str, Any]) -> Run:
    tags = {tag["key"]: tag["value"] for tag in answer["tags"]}
    return Run(answer["runId"], answer["status"], tags)
