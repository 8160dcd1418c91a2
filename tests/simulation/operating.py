"""Operations over whole datasets in the storm: who starts and cancels them, who runs their jobs, who completes them (rules 9).

Executors are processes that an orchestrator has started because jobs wait; they may be slow, frozen and killed anywhere.
"""

from __future__ import annotations

from typing import Any

from databuild_dagster.engine.judge import Judge
from databuild_dagster.features.operations.coordinator import Coordinator
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import JobContext, RetryJob
from databuild_dagster.features.operations.manager import DistributedOperation, DistributedOperationManager
from databuild_dagster.features.operations.seen import Completion
from databuild_dagster.model.errors import Conflict, NotFound, Refused
from databuild_dagster.model.operations.keys import OperationId, escape
from databuild_dagster.model.states import InstanceState

from .processes import Broken
from .scenario import Deed
from .world import Member, World

HEARTBEAT_SECONDS = 10.0
#: Executors of one operation at a time.
MOST_EXECUTORS = 2
#: How often an executor looks for something to do, or an executor for jobs.
PATIENCE = 8


class _InTheStorm(DistributedOperation[Any]):
    """Writes for each partition under its token, in two goes."""

    def __init__(self, me: Member) -> None:
        self.me = me

    def start_or_resume_job(self, arg: Any, partition: Any, context: JobContext) -> None:
        me, mishaps = self.me, self.me.world.scenario.mishaps
        there = me.world.lake.setdefault((str(context.operation), escape(context.partition)), set())
        me.pause(me.rng.uniform(0.1, 10.0))
        if me.happens("its operation's job takes very long", mishaps.slow):
            me.pause(me.rng.uniform(30.0, 90.0))
        if self.resumable or me.rng.random() < 0.3:
            # A volatile job may be careless: its word is not taken for anything that it wrote.
            context.check()
        there.add(context.token)
        me.world.scheduler.step("after its job wrote a half")
        if self.resumable:
            context.save_progress(b"half")
        if me.happens("its operation's job is to be tried again", mishaps.transient):
            raise RetryJob("busy")
        if me.happens("its operation's job fails", mishaps.hard):
            raise ValueError("bad rows")

    def cancel_job_and_cleanup(self, arg: Any, partition: Any, context: JobContext) -> None:
        self.me.world.scheduler.step("before it cleans up after a job")
        there = self.me.world.lake.get((str(context.operation), escape(context.partition)), set())
        there.discard(context.token)

    def complete_operation(self, arg: Any, dataset: str, completion: Completion) -> Any:
        self.me.world.scheduler.step("before it completes an operation")
        name = arg["name"]
        # Jobs that ended in between may turn a failure into nothing else.
        if self.me.world.completing.setdefault(name, completion.success) is not completion.success:
            raise Broken("completion", f"{name} was a success and a failure")
        # By its name alone, so that a completion that runs twice asks for the same.
        if isinstance(self, Validate) and len(name) % 2:
            for follower in (dataset, *(spec.asset for spec in self.me.world.scenario.ours[:1])):
                completion.start("index", follower, {"about": "z", "name": f"after {name} on {follower}"})


class Validate(_InTheStorm):
    """One at a time; may fail; starts from nothing."""

    type_name = "validate"


class Index(_InTheStorm):
    """Several at a time; cannot fail; goes on."""

    type_name = "index"
    many = True
    can_fail = False
    resumable = True

    def object_id(self, arg: Any) -> str | None:
        return str(arg["about"])


def manager_of(me: Member) -> DistributedOperationManager:
    return DistributedOperationManager(me.engine, [Validate(me), Index(me)], actor=me.name)


# People


def operate(world: World, deed: Deed) -> None:
    """Start one, or cancel one; who is killed as he does so does it again, under the same id."""
    command_id = world.ids()
    _operate(world, deed, command_id, {}, 1)


