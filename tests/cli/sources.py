"""What definitions begin with, and definitions that tests of several files build."""


def of_pandas(text: str) -> str:
    """Definitions whose assets return pandas frames."""
    return f"{PANDAS}{text}"


def of_spark(text: str) -> str:
    """Definitions whose assets return frames of Spark."""
    return f"{SPARK}{text}"


def of_held(text: str) -> str:
    """Definitions of which `hold(name)` waits while the file `hold-<name>` is there, and says so by another.

    A test gives up before this does.
    """
    return of_pandas(f"{HOLD}{text}")


PANDAS = """
from pathlib import Path

import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, Transient, build_definitions, databuild_asset

HERE = Path(__file__).parent
"""

SPARK = """
from pathlib import Path

import dagster as dg
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from databuild_dagster import EMPTY, BuildContext, DatabuildSpark, build_definitions, databuild_asset

HERE = Path(__file__).parent
"""

HOLD = """
import threading

def hold(name):
    (HERE / f"held-{name}").touch()
    for _ in range(30_000):
        if not (HERE / f"hold-{name}").exists():
            return
        threading.Event().wait(0.01)
    raise TimeoutError(f"hold-{name} was not removed within 300 s")
"""

#: `zone@south` needs a key that `shop` has not any more, so it is set aside.
MAPPING_OF_A_REMOVED_KEY = of_pandas("""
mapping = dg.StaticPartitionMapping({"a": "north", "b": "south", "zz": "south"})

@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def shop() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1.0]})

@databuild_asset(
    partitions_def=dg.StaticPartitionsDefinition(["north", "south"]),
    ins={"shop": dg.AssetIn("shop", partition_mapping=mapping)},
)
def zone(shop: pd.DataFrame) -> pd.DataFrame:
    return shop

defs = build_definitions([shop, zone])
""")
