"""Small operations, and what is needed to run them: a lake that jobs write to, executors whose time is turned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from databuild_dagster.engine.judge import HEARTBEAT_SECONDS, LEASE_SECONDS, Judge
from databuild_dagster.features.operations.coordinator import Coordinator
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import JobContext
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.features.operations.seen import Completion
from databuild_dagster.model.events import Event, MetaInvoked
from databuild_dagster.model.operations.records import RUNNING, lease_of, mark_of
from databuild_dagster.model.refs import PartitionRef

from .world import World


class Lake:
    """The store that the jobs of a test write to, with their completions; each entry has the token of its writer."""

    def __init__(self) -> None:
        self.written: dict[str, set[str]] = {}
        self.runs: list[str] = []
        self.cleaned: list[tuple[str, str]] = []
        self.completions: list[Completion] = []

    def write(self, partition: str, token: str) -> None:
        self.runs.append(partition)
        self.written.setdefault(partition, set()).add(token)

    def clean(self, partition: str, token: str) -> None:
        self.cleaned.append((partition, token))
        self.written.get(partition, set()).discard(token)

    def complete(self, completion: Completion) -> None:
        self.completions.append(completion)


class DiskLake(Lake):
    """The same for processes that are killed: a file for each thing."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def write(self, partition: str, token: str) -> None:
        place = self.folder / f"partition {partition}"
        place.mkdir(exist_ok=True)
        (place / token).touch()

    def clean(self, partition: str, token: str) -> None:
        (self.folder / f"partition {partition}" / token).unlink(missing_ok=True)

    def complete(self, completion: Completion) -> None:
        (self.folder / f"completed {completion.success}").touch()

    def left(self) -> dict[str, set[str]]:
        """Partition to tokens, of what lies there."""
        found = {place.name[10:]: {file.name for file in place.iterdir()} for place in self.folder.glob("partition *")}
        return {partition: tokens for partition, tokens in found.items() if tokens}


class Write(DistributedOperation[Any]):
    """Writes something for each partition. The argument may name partitions that fail, and how."""

    type_name = "write"

    def __init__(self, lake: Lake, doing: Callable[[JobContext], None] | None = None) -> None:
        self.lake = lake
        self.doing = doing

    def start_or_resume_job(self, arg: Any, partition: PartitionRef, context: JobContext) -> None:
        key = context.partition
        self.lake.write(key, context.token)
        if self.doing is not None:
            self.doing(context)
        match (arg or {}).get(key):
            case "raise":
                raise ValueError(f"bad {key}")
            case "say":
                context.mark_job_complete(False, {"rows": 3})

    def cancel_job_and_cleanup(self, arg: Any, partition: PartitionRef, context: JobContext) -> None:
        self.lake.clean(context.partition, context.token)

    def complete_operation(self, arg: Any, dataset: str, completion: Completion) -> Any:
        self.lake.complete(completion)
        for follow_up in (arg or {}).get("then", ()):
            completion.start(*follow_up)
        return {"succeeded": len(completion.marks) - len(completion.failed)}


class Many(Write):
    """Several at once, each about something."""

    type_name = "many"
    many = True
    apart_from = frozenset({"alone"})

    def object_id(self, arg: Any) -> str | None:
        return arg.get("about")


class Alone(Write):
    type_name = "alone"


class Sure(Write):
    """Cannot fail, and goes on from what it has saved."""

    type_name = "sure"
    can_fail = False
    resumable = True


class Operations:
    """A manager over a world, and executors and coordinators as if each were a process of its own."""

    def __init__(
        self,
        world: World,
        *types: type[Write],
        doing: Callable[[JobContext], None] | None = None,
        lake: Lake | None = None,
    ) -> None:
        self.world = world
        self.lake = lake or Lake()
        self.types = [item(self.lake, doing) for item in types or (Write, Many, Alone, Sure)]
        self.manager = DistributedOperationManager(world.engine, self.types)
        self.meta = self.manager.meta
        #: Holders that are known to be gone.
        self.dead: set[str] = set()
        self._coordinator: Coordinator | None = None

    def executor(self, name: str = "executor") -> Executor:
        return Executor(self.manager, judge=Judge(gone=self.dead.__contains__), holder=name)

    def coordinator(self, name: str = "coordinator") -> Coordinator:
        return Coordinator(self.manager, judge=Judge(gone=self.dead.__contains__), holder=name)

    def run_all(self, id: Any, executor: Executor | None = None, most: int = 100) -> None:
        """Until there is nothing left to do, and then to its end."""
        executor = executor or self.executor()
        while executor.step(id, most) or executor.jobs:
            if executor.jobs:
                self.world.clock.turn(1000.0)
        if self._coordinator is None:
            self._coordinator = self.coordinator("the coordinator")
        self._coordinator.coordinate()

    def sleep_past_the_lease(self, *awake: Any) -> None:
        """Those who are awake look, and beat, all the time."""
        for _ in range(int(2 * LEASE_SECONDS / HEARTBEAT_SECONDS) + 2):
            for item in awake:
                item.judge.look(self.world.clock.steady())
                self.world.engine.beat([item.id])
            self.world.clock.turn(HEARTBEAT_SECONDS)
        for item in awake:
            item.judge.look(self.world.clock.steady())
            self.world.engine.beat([item.id])

    def keys(self) -> list[str]:
        """All that operations have left, but for what is meant to stay."""
        stays = ("nextInstanceId", "distOpHistory")
        return [
            entry.key for entry in self.meta.prefix("distOp").entries if not any(stay in entry.key for stay in stays)
        ]


class Marks:
    """The executor and the outcome of each job, counted from the log in the plainest way."""

    def __init__(self) -> None:
        self._leases: dict[str, str] = {}
        #: Of keys without their last part.
        self.tokens: dict[str, str] = {}

    def see(self, event: Event) -> str | None:
        """Faults: a report of an executor without the job was accepted, or a second report."""
        if not isinstance(event.fact, MetaInvoked):
            return None
        for key, value in event.fact.puts.items():
            job, _, name = key.rpartition(".")
            if not key.startswith("distOp.") or value == RUNNING:
                continue
            if name == "executor":
                lease = lease_of(value)
                self._leases[job] = "released" if lease.released else lease.token
            elif name == "state":
                token = mark_of(value).token
                if token != self._leases.get(job):
                    return f"{job} at seq {event.seq}: {token} was believed, it was the job of {self._leases.get(job)}"
                if job in self.tokens:
                    return f"{job} at seq {event.seq}: a second time"
                self.tokens[job] = token
        return None


def stale_marks(events: Iterable[Event]) -> list[str]:
    marks = Marks()
    return [wrong for event in events if (wrong := marks.see(event)) is not None]