def _operate(world: World, deed: Deed, command_id: str, said: dict[str, Any], incarnation: int) -> None:
    def main(me: Member) -> None:
        manager = manager_of(me)
        for _ in range(PATIENCE):
            if _cancel(me, manager) if deed.what.startswith("cancel") else _start(me, manager, deed, command_id, said):
                return
            me.pause(me.rng.uniform(1.0, 15.0))

    name = deed.name if incarnation == 1 else f"{deed.name}, again {incarnation}"
    process = world.start(name, main, after=deed.after if incarnation == 1 else 8.0)

    def ended(crashed: bool) -> None:
        if crashed and not world.scheduler.is_over and process.rng.random() < 0.7:
            _operate(world, deed, command_id, said, incarnation + 1)

    process.at_end.append(ended)


def _start(me: Member, manager: DistributedOperationManager, deed: Deed, command_id: str, said: dict[str, Any]) -> bool:
    if not said:
        scenario = me.world.scenario
        chosen = me.rng.choice(scenario.ours)
        if InstanceState.LIVE not in me.queries.canonical.states(scenario.refs_of(chosen)).values():
            return False
        said.update(dataset=chosen.asset, about=me.rng.choice("xy"), fail_fast=me.rng.random() < 0.3)
    try:
        arg = {"about": said["about"], "name": deed.name}
        id = manager.start(deed.what, said["dataset"], arg, fail_fast=said["fail_fast"], command_id=command_id)
    except (Refused, NotFound, Conflict) as refused:
        me.tell(f"cannot start {deed.what}: {refused.message}")
        if "id" in said:
            raise Broken("acted twice", f"{said['id']} was started, and is refused when that is repeated") from None
        # The id was not used, or its answer is that it lost: what is repeated is the same.
        said.clear()
        return isinstance(refused, Conflict)
    if said.setdefault("id", id) != id:
        raise Broken("acted twice", f"{said['id']} became {id} when its start was repeated")
    me.world.names[str(id)] = deed.name
    me.tell(f"started {id}")
    return True


def _cancel(me: Member, manager: DistributedOperationManager) -> bool:
    running = manager.running()
    if not running:
        return False
    id = me.rng.choice(running)
    try:
        me.tell(f"canceled {id}: {manager.cancel(id, 'a user said so')}")
    except Conflict:
        return False
    return True


# Orchestrators, and the executors that they start


def coordinator_of(me: Member, judge: Judge) -> Coordinator:
    return Coordinator(manager_of(me), judge=judge, holder=me.name)


def coordinate(me: Member, coordinator: Coordinator) -> None:
    """One pass; executors are started for what waits, as long as there are few."""
    try:
        found = coordinator.coordinate()
    except Conflict:
        return
    for id, state in found.completed.items():
        me.tell(f"completed {id}: {state.value}")
    for id in found.waiting:
        prefix = f"executor of {id} "
        there = [name for name in me.world.scheduler.processes if name.startswith(prefix)]
        if len(there) < MOST_EXECUTORS:
            me.world.n_executors += 1
            _execute(me.world, id, f"{prefix}{me.world.n_executors}", after=me.rng.uniform(0.5, 6.0))


def _execute(world: World, id: OperationId, name: str, *, after: float) -> None:
    def main(me: Member) -> None:
        executor = Executor(manager_of(me), judge=Judge(gone=world.gone(me.process)), holder=me.name)
        alive = [True]

        def beat() -> None:
            # In some it ends early, as a thread does that was starved or died; the process goes on.
            while alive and not me.happens("it beats no more", me.world.scenario.mishaps.slow):
                executor.beat()
                me.pause(HEARTBEAT_SECONDS)

        world.scheduler.start_thread(me.process, beat)
        idle = 0
        while executor.jobs or idle < 2:
            idle = 0 if executor.step(id, me.rng.randint(1, 2)) else idle + 1
            me.pause(me.rng.uniform(0.1, 5.0))
        alive.clear()

    world.start(name, main, after=after)
