"""Sail as a process beside any PySpark: `python -m databuild_dagster.spark.sail_server spark server --port …`.

Sail 0.7 serves nothing beside a PySpark newer than 4.2, whose format of Python functions it does not know. Everything else it
serves all the same, so it is given the version that it knows; a Python function of a newer PySpark ends with an error."""

import re

import pyspark
import pyspark.version

#: The newest PySpark that Sail 0.7 knows.
KNOWN = (4, 2)


def main() -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found > KNOWN:
        pyspark.__version__ = pyspark.version.__version__ = ".".join(map(str, (*KNOWN, 0)))
    from pysail.cli import main as sail

    sail()


if __name__ == "__main__":
    main()
