"""Executors as Dagster runs: the job that every code location has for them, and the sensor that launches its runs (rules
9.4, 9.6).

A run takes jobs of an operation, a batch at a time, until none is left. The number of executors follows from the log;
a run that died, or never began, is ended in Dagster and replaced.
"""

import math
from collections.abc import Iterable, Iterator
from threading import Event, Lock
from typing import Any, Final, NamedTuple

import dagster as dg
import msgspec

from databuild_dagster.bindings.adapter.dagster_private import RUN_KEY_TAG, is_dry_run
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, SPARK
from databuild_dagster.bindings.adapter.run_tags import (
    EXECUTOR_TAG,
    OPERATION_TAG,
    OUTCOME_LOST,
    OUTCOME_TAG,
)
from databuild_dagster.bindings.authoring.definers import Definer
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.side_ticks import SideReport, SideTick
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.lookout import Lookout, look_at
from databuild_dagster.features.operations.coordinator import Coordination, Coordinator
from databuild_dagster.features.operations.executor import Executor, Progress
from databuild_dagster.features.operations.job import JobContext
from databuild_dagster.features.operations.operation_context import OperationContext
from databuild_dagster.features.operations.operations import (
    calls_at_once,
    executor_of,
    jobs_at_once,
    manager_of,
    operation_resources,
    run_jobs,
)
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import BACKOFF_SECONDS, MAX_BACKOFF_SECONDS
from databuild_dagster.model.operations.keys import OperationId
from databuild_dagster.model.operations.records import Mark, Trouble
from databuild_dagster.model.operations.states import JobState, OperationState
from databuild_dagster.model.redaction import errors_without_secrets

#: The name of the job in Dagster, and of its pool.
OPERATION_JOB: Final = "databuild_operation"
#: Its only op.
EXECUTOR_OP: Final = "databuild_executor"
#: The sensor's name.
OPERATIONS: Final = "databuild_operations"
#: Runs of an operation that show how its executors fared.
RUNS_LOOKED_AT = 50
#: Jobs in a run's table, failed jobs first.
MAX_ROWS = 1_000
MAX_DETAIL = 500

_OPEN = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


# The job


def operation_job() -> dg.JobDefinition:
    """The job whose runs are executors. Its queue, its pool and its tags are Dagster's own."""

    @dg.op(
        name=EXECUTOR_OP,
        required_resource_keys={DEPLOYMENT, SPARK},
        config_schema={
            "operation": dg.Field(str, description="Its id, as `databuild operation list` shows it."),
            "batch_size": dg.Field(int, default_value=0, description="Jobs that it takes at once; 0 for the default."),
            "parallel": dg.Field(int, default_value=0, description="Jobs that it runs at once; 0 for the default."),
        },
        out=dg.Out(dg.Nothing),
        pool=OPERATION_JOB,
        description="Runs jobs of an operation, a batch at a time, until none is left.",
    )
    def execute(context: dg.OpExecutionContext) -> Iterator[Any]:
        yield dg.Output(None, metadata=_ExecutorRun(context).run())

    @dg.job(
        name=OPERATION_JOB,
        executor_def=dg.in_process_executor,
        description="Executors of operations over whole datasets; launched by the sensor databuild_operations.",
    )
    def operation() -> None:
        execute()

    return operation


