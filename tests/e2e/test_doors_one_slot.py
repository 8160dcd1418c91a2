"""Dagster's own queue with one slot: a run that waits in it never blocks the build that it waits for (rules 8.2, 8.3)."""

from collections.abc import Iterator

import pytest

from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG, OUTCOME_WAITING
from databuild_dagster.bindings.building.deployment import DEFAULT_DELEGATION_TIMEOUT_SECONDS
from databuild_dagster.model.states import InstanceState

from .conftest import MAX_SECONDS
from .doors import FAILED, LIVE, MISSING, Deployment, spoken

#: Which run gives way is proved by tests/bindings/building/test_step_delegation.py.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.extended]

SETTINGS = """
telemetry: {enabled: false}
concurrency:
  runs: {max_concurrent_runs: 1}
run_queue: {dequeue_interval_seconds: 1}
"""


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("doors"), SETTINGS)
    with deployment.running():
        yield deployment


def test_a_run_that_waits_for_what_waits_for_its_slot_makes_way(doors: Deployment) -> None:
    """Materialize twice what needs an input that was never built: the launch of the input is queued behind the second."""
    up, down = f"job_first@{MISSING}", f"job_second@{MISSING}"
    assert MAX_SECONDS < DEFAULT_DELEGATION_TIMEOUT_SECONDS

    first, second = (doors.press_materialize("job_second", key=MISSING) for _ in range(2))

    doors.wait_until(lambda: doors.state(down) is InstanceState.LIVE, "it is built")
    assert [(run.status, run.tags[OUTCOME_TAG]) for run in map(doors.wait_for_run, (first, second))] == [
        ("SUCCESS", OUTCOME_WAITING),
        ("SUCCESS", OUTCOME_WAITING),
    ]
    assert spoken(doors.answers(first).values()) == {MISSING: "built, live"}
    assert spoken(doors.answers(second).values()) == {MISSING: "joined, given up"}
    assert doors.answers(second)[down].reason.startswith(f"{up} is queued for a slot in Dagster, and this run held one")
    assert f"{up} is queued for a slot in Dagster" in doors.log_of(second)
    assert {want.state.value for want in doors.queries.wants_of_ref(down)} == {"Successful"}
    assert (doors.calls(up), doors.calls(down)) == (1, 1)
    assert doors.violations() == []


def test_two_backfills_of_the_same_keys_end(doors: Deployment) -> None:
    """The runs of the second join what the first left waiting for its inputs, whose launch is queued behind all of them."""
    keys = (LIVE, FAILED)
    refs = [f"job_second@{key}" for key in keys]
    doors.tell("mended-job_second")

    backfills = [doors.backfill("job_second", *keys) for _ in range(2)]

    assert all(doors.wait_for_backfill(backfill).startswith("COMPLETED") for backfill in backfills)
    doors.wait_until(lambda: all(doors.state(ref) is InstanceState.LIVE for ref in refs), "all are built")
    assert {run.status for run in doors.runs() if not run.is_launch} == {"SUCCESS"}
    assert [doors.calls(ref) for ref in refs] == [1, 1]
    assert doors.violations() == []
