"""Operations from start to end, and every trouble in between (rules 9.2-9.7)."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from databuild_dagster.features.operations import coordinator as completing
from databuild_dagster.features.operations.executor import Executor
from databuild_dagster.features.operations.job import RetryJob, backoff_seconds
from databuild_dagster.features.operations.tracker import Tracker
from databuild_dagster.model.command_ids import with_fingerprint
from databuild_dagster.model.errors import (
    CommandIdUsed,
    IncompatibleOperation,
    InvalidOperation,
    InvalidRequest,
    NewerOperation,
    NewerOperations,
    NotFound,
    OperationRace,
    Refused,
    UnknownAsset,
    UnknownOperationType,
)
from databuild_dagster.model.meta_storage import MAX_VALUE_BYTES
from databuild_dagster.model.operations import invokes, keys, records
from databuild_dagster.model.operations.states import JobState, OperationState
from tests.support.catalog import dataset
from tests.support.operations import Many, Operations, Sure, Write

DAYS = ("1", "2", "10")


@pytest.fixture
def world(make_world):
    world = make_world(dataset("days", keys=DAYS), dataset("whole"), dataset("empty", keys=DAYS))
    world.live(*(f"days@{day}" for day in DAYS), "whole")
    return world


@pytest.fixture
def operations(world):
    operations = Operations(world)
    yield operations
    assert operations.keys() == [], "every operation of these stories has ended, and left nothing"


def outcome(operations, id):
    return operations.manager.operation(id).state


def run_jobs(operations, *ids):
    """Each by an executor of its own; the completion is left."""
    for id in ids:
        executor = operations.executor()
        while executor.step(id, 10):
            pass


@contextmanager
def ahead_of(owner, name, act):
    """Another process acts just before the first call of a method within the block."""
    method, acted = getattr(owner, name), []

    def after_the_other(*arguments, **options):
        if not acted:
            acted.append(True)
            act()
        return method(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, after_the_other)
        yield


@contextmanager
def losing_the_answer(meta):
    """The invoke of the block takes effect, and the process that sent it gets an error."""
    invoke = meta.invoke_all

    def cut(statements, *, command_id=None):
        invoke(statements, command_id=command_id)
        raise ConnectionError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(meta, "invoke_all", cut)
        yield


# Start


def test_an_operation_has_one_job_for_each_live_partition_with_its_instance(operations, world):
    """Rules 9.2, 9.3"""
    world.taint("days@2")

    id = operations.manager.start("write", "days", {"x": 1})

    seen = operations.manager.read(id)
    assert seen.partitions == {"1": world.uuid("days@1"), "10": world.uuid("days@10")}
    assert (seen.is_running, seen.arg.arg) == (True, {"x": 1})
    assert operations.manager.operations("days")[0].id == id
    operations.manager.cancel(id)


def test_starting_gives_the_instance_id_which_counts_for_each_type(operations):
    """Rules 13"""
    started = [operations.manager.start_operation("many", "days", {"about": about}) for about in "ab"]

    assert started == [1, 2]
    assert operations.manager.start_operation("write", "whole", None) == 1
    for id in operations.manager.running():
        operations.manager.cancel(id)


@pytest.mark.parametrize(
    ("type_id", "dataset", "more", "error"),
    [
        ("unheard of", "days", {}, UnknownOperationType),
        ("write", "nowhere", {}, UnknownAsset),
        ("write", "empty", {}, InvalidOperation),
        ("write", "days", {"partitions": []}, InvalidOperation),
        ("write", "days", {"partitions": ["1", "31"]}, InvalidOperation),
        ("write", "days", {"arg": object()}, InvalidOperation),
        ("many", "days", {"arg": {"about": "a\nb"}}, InvalidRequest),
    ],
)
def test_what_cannot_start_is_refused_and_no_key_is_written(operations, type_id, dataset, more, error):
    """Rule 9.3"""
    before = operations.world.seq

    with pytest.raises(error):
        operations.manager.start(type_id, dataset, **{"arg": {}, **more})

    assert operations.world.seq == before


def test_an_argument_of_the_wrong_shape_is_refused(world):
    class Strict(Write):
        type_name = "strict"
        arg_type = dict[str, int]

    operations = Operations(world, Strict)

    with pytest.raises(InvalidOperation, match="its argument is wrong"):
        operations.manager.start("strict", "days", {"a": "b"})


def test_a_type_may_refuse_before_anything_is_started(world):
    class Picky(Write):
        def check_start(self, arg, dataset, refs, resources):
            raise Refused(why=f"no column {arg['column']!r} in {len(refs)} partitions of {dataset}")

    operations = Operations(world, Picky)
    before = world.seq

    with pytest.raises(Refused, match="no column 'x' in 3 partitions of days"):
        operations.manager.start("write", "days", {"column": "x"})
    assert world.seq == before


def test_incompatible_operations_are_refused_and_others_run_beside_each_other(operations):
    """Rules 9.3, 9.4"""
    start = operations.manager.start
    running = [start("write", "days", {}), start("many", "days", {"about": "a"}), start("many", "days", {"about": "b"})]

    for type_id, arg in (("write", {}), ("many", {"about": "a"}), ("alone", {})):
        with pytest.raises(IncompatibleOperation):
            start(type_id, "days", arg)
    running.append(start("alone", "whole", {}))

    assert sorted(operations.manager.running()) == sorted(running)
    for id in running:
        operations.run_all(id)
        assert outcome(operations, id) is OperationState.SUCCESS


def test_of_two_simultaneous_starts_one_is_refused_and_may_be_sent_again(operations):
    """Rules 9.3, 3.3: both have read the same. The log has the answer that the slow one did not start."""
    manager, first = operations.manager, []

    def start_fast():
        first.append(manager.start("write", "days", {"who": "the fast one"}))

    with ahead_of(manager.meta, "invoke_all", start_fast), pytest.raises(OperationRace):
        manager.start("write", "days", {"who": "the slow one"}, command_id="once")

    assert manager.running() == first
    assert manager.read(first[0]).arg.arg == {"who": "the fast one"}
    manager.cancel(first[0])
    id = manager.start("write", "days", {"who": "the slow one"}, command_id="once")
    assert manager.running() == [id]
    assert manager.start("write", "days", {"who": "the slow one"}, command_id="once") == id
    manager.cancel(id)


def test_a_start_that_is_repeated_is_the_same_operation(operations):
    """Rule 3.3: also when today it would not be compatible with itself, or has ended."""
    start = operations.manager.start
    id = start("write", "days", {}, command_id="once")

    assert start("write", "days", {}, command_id="once") == id
    operations.run_all(id)
    operations.world.taint(*(f"days@{day}" for day in DAYS))
    assert start("write", "days", {}, command_id="once") == id


def test_a_start_that_is_sent_twice_at_once_is_one_operation(operations):
    """Rule 3.3: the second one has looked before the first one was recorded."""
    manager, first = operations.manager, []

    with ahead_of(manager, "prepared", lambda: first.append(manager.start("write", "days", {}, command_id="once"))):
        second = manager.start("write", "days", {}, command_id="once")

    assert [second] == first == manager.running()
    manager.cancel(second)


def test_a_start_or_cancel_whose_id_had_another_request_is_refused(operations):
    """Rule 3.3"""
    manager, first, other = operations.manager, with_fingerprint("once", ["a"]), with_fingerprint("once", ["b"])
    id = manager.start("write", "days", {}, command_id=first)
    before = operations.world.seq

    with pytest.raises(CommandIdUsed):
        manager.start("write", "whole", {}, command_id=other)
    with pytest.raises(CommandIdUsed):
        manager.cancel(id, command_id=other)

    assert operations.world.seq == before
    assert manager.start("write", "days", {}, command_id=first) == id
    manager.cancel(id)


# Jobs


def test_jobs_that_all_succeed_complete_the_operation_once(operations, world):
    """Rule 9.6"""
    id = operations.manager.start("write", "days", {})

    operations.run_all(id)

    assert sorted(operations.lake.runs) == sorted(DAYS)
    view = operations.manager.operation(id)
    assert (view.state, view.done, view.total, view.report) == (OperationState.SUCCESS, 3, 3, {"succeeded": 3})
    assert len(operations.lake.completions) == 1
    assert {key: mark.instance for key, mark in operations.lake.completions[0].marks.items()} == {
        day: world.uuid(f"days@{day}") for day in DAYS
    }


@pytest.mark.parametrize("how", ["raise", "say"])
def test_a_failing_job_is_cleaned_up_before_it_is_marked_and_fails_the_operation(operations, how):
    """Rules 9.5, 9.6"""
    id = operations.manager.start("write", "days", {"2": how}, fail_fast=True)
    executor = operations.executor()
    executor.take(id, 10)
    job = executor.jobs[id, "2"]

    executor.run(job)

    assert operations.lake.cleaned == [("2", job.context.token)]
    assert operations.meta.get(id.job("2").state).value is None
    executor.flush()
    mark = records.mark_of(operations.meta.get(id.job("2").state).value)
    assert mark.state is JobState.FAILED
    operations.coordinator().coordinate()
    view = operations.manager.operation(id)
    expected = {"rows": 3} if how == "say" else {"error": "ValueError: bad 2"}
    assert (view.state, view.failed) == (OperationState.FAILED, {"2": expected})
    executor.step(id, 10)
    assert executor.jobs == {}, "the others are stopped (rule 9.7)"


class FailFast(Write):
    fail_fast = True


@pytest.mark.parametrize(
    ("type_", "asked", "runs"),
    [(Write, None, DAYS), (FailFast, None, ["1"]), (Write, True, ["1"]), (FailFast, False, DAYS)],
)
def test_the_jobs_after_a_failed_one_run_unless_its_type_or_its_start_says_otherwise(world, type_, asked, runs):
    """Rule 9.6"""
    operations = Operations(world, type_)
    id = operations.manager.start("write", "days", {"1": "raise"}, fail_fast=asked)
    executor, coordinator = operations.executor(), operations.coordinator()

    for _ in DAYS:
        executor.step(id, 1)
        coordinator.coordinate()

    view = operations.manager.operation(id)
    assert sorted(operations.lake.runs) == sorted(runs)
    assert (view.state, list(view.failed), view.done) == (OperationState.FAILED, ["1"], len(runs) - 1)
    (completion,) = operations.lake.completions
    assert sorted(completion.marks) == sorted(runs), "its completion sees every end"


def test_the_history_keeps_every_failed_partition_and_the_first_of_their_details(operations, monkeypatch):
    """Rule 9.6: the entry is one value of the meta storage."""
    monkeypatch.setattr(records, "MAX_DETAILS_BYTES", 60)
    id = operations.manager.start("write", "days", dict.fromkeys(DAYS, "raise"))

    operations.run_all(id)

    failed = operations.manager.operation(id).failed
    assert sorted(failed) == sorted(DAYS)
    assert [detail is None for detail in failed.values()] == [False, False, True]


def test_a_job_that_asks_to_be_tried_again_is_also_where_it_may_fail(world):
    tries = []

    def busy_once(context):
        tries.append(context.attempt)
        if len(tries) == 1:
            raise RetryJob("busy")

    operations = Operations(world, Write, doing=busy_once)
    id = operations.manager.start("write", "days", {}, partitions=["1"])

    operations.run_all(id)

    assert tries == [1, 2]
    assert len(operations.lake.cleaned) == 1, "a volatile job starts from nothing"
    assert outcome(operations, id) is OperationState.SUCCESS


def test_the_reason_of_a_retry_is_reported_and_kept_until_the_job_ends(world):
    """Rule 9.5: by the executor that runs it, to every reader"""

    def down_twice(context):
        if context.partition == "2" and context.attempt < 3:
            raise ConnectionError("the service\nis down")

    operations = Operations(world, Sure, doing=down_twice)
    id = operations.manager.start("sure", "days", {})
    answer = []
    executor = Executor(
        operations.manager, on_retry=lambda context, trouble: answer.append((context.partition, trouble.attempts))
    )
    looking_on = Tracker(operations.meta, id)

    for attempt in (1, 2):
        executor.step(id, 10)
        (trouble,) = operations.manager.operation(id).troubles.values()
        looking_on.look()
        assert looking_on.find(id).troubles == {"2": trouble}
        assert trouble.error == "ConnectionError: the service is down"
        assert (trouble.attempts, trouble.next_at - trouble.at) == (attempt, 5.0 * attempt), "it doubles"
        assert executor.seconds_until_due == pytest.approx(5.0 * attempt)
        world.clock.turn(trouble.next_at - world.clock.now)

    executor.step(id, 10)
    assert (executor.jobs, executor.seconds_until_due) == ({}, 0.0)
    assert answer == [("2", 1), ("2", 2)]
    assert operations.meta.get(id.job("2").trouble).value is None
    looking_on.look()
    assert looking_on.find(id).troubles == operations.manager.operation(id).troubles == {}
    operations.coordinator().coordinate()
    assert operations.keys() == []


def test_trouble_with_a_job_that_another_has_by_now_is_not_noted(world):
    """Rule 9.5: the word of who lost its lease counts no more"""

    def taken_over(context):
        operations.meta.invoke_all([invokes.give_back(context.operation, context.partition, context.lease)])
        raise RetryJob("busy")

    operations = Operations(world, Write, doing=taken_over)
    id = operations.manager.start("write", "days", {}, partitions=["1"])

    operations.executor().step(id, 1)

    assert operations.manager.operation(id).troubles == {}
    operations.manager.cancel(id)


def test_what_is_tried_for_ever_waits_no_longer_than_before():
    assert [backoff_seconds(attempts) for attempts in (1, 2, 5_000)] == [5.0, 10.0, 600.0]


def test_a_clean_up_that_fails_is_repeated_before_the_mark(world):
    """Rule 9.5"""

    class Sticky(Write):
        stuck = 2

        def cancel_job_and_cleanup(self, arg, partition, context):
            self.stuck -= 1
            if self.stuck >= 0:
                raise OSError("busy")
            super().cancel_job_and_cleanup(arg, partition, context)

    operations = Operations(world, Sticky)
    id = operations.manager.start("write", "days", {"1": "raise"}, partitions=["1"])
    executor = operations.executor()

    executor.step(id, 10)
    assert operations.meta.get(id.job("1").state).value is None
    operations.run_all(id, executor)

    assert outcome(operations, id) is OperationState.FAILED
    assert operations.lake.written == {"1": set()}
    assert operations.lake.runs == ["1"]


# Leases


@pytest.mark.parametrize("how", ["killed on this machine", "silent on another"])
def test_the_jobs_of_an_executor_that_is_gone_are_adopted(operations, how):
    """Rule 9.5"""
    id = operations.manager.start("write", "days", {})
    dead, heir = operations.executor("dead"), operations.executor("heir")
    lost = {job.context.partition: job.context.token for job in dead.take(id, 2)}
    for job in list(dead.jobs.values()):
        dead.run(job)

    if how.startswith("killed"):
        operations.dead.add("dead")
    else:
        assert [job.context.partition for job in heir.take(id, 10)] == [day for day in DAYS if day not in lost]
        operations.sleep_past_the_lease(heir)
    heir.take(id, 10)
    assert {partition for _, partition in heir.jobs} == set(DAYS)
    operations.run_all(id, heir)

    assert set(operations.lake.cleaned) == set(lost.items()), (
        "a volatile job starts from nothing, and its earlier output is gone"
    )
    assert outcome(operations, id) is OperationState.SUCCESS
    assert all(len(tokens) == 1 for tokens in operations.lake.written.values())


def test_a_coordinator_releases_the_jobs_of_an_executor_that_is_gone(operations):
    """Rule 9.5: who comes next takes them at once; who had them is not believed from then on, although no executor has them yet."""
    id = operations.manager.start("write", "days", {})
    silent, coordinator = operations.executor("silent"), operations.coordinator()
    for job in silent.take(id, 10):
        silent.run(job)
    assert coordinator.coordinate().waiting == {}
    operations.sleep_past_the_lease(coordinator)

    assert coordinator.coordinate().waiting == {id: 3}
    assert coordinator.coordinate().waiting == {id: 3}
    silent.flush()
    assert operations.manager.operation(id).done == 0
    heir = operations.executor("heir")
    assert len(heir.take(id, 10)) == 3, "without having looked for as long as a lease"
    operations.run_all(id, heir)
    coordinator.coordinate()
    assert outcome(operations, id) is OperationState.SUCCESS


def test_a_resumable_job_goes_on_from_what_was_saved(world):
    """Rule 9.5"""
    found = []

    def two_files(context):
        found.append((context.partition, context.progress, context.is_resumed))
        context.save_progress(b"file 1")
        if len(found) == 1:
            raise KeyboardInterrupt

    operations = Operations(world, Sure, doing=two_files)
    id = operations.manager.start("sure", "days", {}, partitions=["1"])
    dead = operations.executor("dead")
    with pytest.raises(KeyboardInterrupt):
        dead.step(id, 10)
    operations.dead.add("dead")

    operations.run_all(id, operations.executor("heir"))

    assert found == [("1", None, False), ("1", b"file 1", True)]
    assert operations.lake.cleaned == []
    assert outcome(operations, id) is OperationState.SUCCESS


def test_what_was_adopted_is_not_cleaned_up_by_who_had_it_before(world):
    """Rule 9.5: found by the simulation. The heir goes on from it, and has to clean up if the operation is canceled."""

    def half(context):
        if context.progress is None:
            context.save_progress(b"half")
            raise RetryJob("busy")

    operations = Operations(world, Sure, doing=half)
    id = operations.manager.start("sure", "days", {}, partitions=["1"])
    sleeper, heir = operations.executor("sleeper"), operations.executor("heir")
    sleeper.step(id, 1)
    operations.dead.add("sleeper")
    heir.take(id, 1)

    world.clock.turn(10)
    sleeper.step(id, 1)

    assert (sleeper.jobs, operations.lake.cleaned) == ({}, [])
    operations.manager.cancel(id)
    heir.step(id, 1)
    assert operations.lake.written == {"1": set()}


def test_a_volatile_job_saves_nothing(world):
    operations = Operations(world, Write, doing=lambda context: context.save_progress(b"x"))
    id = operations.manager.start("write", "days", {}, partitions=["1"])

    operations.run_all(id)

    assert "always begin from scratch" in operations.manager.operation(id).failed["1"]["error"]


@pytest.mark.parametrize(
    ("progress", "why"),
    [
        ({"file": 1}, "the type of a job's progress is 'dict', which cannot be kept: save_progress takes bytes"),
        ("file 1", "the type of a job's progress is 'str', which cannot be kept: save_progress takes bytes"),
        (bytes(MAX_VALUE_BYTES + 1), "the progress of a job is '16777217 bytes', which cannot be kept: 16777216"),
    ],
)
def test_a_progress_that_cannot_be_kept_fails_its_job_at_once(world, progress, why):
    """Rule 9.5: also where the type cannot fail; a retry would save the same"""
    operations = Operations(world, Sure, doing=lambda context: context.save_progress(progress))
    id = operations.manager.start("sure", "days", {}, partitions=["1"])
    executor = operations.executor()

    executor.step(id, 1)
    operations.coordinator().coordinate()

    view = operations.manager.operation(id)
    assert (operations.lake.runs, view.state) == (["1"], OperationState.FAILED)
    assert view.failed["1"]["error"].startswith(f"CannotKeep: {why}")


def test_an_executor_that_slept_past_its_lease_wakes_and_is_not_believed(operations):
    """Rule 9.5: a late mark."""
    id = operations.manager.start("write", "days", {})
    sleeper, heir = operations.executor("sleeper"), operations.executor("heir")
    jobs = sleeper.take(id, 1)
    sleeper.run(jobs[0])
    partition = jobs[0].context.partition
    heir.take(id, 10)
    operations.sleep_past_the_lease(heir)
    heir.take(id, 10)

    sleeper.flush()

    assert operations.meta.get(id.job(partition).state).value is None
    assert (partition, jobs[0].context.token) in operations.lake.cleaned
    assert sleeper.jobs == {}
    operations.run_all(id, heir)
    assert outcome(operations, id) is OperationState.SUCCESS
    mark = operations.lake.completions[0].marks[partition]
    assert mark.token != jobs[0].context.token


@pytest.mark.parametrize("what", ["check", "save"])
def test_a_job_that_lost_its_lease_is_stopped_where_it_asks(world, what):
    """Rule 9.5: the old one stops and cleans up."""
    reached = []

    def sleeps(context):
        if context.lease.holder == "sleeper":
            operations.dead.add("sleeper")
            heir.take(context.operation, 10)
            context.check() if what == "check" else context.save_progress(b"late")
            reached.append("behind the check")

    kind = Write if what == "check" else Sure
    operations = Operations(world, kind, doing=sleeps)
    id = operations.manager.start(kind.type_name, "days", {}, partitions=["1"])
    sleeper, heir = operations.executor("sleeper"), operations.executor("heir")

    sleeper.step(id, 10)

    assert (reached, sleeper.jobs) == ([], {})
    assert [partition for partition, _ in operations.lake.cleaned] == (["1"] if kind is Write else [])
    operations.run_all(id, heir)
    assert outcome(operations, id) is OperationState.SUCCESS


def test_jobs_whose_take_lost_its_answer_are_taken_again(operations):
    """The heartbeat of the executor goes on: no other executor would ever get them."""
    id = operations.manager.start("write", "days", {})
    executor = operations.executor()

    with losing_the_answer(executor.meta):
        executor.take(id, 10)

    assert len(executor.take(id, 10)) == 3
    operations.run_all(id, executor)


def test_marks_whose_answer_was_lost_are_said_again_and_count_once(operations):
    """Rule 3.3"""
    id = operations.manager.start("write", "days", {})
    executor = operations.executor()
    for job in executor.take(id, 10):
        executor.run(job)

    with losing_the_answer(executor.meta):
        executor.flush()
    executor.flush()

    assert executor.jobs == {}
    assert operations.lake.cleaned == [], "they were taken"
    operations.coordinator().coordinate()
    assert outcome(operations, id) is OperationState.SUCCESS


# Completion


def test_a_coordinator_that_is_gone_is_replaced(operations):
    """Rule 9.6"""
    keeps = operations.manager.start("many", "days", {"about": "a"})
    ends = operations.manager.start("many", "days", {"about": "b"})
    dead, heir = operations.coordinator("dead"), operations.coordinator("heir")
    run_jobs(operations, ends)
    dead.coordinate()
    assert outcome(operations, ends) is OperationState.SUCCESS
    run_jobs(operations, keeps)

    assert heir.coordinate().completed == {}, "another process is coordinator"
    operations.dead.add("dead")
    assert heir.coordinate().completed == {keeps: OperationState.SUCCESS}


def test_a_coordinator_that_comes_late_leaves_no_key_behind(operations):
    """Found by the simulation: it had read that there is no coordinator, and by then all was over."""
    id = operations.manager.start("write", "days", {})
    late = operations.coordinator("late")
    run_jobs(operations, id)
    late.tracker.look()
    operations.coordinator("fast").coordinate()

    late.tracker.look = lambda: None
    assert late.coordinate().completed == {}


def test_two_coordinators_complete_an_operation_once(operations):
    """Rule 9.6: the completion code may run twice, the end is one."""
    id = operations.manager.start("write", "days", {})
    run_jobs(operations, id)
    one, other = operations.coordinator("one"), operations.coordinator("other")
    ended = []

    with ahead_of(Write, "complete_operation", lambda: ended.append(other.complete(id))):
        assert one.complete(id) is None

    assert ended == [OperationState.SUCCESS]
    assert len(operations.lake.completions) == 2
    assert one.complete(id) is None


def test_a_completion_beside_a_start_begins_again(operations):
    """Rule 9.6: runOps has changed."""
    manager, started = operations.manager, []
    id = manager.start("many", "days", {"about": "a"})
    run_jobs(operations, id)

    with ahead_of(Many, "complete_operation", lambda: started.append(manager.start("many", "days", {"about": "b"}))):
        assert operations.coordinator().complete(id) is OperationState.SUCCESS

    assert len(operations.lake.completions) == 2
    assert manager.running() == started
    manager.cancel(started[0])


def test_a_completion_that_raises_is_shown_and_tried_again_by_any_coordinator(operations, monkeypatch):
    """Rule 9.6: the next coordinator continues the count"""
    id = operations.manager.start("write", "days", {})
    run_jobs(operations, id)
    complete = Write.complete_operation
    monkeypatch.setattr(Write, "complete_operation", lambda *args: 1 / 0)
    first, second = operations.coordinator("first"), operations.coordinator("second")
    looking_on = Tracker(operations.meta, id)

    reported, waiting = first.coordinate(), first.coordinate()

    view = operations.manager.operation(id)
    assert "ZeroDivisionError" in reported.problems[id]
    assert (waiting.problems, [*waiting.backing_off]) == ({}, [id])
    assert view.problem == view.trouble.error == "its completion raised ZeroDivisionError: division by zero"
    assert (view.trouble.attempts, view.trouble.next_at) == (1, operations.world.clock.now + 5.0)
    looking_on.look()
    assert looking_on.find(id).trouble == view.trouble
    operations.dead.add("first")
    second.coordinate()
    assert operations.manager.operation(id).trouble.attempts == 2
    monkeypatch.setattr(Write, "complete_operation", complete)
    operations.world.clock.turn(10)
    assert second.coordinate().completed == {id: OperationState.SUCCESS}


class Refuses(Write):
    """Its completion code meets an error that is one of ours."""

    type_name = "refuses"

    def complete_operation(self, arg, dataset, completion):
        raise NotFound(kind="table", name="anything")


@pytest.mark.parametrize(
    ("type_id", "coordinator", "why"), [("refuses", None, "NotFound"), ("write", b'{"format":7}', "cannot be read")]
)
def test_an_operation_that_cannot_complete_holds_back_no_other(operations, type_id, coordinator, why):
    """Rule 9.6: its completion code refuses, or its dataset has a coordinator of newer code"""
    operations.manager.register(Refuses(operations.lake))
    bad, good = operations.manager.start(type_id, "days", {}), operations.manager.start("write", "whole", {})
    if coordinator is not None:
        operations.meta.put(keys.DatasetKeys.of("days").coordinator, coordinator)
    run_jobs(operations, bad, good)

    done = operations.coordinator().coordinate()

    assert why in done.problems[bad]
    assert done.completed == {good: OperationState.SUCCESS}
    assert operations.manager.cancel(bad)


def test_jobs_without_code_to_clean_up_hide_no_others(operations, monkeypatch):
    """Rule 9.6: the code of their type is gone"""
    monkeypatch.setattr(completing, "MAX_CLEANED", 2)
    unknown, known = operations.manager.start("alone", "days", {}), operations.manager.start("write", "whole", {})
    dead = operations.executor("dead")
    assert len([*dead.take(unknown, 3), *dead.take(known, 1)]) == 4
    for id in (unknown, known):
        operations.manager.cancel(id)
    operations.dead.add("dead")
    gone = operations.manager.types.pop("alone")
    coordinator = operations.coordinator()

    assert sum(coordinator.coordinate().cleaned for _ in range(4)) == 1
    operations.manager.register(gone)
    assert sum(coordinator.coordinate().cleaned for _ in range(4)) == 3


# Cancel, and what is gone


def test_a_canceled_operation_stops_its_jobs_and_leaves_nothing(operations):
    """Rule 9.7"""
    id = operations.manager.start("write", "days", {})
    executor = operations.executor()
    stopped = []
    for job in executor.take(id, 2):
        operations.lake.written[job.context.partition] = {job.context.token}
        job.context.on_stop.append(lambda: stopped.append(True))

    assert operations.manager.cancel(id, "not needed")
    executor.watch()
    assert stopped == [True, True]
    executor.step(id, 10)

    assert operations.lake.written == {partition: set() for partition in operations.lake.written}
    assert operations.lake.runs == []
    view = operations.manager.operation(id)
    assert (view.state, view.reason, operations.lake.completions) == (OperationState.CANCELED, "not needed", [])
    assert operations.manager.cancel(id) is False
    with pytest.raises(NotFound):
        operations.manager.cancel(id._replace(instance=99))


def test_a_cancel_that_won_after_a_lost_race_answers_the_same_again(operations):
    """Rule 3.3: an executor takes a job between the read and the invoke of the first attempt."""
    manager, executor = operations.manager, operations.executor("dead")
    id = manager.start("write", "days", {})

    with ahead_of(manager.meta, "invoke_all", lambda: executor.take(id, 1)):
        first = manager.cancel(id, command_id="once")
    seq = operations.world.seq
    again = manager.cancel(id, command_id="once")

    assert manager.meta.answer_of("once", -1) is False
    assert (first, again) == (True, True)
    assert operations.world.seq == seq
    operations.dead.add("dead")
    assert operations.coordinator().coordinate().cleaned == 1


def test_a_cancel_in_the_midst_of_completion_wins_and_is_said(operations):
    """Rule 9.6: no longer running, so it stops."""
    id = operations.manager.start("write", "days", {})
    run_jobs(operations, id)

    with ahead_of(Write, "complete_operation", lambda: operations.manager.cancel(id)):
        assert operations.coordinator().complete(id) is None

    assert outcome(operations, id) is OperationState.CANCELED


def test_what_a_dead_executor_left_of_an_ended_operation_is_cleaned_up_by_the_coordinator(operations):
    """Rules 9.5, 9.6: losing any process at any line leaves a state from which the rest goes on."""
    id = operations.manager.start("write", "days", {"x": "y"})
    dead, coordinator = operations.executor("dead"), operations.coordinator()
    (job,) = dead.take(id, 1)
    operations.lake.written[job.context.partition] = {job.context.token}
    operations.manager.cancel(id)

    assert coordinator.coordinate().cleaned == 0, "it may still live, and then it does so itself"
    operations.dead.add("dead")
    assert coordinator.coordinate().cleaned == 1

    assert operations.lake.written[job.context.partition] == set()
    assert coordinator.coordinate().cleaned == 0


@pytest.mark.parametrize("was_taken", [False, True])
def test_work_of_a_job_that_is_taken_while_its_operation_is_canceled_is_cleaned_up(operations, monkeypatch, was_taken):
    """Rules 9.6, 9.7: the end of the operation notes the lease that the job has then."""
    id = operations.manager.start("sure", "days", {})
    if was_taken:
        operations.executor("dead").take(id, 3)
        operations.dead.add("dead")
    executor, taken = operations.executor(), []
    read = operations.manager.read

    def read_before_a_take(id):
        seen = read(id)
        if not taken:
            taken.extend(executor.take(id, 1))
        return seen

    monkeypatch.setattr(operations.manager, "read", read_before_a_take)

    assert operations.manager.cancel(id)
    (job,) = taken
    operations.lake.written[job.context.partition] = {job.context.token}
    executor.step(id, 1)
    operations.coordinator().coordinate()

    assert operations.lake.written[job.context.partition] == set()


def test_jobs_taken_during_the_completion_of_a_failure_do_not_repeat_it(operations):
    """Rules 9.6, 9.7"""
    id = operations.manager.start("write", "days", {"1": "raise"}, fail_fast=True)
    executor = operations.executor()
    executor.step(id, 1)

    with ahead_of(Write, "complete_operation", lambda: executor.take(id, 1)):
        assert operations.coordinator().complete(id) is OperationState.FAILED
    (job,) = executor.jobs.values()
    operations.lake.written[job.context.partition] = {job.context.token}
    executor.step(id, 1)

    assert len(operations.lake.completions) == 1
    assert operations.lake.written[job.context.partition] == set()


def test_an_operation_whose_code_is_gone_waits_and_can_be_canceled(operations):
    """Bad input of issue 7: clear words, nothing lost."""
    id = operations.manager.start("write", "days", {})
    job = operations.executor("dead").take(id, 1)[0]
    without = Operations(operations.world, Many)
    operations.dead.add("dead")

    assert "'write'" in without.coordinator().coordinate().problems[id]
    with pytest.raises(UnknownOperationType, match="only many"):
        without.executor().take(id, 1)
    assert without.manager.operation(id).problem
    assert without.manager.cancel(id)

    assert without.coordinator().coordinate().cleaned == 0
    coordinator = operations.coordinator()
    assert coordinator.coordinate().cleaned == 1, "the process that has the code cleans up"
    assert operations.lake.cleaned == [(job.context.partition, job.context.token)]


class Newer(Write):
    version = 2


def test_an_operation_that_newer_code_started_waits_and_can_be_canceled(operations):
    newer = Operations(operations.world, Newer)
    id = newer.manager.start("write", "days", {})

    with pytest.raises(NewerOperation, match="version 2 of write, and 1 is installed"):
        operations.executor().take(id, 1)
    assert "newer code" in operations.coordinator().coordinate().problems[id]
    assert operations.manager.cancel(id)
    assert newer.manager.operation(id).state is OperationState.CANCELED


@pytest.mark.parametrize("key", ["arg", "partitions", "job"])
def test_records_of_another_shape_are_reported_and_the_operation_can_be_canceled(operations, key):
    id = operations.manager.start("write", "days", {})
    place = {"arg": id.arg, "partitions": id.partitions, "job": id.job("1").executor}[key]
    operations.meta.put(place, b'{"format":7}')

    assert operations.coordinator().coordinate().problems[id]
    assert operations.manager.cancel(id)
    assert outcome(operations, id) is OperationState.CANCELED


@pytest.mark.parametrize("value", [b'{"format":7,"how":"well"}', b"torn"])
def test_an_unreadable_entry_of_the_history_is_listed_as_such_and_blocks_nothing(operations, value):
    """Bad input of issue 7: of newer code, nothing is lost"""
    old = operations.manager.start("write", "days", {})
    operations.manager.cancel(old)
    operations.meta.put(old.history, value)

    id = operations.manager.start("write", "whole", {})
    listed = {view.id: view for view in operations.manager.operations(ended=True)}
    operations.run_all(id)

    assert (listed[old].state, listed[id].state) == (OperationState.UNREADABLE, OperationState.RUNNING)
    assert operations.manager.operation(old).problem
    assert not operations.manager.cancel(old), "it has ended"
    assert outcome(operations, id) is OperationState.SUCCESS
    assert operations.meta.get(old.history).value == value


def test_a_name_in_the_history_that_only_newer_code_gives_is_passed_over(operations):
    operations.meta.put("distOpHistory.days.write.a.newer.layout", b"{}")

    assert operations.manager.operations(ended=True) == []


@pytest.mark.parametrize("what", ["note", "history", "name"])
def test_an_unreadable_note_of_an_unclean_job_stays_and_blocks_nothing(operations, what):
    """Bad input of issue 7: newer code has ended it, and cleans up"""
    old = operations.manager.start("write", "days", {}, partitions=["1"])
    operations.executor("dead").take(old, 1)
    operations.manager.cancel(old)
    operations.dead.add("dead")
    note = old.job("1").unclean
    place = {"note": note, "history": old.history, "name": f"{keys.UNCLEAN}.days.write.newer.layout.x.y"}[what]
    before = operations.meta.get(place).value or operations.meta.get(note).value
    operations.meta.put(place, before if what == "name" else b'{"format":7}')
    id = operations.manager.start("write", "whole", {})

    operations.run_all(id)

    assert outcome(operations, id) is OperationState.SUCCESS
    left = place if what == "name" else note
    assert operations.keys() == [left]
    operations.meta.remove(left)


def test_the_executor_of_an_operation_that_newer_code_has_ended_leaves_the_note_to_that(operations):
    id = operations.manager.start("sure", "days", {}, partitions=["1"])
    executor = operations.executor()
    executor.take(id, 1)
    operations.manager.cancel(id)
    note = id.job("1").unclean
    operations.meta.put(note, b'{"format":7}')

    executor.step(id, 1)

    assert executor.jobs == {}
    assert operations.keys() == [note]
    operations.meta.remove(note)


def test_a_dataset_whose_operations_newer_code_lists_holds_up_no_other(operations):
    """Bad input of issue 7"""
    days = keys.DatasetKeys.of("days")
    operations.meta.put(days.run_ops, b'{"format":7}')
    id = operations.manager.start("write", "whole", {})

    operations.run_all(id)

    assert outcome(operations, id) is OperationState.SUCCESS
    assert operations.manager.operations() == []
    with pytest.raises(NewerOperations, match="Newer code has listed the operations on days"):
        operations.manager.start("write", "days", {})
    operations.meta.remove(days.run_ops)


def test_an_older_argument_is_raised_by_its_type(operations):
    class Raised(Newer):
        def upgraded(self, arg, version):
            return {"1": arg["one"]} if version == 1 else arg

    id = operations.manager.start("write", "days", {"one": "say"}, partitions=["1"])
    newer = Operations(operations.world, Raised)

    newer.run_all(id)

    assert newer.manager.operation(id).failed == {"1": {"rows": 3}}


def test_a_partition_that_is_rebuilt_meanwhile_is_marked_as_the_instance_it_was(operations, world):
    """Bad input of issue 7."""
    id = operations.manager.start("write", "days", {})
    before = world.uuid("days@1")
    executor = operations.executor()
    jobs = {job.context.partition: job for job in executor.take(id, 10)}
    world.taint("days@1", "days@2")
    world.live("days@1")

    assert jobs["1"].context.instance_uuid == before
    operations.run_all(id, executor)

    assert operations.lake.completions[0].marks["1"].instance == before != world.uuid("days@1")


# What it costs


def test_a_look_costs_what_has_changed_and_not_what_is_done(make_world):
    """The coordinator's work does not grow with the jobs already done."""
    days = [str(number) for number in range(400)]
    world = make_world(dataset("days", keys=days))
    world.start(*(f"days@{day}" for day in days))
    for day in days:
        world.succeed(f"days@{day}")
    operations = Operations(world)
    id = operations.manager.start("write", "days", {})
    executor, coordinator = operations.executor(), operations.coordinator()
    coordinator.coordinate()
    work = []
    while executor.step(id, 40):
        before = coordinator.tracker.n_applied
        coordinator.coordinate()
        work.append(coordinator.tracker.n_applied - before)

    assert len(work) == 10
    assert work[:-1] == [80] * 9, "the leases and the marks of forty jobs"
    assert outcome(operations, id) is OperationState.SUCCESS
    idle = coordinator.tracker.n_applied
    coordinator.coordinate()
    before = coordinator.tracker.n_applied
    coordinator.coordinate()
    assert coordinator.tracker.n_applied == before > idle


def test_a_tracker_whose_past_was_compacted_reads_everything(operations):
    id = operations.manager.start("write", "days", {})
    executor, coordinator = operations.executor(), operations.coordinator()
    coordinator.coordinate()
    executor.take(id, 10)
    operations.meta.compact(operations.world.seq)

    operations.run_all(id, executor)
    assert coordinator.coordinate().completed == {}
    assert outcome(operations, id) is OperationState.SUCCESS
