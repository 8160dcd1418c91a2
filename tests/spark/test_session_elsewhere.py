"""A Spark of others that answers and does not work with the PySpark here."""

import subprocess
import sys

import pyspark
import pytest

from databuild_dagster.spark.errors import SparkRefuses
from databuild_dagster.spark.session import open_session
from tests.support.spark_elsewhere import start_sail


@pytest.mark.long("it starts a server that knows another PySpark")
def test_a_server_that_refuses_this_version_is_one_sentence(running_s3, tmp_path):
    server = start_sail(
        running_s3, [tmp_path], tmp_path.parent / "sail.log", program="-c 'from pysail.cli import main; main()'"
    )

    with pytest.raises(SparkRefuses) as refused:
        open_session(server.settings())

    server.process.kill()
    server.process.wait()
    assert str(refused.value) == (
        f"The Spark of {server.url} runs no job: SparkRuntimeException: invalid argument: unsupported PySpark version: "
        f"{pyspark.__version__}. Check that it runs, its token, and that its version fits the PySpark here, which is "
        f"{pyspark.__version__}."
    )


#: In a process of its own, because PySpark's functions ask the default session of theirs.
_CLOSED = """
import sys
from databuild_dagster.spark.failures import is_lost
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings

settings = SparkSettings(mode="remote", url=sys.argv[1])
session, other = open_session(settings), open_session(settings)
other.client._session_id = session.session_id
try:
    other.client.release_session()
except Exception as error:
    assert "session identifier" in str(error), error
try:
    session.range(3).collect()
except Exception as error:
    print(is_lost(error), error)
"""


def test_a_session_that_its_server_has_closed_is_lost(running_sail):
    done = subprocess.run(
        [sys.executable, "-c", _CLOSED, running_sail.url], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.stdout.startswith("True "), done
    assert "is not running" in done.stdout
