"""What a Dagster in use does to builds besides asking for them: each behaves as the SPEC says, and nothing is stuck (SPEC 8)."""

from collections.abc import Iterator

import pytest
from dagster._grpc.types import ExecuteRunArgs

from databuild_dagster.bindings.tags import LAUNCH_TAG
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.states import InstanceState

from .conftest import MAX_SECONDS
from .doors import HELD, MISSING, Deployment, answers_of, spoken

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

#: The same assets, but who asks for them here does not wait long.
IMPATIENT = """
from databuild_dagster import build_definitions
from definitions import assets

defs = build_definitions(assets, location="doors", delegation_timeout_seconds=2)
"""


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("doors"))
    (deployment.folder / "impatient.py").write_text(IMPATIENT)
    deployment.start()
    yield deployment
    for asset in ("hung", "deleted", "crossed", "queued", "twice", "again"):
        deployment.tell(f"go-{asset}")
    deployment.stop()


def test_a_run_over_our_assets_and_plain_ones(doors: Deployment) -> None:
    """Ours is built once; a plain asset has no lease, and is made as often as somebody asks."""
    first = doors.wait_for_run(doors.press_materialize("mixed", "plain", key=MISSING))
    second = doors.wait_for_run(doors.press_materialize("mixed", "plain", key=MISSING))

    assert (first.status, second.status) == ("SUCCESS", "SUCCESS")
    assert spoken(doors.answers(first.run_id).values()) == {MISSING: "built, live"}
    assert spoken(doors.answers(second.run_id).values()) == {MISSING: "reused, live"}
    assert (doors.calls(f"mixed@{MISSING}"), doors.calls(f"plain@{MISSING}")) == (1, 2)
    assert doors.violations() == []


def test_a_partition_that_does_not_exist_any_more(doors: Deployment) -> None:
    """Nobody can ask for it; what was built of it stays (SPEC 4.2, 5.7)."""
    assert doors.add_partition("gone") == "AddDynamicPartitionSuccess"
    assert doors.wait_for_run(doors.press_materialize("vanishing", key="gone")).status == "SUCCESS"
    built = doors.uuids("vanishing@gone")
    doors.instance.delete_dynamic_partition("added", "gone")

    run_id = doors.press_materialize("vanishing", key="gone")
    want = doors.start_module("databuild_dagster", "want", "create", "vanishing@gone")

    _, said = want.communicate(timeout=MAX_SECONDS)
    assert (want.returncode, "vanishing@gone cannot be built" in said) == (2, True), said
    assert doors.wait_for_run(run_id).status == "FAILURE"
    assert doors.uuids("vanishing@gone") == built
    assert doors.calls("vanishing@gone") == 1
    assert doors.violations() == []


def test_a_run_waits_for_a_build_that_hangs_only_so_long(doors: Deployment) -> None:
    """SPEC 8.3: its message names the stalled job run."""
    ref = f"hung@{HELD}"
    hanging = doors.start_crowd(ref)
    doors.wait_until(lambda: doors.calls(ref) == 1, "the build hangs")

    waiting = doors.start_module(
        "dagster", *("asset", "materialize", "--select", "hung", "--partition", HELD, "-f", "impatient.py")
    )

    _, said = waiting.communicate(timeout=MAX_SECONDS)
    (job_run,) = [run for run in doors.queries.job_runs(open_only=True) if ref in run.refs]
    assert waiting.returncode == 1
    assert f"Waited 2 s for {ref} from elsewhere: job run {job_run.id}" in said
    assert spoken(doors.answers(doors.newest_requester(ref)).values()) == {HELD: "joined, given up"}
    doors.tell("go-hung")
    assert all(each["success"] for each in answers_of(hanging))
    assert doors.state(ref) is InstanceState.LIVE
    assert doors.violations() == []


def test_a_build_whose_dagster_run_is_deleted_serves_who_waits_for_it(doors: Deployment) -> None:
    ref = f"deleted@{HELD}"
    building = doors.press_materialize("deleted", key=HELD)
    doors.wait_until(lambda: doors.calls(ref) == 1, "one builds")
    waiting = doors.press_materialize("deleted", key=HELD)
    assert doors.wait_for_joiner(ref) == waiting

    assert doors.mutate(f'deleteRun(runId: "{building}")') == "DeletePipelineRunSuccess"
    doors.tell("go-deleted")

    assert doors.wait_for_run(waiting).status == "SUCCESS"
    assert doors.state(ref) is InstanceState.LIVE
    assert doors.violations() == []


def test_when_builds_are_canceled_two_runs_that_wait_for_both_get_what_the_other_waits_for(doors: Deployment) -> None:
    """Who waits may claim what has become schedulable (8.3), and builds it before it waits again (SPEC 8.2)."""
    keys = ("held", "held_too")
    both = [f"crossed@{key}" for key in keys]
    canceled = [doors.press_materialize("crossed", key=key) for key in keys]
    doors.wait_until(lambda: all(doors.calls(ref) == 1 for ref in both), "both are being built")
    ranges = [doors.press_materialize("crossed", keys=keys) for _ in range(2)]
    doors.wait_until(lambda: all(len(doors.answers(run_id)) == 2 for run_id in ranges), "the ranges wait for both")

    for run_id in canceled:
        assert doors.mutate(f'terminateRun(runId: "{run_id}")') == "TerminateRunSuccess"
    doors.wait_until(lambda: all(doors.calls(ref) == 2 for ref in both), "both are built by the ranges")
    doors.tell("go-crossed")

    assert {doors.wait_for_run(run_id).status for run_id in ranges} == {"SUCCESS"}
    assert {doors.wait_for_run(run_id).status for run_id in canceled} == {"CANCELED"}
    assert {doors.state(ref) for ref in both} == {InstanceState.LIVE}
    assert [len(doors.queries.history(ref)) for ref in both] == [2, 2]
    assert doors.violations() == []


