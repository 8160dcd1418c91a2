"""What a project's module makes for Spark while it is imported, before there is a session."""

import pandas as pd
import pyspark.sql.functions as F
from letters import count_letters
from pyspark.sql import Window
from pyspark.sql.types import IntegerType, LongType


@F.udf(IntegerType())
def letters(word: str) -> int:
    return count_letters(word)


@F.pandas_udf(LongType())
def letters_by_series(words: pd.Series) -> pd.Series:
    return words.map(count_letters)


TWICE = (F.col("id") * 2).alias("twice")
NEWEST_FIRST = F.row_number().over(Window.partitionBy("shop").orderBy(F.desc("id"))).alias("place")
