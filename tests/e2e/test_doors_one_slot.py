"""Dagster's own queue with one slot: a run that waits in it never blocks the build that it waits for (rules 8.2, 8.3)."""

from collections.abc import Iterator

import pytest

from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG, OUTCOME_WAITING
from databuild_dagster.bindings.building.deployment import DEFAULT_DELEGATION_TIMEOUT_SECONDS
from databuild_dagster.model.states import InstanceState

from .conftest import MAX_SECONDS
from .doors import MISSING, Deployment, spoken

#: Which run gives way is proved by tests/bindings/building/test_step_delegation.py.
pytestmark = [
    pytest.mark.long("the slot is one of Dagster's daemon"),
    pytest.mark.timeout(600),
    pytest.mark.extended,
]

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
    why = doors.answers(second)[down].reason
    assert why.startswith(f"{up} is queued")
    assert why in doors.log_of(second)
    assert {want.state.value for want in doors.queries.wants_of_ref(down)} == {"Successful"}
    assert (doors.calls(up), doors.calls(down)) == (1, 1)
    assert doors.violations() == []
