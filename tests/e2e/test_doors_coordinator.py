"""A few of the doors again, behind `DatabuildRunCoordinator`: a run gets the same answers (rule 8.1).

All of them are tried behind it with `DATABUILD_COORDINATOR=1 make test ARGS=tests/e2e/test_doors.py`.
"""

from collections.abc import Iterator

import pytest

from .doors import OUR_COORDINATOR, Deployment, deployed
from .test_doors import test_a_sensor, test_the_materialize_button_for_a_partition

__all__ = ["test_a_sensor", "test_the_materialize_button_for_a_partition"]

#: Behind the coordinator what is decided is proved by test_coordinator and tests/bindings/orchestration/test_coordinator.py.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.extended]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("doors"), ("button", "sensed"), OUR_COORDINATOR) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def single_run() -> None:
    """None here: they take Dagster's daemon a minute."""
