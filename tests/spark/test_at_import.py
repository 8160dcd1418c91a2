"""Modules of a project make columns and functions before a session: each case is a process, because PySpark keeps its mode."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from databuild_dagster.spark.at_import import _read_type
from databuild_dagster.spark.errors import ReturnTypeTooEarly
from databuild_dagster.spark.session import _MARKS_OF_A_CLIENT

COLUMNS = """
import pandas as pd
from pyspark.sql import Window, functions as F
from pyspark.sql.types import IntegerType, LongType
from shop.helpers import triple

@F.udf(IntegerType())
def plus(n):
    return triple(n) + 1

@F.pandas_udf(LongType())
def by_series(n: pd.Series) -> pd.Series:
    return triple(n)
"""
MADE_EARLY = """
DOUBLED = (F.col("n") * 2).alias("doubled")
BY_HALF = Window.partitionBy(F.col("n") % 2).orderBy(F.desc("n"))
BEFORE = F.sum("n").over(BY_HALF).alias("before")
"""
HELPERS = "def triple(n):\n    return n * 3\n"

BEGIN = """
import sys
sys.path.insert(0, sys.argv[1])
import databuild_dagster.bindings.reading.spark_resource
from databuild_dagster.spark.failures import explain_failure
from databuild_dagster.spark.project_modules import send_project_modules
from databuild_dagster.spark.session import has_workers_elsewhere, open_session
from databuild_dagster.spark.settings import SparkSettings
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "helpers.py").write_text(HELPERS)
    (tmp_path / "shop" / "columns.py").write_text(COLUMNS)
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def printed(project: Path, program: str, *arguments: str) -> list[str]:
    """What a program prints whose working folder is not the project's."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(project), *arguments],
        cwd=project / "elsewhere",
        # PySpark leaves its marks of a client in the environment of a process that had a session.
        env={name: value for name, value in os.environ.items() if name not in _MARKS_OF_A_CLIENT},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.long("PySpark keeps its mode for a whole process")
def test_a_client_takes_what_a_module_made_before_its_session(project: Path, spark_home: Path) -> None:
    """The server of a home, and the same as a remote one: PySpark knows both by url."""
    (project / "shop" / "columns.py").write_text(COLUMNS + MADE_EARLY)

    lines = printed(
        project,
        """
from databuild_dagster.spark.server import use_server
from shop import columns
shared = SparkSettings(home=sys.argv[2])
for settings in (shared, SparkSettings(mode="remote", url=use_server(shared).url)):
    spark = open_session(settings)
    assert has_workers_elsewhere(spark)
    send_project_modules()
    n = spark.range(4).toDF("n")
    everything = n.select("n", columns.plus("n"), columns.by_series("n"), columns.DOUBLED)
    print([tuple(row) for row in everything.sort("n").collect()])
    print([tuple(row) for row in n.select("n", columns.BEFORE).sort("n").collect()])
    spark.stop()
""",
        str(spark_home),
    )

    rows = ["[(0, 1, 0, 0), (1, 4, 3, 2), (2, 7, 6, 4), (3, 10, 9, 6)]", "[(0, 2), (1, 4), (2, 2), (3, 3)]"]
    assert lines == rows * 2


@pytest.mark.long("PySpark keeps its mode for a whole process")
def test_a_jvm_of_the_process_takes_early_functions_and_no_early_columns(project: Path) -> None:
    (project / "shop" / "columns.py").write_text(COLUMNS + MADE_EARLY)

    lines = printed(
        project,
        """
from pyspark.sql import functions as F
from shop import columns
spark = open_session(SparkSettings(mode="classic", home=sys.argv[1]))
assert not has_workers_elsewhere(spark)
n = spark.range(3).toDF("n")
print([tuple(row) for row in n.select("n", columns.plus("n"), columns.by_series("n")).sort("n").collect()])
print(columns.plus.asNondeterministic()("n") is not None, spark.udf.register("plus", columns.plus) is not None)
uses = (
    lambda: n.select(columns.DOUBLED),
    lambda: n.where(columns.DOUBLED > 1),
    lambda: n.withColumn("doubled", columns.DOUBLED),
    lambda: n.select(F.sum("n").over(columns.BY_HALF)),
)
for use in uses:
    try:
        use()
    except Exception as error:
        print(explain_failure(error))
""",
    )

    assert lines[:2] == ["[(0, 1, 0), (1, 4, 3), (2, 7, 6)]", "True True"]
    assert len(lines) == 6
    for line in lines[2:]:
        assert line.startswith("A column or window was made while a module was imported, before there was a session")


@pytest.mark.parametrize(
    ("text", "instead"),
    [("int", "IntegerType()"), ("array<int>", "ArrayType(...)"), ("a int, b string", "StructType([...])")],
)
def test_the_words_of_pyspark_before_4_for_the_same_are_known(text: str, instead: str) -> None:
    """PySpark 3.5 without gRPC, which makes functions for a JVM alone."""

    def decorate(function: object) -> object:
        raise RuntimeError("SparkContext or SparkSession should be created first.")

    function = SimpleNamespace(func=len, _name="length", _returnType=text)

    with pytest.raises(ReturnTypeTooEarly) as refused:
        _read_type(decorate)(function)

    assert refused.value.facts == {"function": "builtins.length", "type": text, "instead": instead}
