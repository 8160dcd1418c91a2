import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penguins.research.assets import birds
from penguins.research.definitions import defs
from penguins.research.operations import missing_values, summed


def test_the_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


def test_a_colony_has_the_birds_of_its_island_with_what_their_blood_says(databuild_spark: SparkSession) -> None:
    season = [("a", "Biscoe"), ("b", "Dream"), ("no blood", "Dream")]
    rows = [(colony, *bird) for colony in ("Biscoe|2007", "Dream|2007") for bird in season]
    observations = databuild_spark.createDataFrame(rows, "partition_key string, sample string, island string")
    blood = [(colony, sample, "female") for colony in ("Biscoe|2007", "Dream|2007") for sample in ("a", "b")]
    lab_results = databuild_spark.createDataFrame(blood, "partition_key string, sample string, sex string")

    found = birds(observations, lab_results).orderBy("sample").collect()

    assert [(row.partition_key, row.sample, row.sex) for row in found] == [
        ("Biscoe|2007", "a", "female"),
        ("Dream|2007", "b", "female"),
        ("Dream|2007", "no blood", None),
    ]


def test_missing_values_are_counted_and_summed() -> None:
    biscoe = missing_values(pd.DataFrame({"sex": ["female", None], "body_mass_g": [3750.0, 3800.0]}), ["sex"])
    dream = missing_values(pd.DataFrame({"sex": ["male"]}), ["sex"])

    assert summed([biscoe, dream]) == {"birds": 3, "sex": 1}


def test_a_column_that_no_bird_has_is_an_error() -> None:
    with pytest.raises(KeyError, match="wing"):
        missing_values(pd.DataFrame({"sex": ["male"]}), ["wing"])