class _ExecutorRun:
    """A Dagster run as an executor."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._context = context
        self._id = OperationId.parse(context.op_config["operation"])
        self._ended: list[tuple[str, Mark]] = []
        deployment: Deployment = getattr(context.resources, DEPLOYMENT)
        resources = operation_resources(
            context.instance, deployment, spark=getattr(context.resources, SPARK), log=context.log
        )
        manager = manager_of(resources, deployment, actor=f"dagster run {context.run_id}")
        self._executor = executor_of(manager, resources, on_ended=self._on_ended, on_retry=self._on_retry)
        self._most = context.op_config["batch_size"] or jobs_at_once(manager, self._id)
        self._parallel = calls_at_once(manager, self._id, context.op_config["parallel"])
        self._logged: Progress | None = None

    def run(self) -> dict[str, Any]:
        """The metadata that Dagster shows at the end."""
        executor = self._executor
        self._context.instance.add_run_tags(self._context.run_id, {EXECUTOR_TAG: executor.id})
        try:
            run_jobs(
                executor,
                self._id,
                self._most,
                parallel=self._parallel,
                pause=Event().wait,
                after_step=self._log_progress,
            )
        finally:
            n_failed = sum(mark.state is JobState.FAILED for _, mark in self._ended)
            self._context.log.info(f"{self._id}: {len(self._ended)} jobs done here, {n_failed} of them failed.")
        return self._metadata(executor)

    def _on_ended(self, context: JobContext, mark: Mark) -> None:
        self._ended.append((context.partition, mark))
        if mark.state is JobState.FAILED:
            self._context.log.warning(f"{context.ref} failed: {_shown(mark.detail)}")

    def _on_retry(self, context: JobContext, trouble: Trouble) -> None:
        seconds = trouble.next_at - trouble.at
        self._context.log.warning(
            f"{context.ref} is tried again in {seconds:.0f} s, after attempt {trouble.attempts}: {trouble.error}"
        )

    def _log_progress(self) -> None:
        progress = self._executor.progress(self._id)
        if progress is not None and progress != self._logged:
            self._logged = progress
            failed = f", {progress.failed} failed" if progress.failed else ""
            self._context.log.info(f"{self._id}: {progress.done} of {progress.total} jobs done{failed}.")

    def _metadata(self, executor: Executor) -> dict[str, Any]:
        progress = executor.progress(self._id)
        failed_first = sorted(self._ended, key=lambda ended: ended[1].state is not JobState.FAILED)
        rows = [
            dg.TableRecord({"partition": partition, "state": mark.state.value, "detail": _shown(mark.detail)})
            for partition, mark in failed_first[:MAX_ROWS]
        ]
        counts = {"done": progress.done, "total": progress.total, "failed": progress.failed} if progress else {}
        return {
            "operation": str(self._id),
            **counts,
            "done_here": len(self._ended),
            "failed_here": sum(mark.state is JobState.FAILED for _, mark in self._ended),
            **({"partitions": dg.MetadataValue.table(rows)} if rows else {}),
        }


def _shown(detail: Any) -> str:
    text = "" if detail is None else msgspec.json.encode(detail).decode()
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"


# The sensor


class Pass(NamedTuple):
    """The findings of a pass over the operations, and its run requests."""

    coordination: Coordination
    requests: list[dg.RunRequest]


_NOTHING = Coordination({}, {}, {}, 0, {})
#: The events that begin, change and end operations, whose facts are all in meta entries.
_ABOUT = e.names_of(e.MetaInvoked)


class OperationsTick:
    """Completes operations, and requests executors. Each process has one per code location; it remembers earlier passes."""

    def __init__(self, instance: dg.DagsterInstance, deployment: Deployment) -> None:
        self.deployment = deployment
        self._instance = instance
        resources = operation_resources(instance, deployment)
        self._engine: Engine = resources.engine
        self._judge = Judge()
        self._lookout = Lookout(self._engine, self._judge, self._judge.names)
        manager = manager_of(resources, deployment, actor="orchestrator")
        self.coordinator = Coordinator(manager, judge=self._judge, contexts=OperationContext)
        self._runs = OrderCollector(instance)
        self._lock = Lock()
        #: The last event at which no operation had anything to do; 0 while an operation has.
        self._quiet_at = 0
        #: The number of finished jobs of each operation, and since when this process has seen it.
        self._done: dict[OperationId, tuple[int, float]] = {}

    def __call__(self, *, interval_seconds: float = 0.0) -> Pass:
        """A single question if no operation has changed since none had anything to do.

        Then no executor is left either, because only an operation with jobs gets one.
        """
        with self._lock:
            self._judge.look(self._engine.steady())
            events = self._engine.queries.events
            head, is_news = events.news(_ABOUT, self._quiet_at) if self._quiet_at else (events.head(), True)
            if not is_news and self._quiet_at <= head.seq:
                self._quiet_at = head.seq
                return Pass(_NOTHING, [])
            done = self.coordinator.coordinate()
            self._note_progress()
            running = self._running()
            if interval_seconds and self._judge.names():
                self._lookout.keep()
            is_quiet = not (
                self.coordinator.tracker.operations or done.unclean or done.unstarted or running or done.completed
            )
            self._quiet_at = head.seq if is_quiet else 0
            problems = {id: why for id, why in done.problems.items() if self._is_ours(id)}
            requests = [
                request
                for id, n_waiting in done.waiting.items()
                if self._is_ours(id)
                for request in self._requests(id, n_waiting, running.get(str(id), []))
            ]
            return Pass(done._replace(problems=problems), requests)

    def is_unsure(self) -> bool:
        """Whether an executor or a coordinator has given no sign of life since this process looks."""
        now = self._engine.steady()
        return any(self._judge.is_unsure(name, now) for name in self._judge.names())

    def _note_progress(self) -> None:
        now, before = self._engine.clock(), self._done
        self._done = {}
        for operation in self.coordinator.tracker.operations:
            n_done = len(operation.done)
            # The time of jobs that were done before the first look is unknown.
            n_seen, since = before.get(operation.id, (n_done, -math.inf))
            self._done[operation.id] = n_done, since if n_done == n_seen else now

    def _is_ours(self, id: OperationId) -> bool:
        """Whether the operation's dataset is ours or unknown: each code location handles its own types and executors."""
        dataset = self._engine.queries.datasets.get(id.dataset)
        return dataset is None or dataset.location == self.deployment.location

    def _running(self) -> dict[str, list[dg.RunRecord]]:
        """Operation to its executors that are queued or running; dead executors are ended in Dagster."""
        records = self._instance.get_run_records(dg.RunsFilter(job_name=OPERATION_JOB, statuses=_OPEN))
        executors = [record.dagster_run.tags.get(EXECUTOR_TAG) or "" for record in records]
        names = [executor for executor in executors if executor]
        beats, seen_at = look_at(self._engine, self._judge, names) if names else ({}, self._engine.steady())
        found: dict[str, list[dg.RunRecord]] = {}
        for record, executor in zip(records, executors, strict=True):
            run = record.dagster_run
            if why := self._why_gone(record, executor, beats.get(executor), seen_at):
                self._instance.add_run_tags(run.run_id, {OUTCOME_TAG: OUTCOME_LOST})
                self._instance.report_run_failed(run, f"databuild: this executor is lost: {why}")
            else:
                found.setdefault(run.tags.get(OPERATION_TAG, ""), []).append(record)
        return found

    def _why_gone(self, record: dg.RunRecord, executor: str, last_beat: float | None, now: float) -> str | None:
        state = self._runs.state_of(record)
        if state.worker is None or last_beat is None:
            return self._judge.never_began(state, now)
        return self._judge.why_gone(executor, state.worker, (None, last_beat), now)

    def _requests(self, id: OperationId, n_waiting: int, now_running: list[dg.RunRecord]) -> list[dg.RunRequest]:
        """The useful and allowed number of further executors; a request that Dagster did not submit is repeated."""
        again = [
            self._request(id, record.dagster_run.tags[RUN_KEY_TAG])
            for record in now_running
            if self._runs.was_forgotten(record) and RUN_KEY_TAG in record.dagster_run.tags
        ]
        of_it = dg.RunsFilter(job_name=OPERATION_JOB, tags={OPERATION_TAG: str(id)})
        before = self._instance.get_run_records(of_it, limit=RUNS_LOOKED_AT)
        if _is_to_wait(before, self._engine.clock(), self._done[id][1]):
            return again
        useful = math.ceil(n_waiting / jobs_at_once(self.coordinator.manager, id))
        n_to_begin = sum(record.dagster_run.tags.get(EXECUTOR_TAG) is None for record in now_running)
        n_new = max(min(self.deployment.limits.executors - len(now_running), useful - n_to_begin), 0)
        # A tick whose requests were lost repeats their keys, and Dagster makes one run for each key.
        n_before = self._instance.get_runs_count(of_it) if n_new else 0
        return [*again, *(self._request(id, f"{id} executor {n_before + n}") for n in range(1, n_new + 1))]

    def _request(self, id: OperationId, run_key: str) -> dg.RunRequest:
        return dg.RunRequest(
            run_key=run_key,
            run_config={"ops": {EXECUTOR_OP: {"config": {"operation": str(id)}}}},
            tags={OPERATION_TAG: str(id)},
        )


