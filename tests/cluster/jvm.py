"""Spark's Connect server on a JVM, and the gateway by which it reaches the bucket (`tests.support.hadoop_bucket`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.hadoop_bucket import hadoop_bucket
from tests.support.jvm_options import options_of_young_jvms
from tests.support.object_store import S3Server

from .hosts import HOME
from .services import BUCKET


def main() -> int:
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    with hadoop_bucket(S3Server(os.environ["AWS_ENDPOINT_URL"]), BUCKET, HOME) as config:
        java = f"{config['spark.driver.extraJavaOptions']} {options_of_young_jvms()}"
        settings = {
            **config,
            "spark.driver.extraJavaOptions": java,
            "spark.connect.grpc.binding.address": "0.0.0.0",
            "spark.connect.grpc.binding.port": "15002",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2,4]", "--class", server]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        return subprocess.run([*command, "spark-internal"], env={**os.environ, "SPARK_HOME": str(home)}).returncode


if __name__ == "__main__":
    sys.exit(main())