def test_who_waits_for_a_launch_that_waits_for_its_slot_does_its_work(doors: Deployment) -> None:
    """A pool of one: the launch is queued behind the very run that waits for it (SPEC 8.2).

    Before that its queued Dagster run is deleted, and asked for again (SPEC 11.1).
    """

    def launches() -> list[str]:
        return [run.run_id for run in doors.runs(dagster__partition=MISSING) if LAUNCH_TAG in run.tags]

    doors.limit_pool("queue", 1)
    ref = f"queued@{MISSING}"
    before = doors.press_materialize("queued", key=HELD)
    doors.wait_until(lambda: doors.calls(f"queued@{HELD}") == 1, "the slot is taken")
    doors.engine.handle(CreateWants(wants=((ref,),)))
    doors.wait_until(lambda: bool(launches()), "a launch is queued")
    (deleted,) = launches()
    assert doors.mutate(f'deleteRun(runId: "{deleted}")') == "DeletePipelineRunSuccess"
    doors.wait_until(lambda: bool(launches()), "it is queued again")

    waiting = doors.press_materialize("queued", key=MISSING, tags={"dagster/priority": "10"})
    doors.tell("go-queued")

    assert doors.wait_for_run(waiting).status == "SUCCESS"
    assert doors.calls(ref) == 1
    assert [doors.wait_for_run(run_id).status for run_id in launches()] == ["SUCCESS"]
    assert doors.wait_for_run(before).status == "SUCCESS"
    assert {want.state.value for want in doors.queries.wants_of_ref(ref)} == {"Successful"}
    assert doors.calls(ref) == len(doors.queries.history(ref)) == 1
    assert doors.violations() == []


def test_a_run_that_is_executed_twice_ends_in_one_live_instance(doors: Deployment) -> None:
    """Dagster fails it; what becomes of the first process' work is fenced (SPEC 6.9)."""
    ref = f"twice@{HELD}"
    run_id = doors.press_materialize("twice", key=HELD)
    doors.wait_until(lambda: doors.calls(ref) == 1, "it builds")
    run = doors.instance.get_run_by_id(run_id)
    assert run is not None
    assert run.job_code_origin is not None

    _, *arguments = ExecuteRunArgs(run.job_code_origin, run_id, doors.instance.get_ref()).get_command_args()
    doors.finish(doors.start_module("dagster", *arguments))
    doors.tell("go-twice")

    doors.wait_until(lambda: doors.state(ref) is InstanceState.LIVE, "it is live, by whomever")
    assert [instance.state for instance in doors.queries.history(ref)].count(InstanceState.LIVE) == 1
    assert doors.violations() == []


def test_a_run_in_progress_that_is_re_executed_is_waited_for(doors: Deployment) -> None:
    ref = f"again@{HELD}"
    run_id = doors.press_materialize("again", key=HELD)
    doors.wait_until(lambda: doors.calls(ref) == 1, "it builds")

    again = doors.reexecute(run_id, "ALL_STEPS")

    assert doors.wait_for_joiner(ref) == again
    doors.tell("go-again")
    assert [doors.wait_for_run(each).status for each in (run_id, again)] == ["SUCCESS", "SUCCESS"]
    assert doors.calls(ref) == 1
    assert doors.violations() == []


def test_trying_sensors_and_schedules_out_in_the_ui_records_nothing(doors: Deployment) -> None:
    doors.stop_sensor("databuild_orchestrator")
    doors.engine.handle(CreateWants(wants=((f"tested@{MISSING}",),)))
    n_runs, seq = len(doors.runs()), doors.queries.head().seq

    tried = doors.try_sensor("databuild_orchestrator")
    of_schedule = doors.try_schedule("yearly")
    wanting = [doors.try_schedule("wanting_schedule"), doors.try_sensor("wanting_sensor")]

    assert (tried["error"], tried["runRequests"]) == (None, [])
    assert tried["skipReason"] == "Only a test: nothing is launched by it. 1 refs are due for the next tick."
    assert len(of_schedule["runRequests"]) == 1
    assert [each["skipReason"] for each in wanting] == [
        f"Only a test: it would want tested@{MISSING}.",
        f"Only a test: it would want 2 refs, tested@{MISSING} to tested@{HELD}.",
    ]
    assert (len(doors.runs()), doors.queries.head().seq) == (n_runs, seq)
    doors.start_sensor("databuild_orchestrator")
    doors.wait_until(lambda: doors.state(f"tested@{MISSING}") is InstanceState.LIVE, "a real tick builds it")
    assert doors.violations() == []
