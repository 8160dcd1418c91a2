"""Sail as a process: `python sail_process.py spark server --port …`.

Sail 0.7 refuses a PySpark newer than 4.2 beside it. It needs that one for Python functions only, whose format has changed; so
the version is enough for every test without them."""

import pyspark
import pyspark.version

pyspark.__version__ = pyspark.version.__version__ = "4.2.0"

if __name__ == "__main__":
    from pysail.cli import main

    main()
