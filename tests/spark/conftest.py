"""A session on the server that all tests of a run share, and a warehouse to write to."""

import uuid
from pathlib import Path

import pytest

from databuild_dagster.spark.reach import reach_of
from databuild_dagster.spark.session import active_in_thread, open_session
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.instances import write_instance

#: Fixtures that start processes, and what only these show.
NEEDS_PROCESS = {
    "sail": "only an engine reads and writes a bucket by itself",
    "spark": "only Spark evaluates a frame",
    "new_home": "a server is a process of its own",
    "running_sail": "a session is one of a server",
    "session": "a session is one of a server",
    "spark_home": "a session is one of a server",
}


def pytest_itemcollected(item):
    reasons = [reason for name, reason in NEEDS_PROCESS.items() if name in getattr(item, "fixturenames", ())]
    if reasons and item.get_closest_marker("long") is None:
        item.add_marker(pytest.mark.long(reasons[0]))


@pytest.fixture(scope="session")
def spark(spark_home):
    spark = open_session(SparkSettings(home=spark_home))
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def active_session(request):
    """Make the test's session the one of PySpark's functions that name none, such as `F.udf("int")`.

    They would use the process's default session, whose server an earlier test may have ended.
    """
    name = next((name for name in ("spark", "sail") if name in request.fixturenames), None)
    if name is None:
        yield
        return
    with active_in_thread(request.getfixturevalue(name)):
        yield


@pytest.fixture
def warehouse(tmp_path):
    # A folder that Spark would take for a pattern.
    return Warehouse(str(tmp_path / "ware [house]* {x}"))


@pytest.fixture
def reach(sail, warehouse):
    """How Sail writes and reads a warehouse in a bucket, which is the fixture `warehouse` of the test's own file."""
    # Under load, the probe of a read takes longer than a user waits.
    return reach_of(sail, warehouse.root, "sail", start_seconds=60)


@pytest.fixture
def write(warehouse):
    def write(frame, ref="flights@2013-01-01", **more):
        return write_instance(frame, warehouse, ref=ref, uuid=str(uuid.uuid4()), job_run=str(uuid.uuid4()), **more)

    return write


@pytest.fixture
def home(spark_home):
    """The home of the shared server."""
    return Path(spark_home)