def _is_to_wait(records: Iterable[dg.RunRecord], now: float, got_on_at: float) -> bool:
    """Whether successive executors failed by themselves, for example without Spark: then the pause grows.

    Failures before the last finished job, at `got_on_at`, do not count.
    """
    n_failed, ended_at = 0, 0.0
    for record in records:
        run = record.dagster_run
        if record.update_timestamp.timestamp() <= got_on_at:
            break
        if run.status is not dg.DagsterRunStatus.FAILURE or run.tags.get(OUTCOME_TAG) == OUTCOME_LOST:
            if run.is_finished:
                break
            continue
        n_failed += 1
        ended_at = max(ended_at, record.update_timestamp.timestamp())
    return n_failed > 0 and now < ended_at + min(BACKOFF_SECONDS * 2.0 ** (n_failed - 1), MAX_BACKOFF_SECONDS)


def operations_tick(instance: dg.DagsterInstance, deployment: Deployment) -> OperationsTick:
    """The process's `OperationsTick`, made anew after the code location was loaded again."""
    memory, key = engine_for(instance).memory, (OperationsTick, deployment.location)
    found = memory.of(key, lambda: OperationsTick(instance, deployment))
    if found.deployment != deployment:
        found = OperationsTick(instance, deployment)
        memory.put(key, found)
    return found


