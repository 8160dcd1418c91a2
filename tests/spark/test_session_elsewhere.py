"""A Spark of others that answers and does not work with the PySpark here."""

import pyspark
import pytest

from databuild_dagster.spark.errors import SparkRefuses
from databuild_dagster.spark.session import open_session
from tests.support.spark_elsewhere import start_sail

pytestmark = pytest.mark.long


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
