"""The example's January, or its first months, as one hand-written script in a new session: `python -m bench.peers.script OUT MONTH…`."""

import sys

from pyspark.sql import SparkSession

from bench.plain_spark import run


def main() -> None:
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    run(spark, sys.argv[1], [int(month) for month in sys.argv[2:]])
    spark.stop()


if __name__ == "__main__":
    main()