def operations_sensor(deployment: Deployment, *, interval_seconds: int) -> dg.SensorDefinition:
    """The sensor that launches executors and completes operations; it runs as soon as it is deployed.

    Separate from the orchestrator, because a sensor starts runs of an asset selection or of a job, never of both.
    """

    @errors_without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if is_dry_run(context):
            return dg.SensorResult(skip_reason=dg.SkipReason("Only a test: nothing is launched by it."))
        done, requests = operations_tick(context.instance, deployment)(interval_seconds=interval_seconds)
        for id, why in done.problems.items():
            context.log.warning(f"{id} is stuck: {why}")
        for id, outcome in done.completed.items():
            context.log.info(f"{id} has ended: {outcome.value}")
        if not requests:
            return dg.SensorResult(skip_reason=dg.SkipReason(_summary(done)))
        return dg.SensorResult(run_requests=requests)

    return dg.SensorDefinition(
        name=OPERATIONS,
        evaluation_fn=evaluate,
        job_name=OPERATION_JOB,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Launches executors of operations over whole datasets, and completes operations.",
    )


def _summary(done: Coordination) -> str:
    if done.completed:
        return f"Completed {', '.join(map(str, done.completed))}."
    if done.waiting:
        return f"Nothing to launch; {sum(done.waiting.values())} jobs wait for an executor."
    return "No operation waits for an executor."


DEFINERS: Final = (
    Definer(
        jobs=lambda deployment: [operation_job()],
        sensors=lambda deployment: [operations_sensor(deployment, interval_seconds=deployment.interval_seconds)],
    ),
)


def _tick(instance: dg.DagsterInstance, deployment: Deployment) -> SideReport:
    """Its requests for executors are left to the sensor: a command starts no Dagster runs of the daemon."""
    ticking = operations_tick(instance, deployment)
    done, _ = ticking()
    return SideReport(
        ended={str(id): outcome.value for id, outcome in done.completed.items()},
        failed=frozenset(str(id) for id, outcome in done.completed.items() if outcome is OperationState.FAILED),
        stuck={str(id): why for id, why in (done.problems | done.backing_off).items()},
        waiting={str(id): n for id, n in done.waiting.items() if n},
        is_unsure=ticking.is_unsure(),
    )


SIDE_TICKS = (SideTick("operations", _tick),)
