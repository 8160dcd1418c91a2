"""One shared server for the whole folder, in a home of its own; it is stopped at the end."""

import uuid

import pytest

from databuild_dagster.spark import SparkSettings, open_session, stop_server, write_instance
from databuild_dagster.warehouse import Warehouse


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    yield home
    stop_server(home)


@pytest.fixture(scope="session")
def spark(home):
    spark = open_session(SparkSettings(home=home))
    yield spark
    spark.stop()


@pytest.fixture
def warehouse(tmp_path):
    # A folder that Spark would take for a pattern.
    return Warehouse(str(tmp_path / "ware [house]* {x}"))


@pytest.fixture
def write(warehouse):
    def write(frame, ref="flights@2013-01-01", **more):
        return write_instance(frame, warehouse, ref=ref, uuid=str(uuid.uuid4()), job_run=str(uuid.uuid4()), **more)

    return write
