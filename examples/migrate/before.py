"""A project for dagster-pyspark, before and after docs/how-to/migrate-a-project.md."""

from pathlib import Path

import dagster as dg
import pandas as pd
import pyspark.sql.functions as F
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession

daily = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-04")


class ParquetFiles(dg.ConfigurableIOManager):
    pyspark: dg.ResourceDependency[PySparkResource]
    folder: str = "data"

    def path(self, context: dg.InputContext | dg.OutputContext) -> str:
        return str(Path(self.folder, *context.asset_key.path, *context.asset_partition_keys))

    def handle_output(self, context: dg.OutputContext, obj: DataFrame) -> None:
        obj.write.mode("overwrite").parquet(self.path(context))

    def load_input(self, context: dg.InputContext) -> DataFrame:
        return self.pyspark.spark_session.read.parquet(self.path(context))


class HackerNews(dg.ConfigurableResource):
    """The items of a day; the real one asks the site."""

    def items(self, day: str) -> list[tuple[int, str, int, str]]:
        return [(1, "story", 0, "ann"), (2, "comment", 1, "bob"), (3, "comment", 1, "cid"), (4, "comment", 1, "bob")]


@dg.asset(
    partitions_def=daily,
    compute_kind="python",
    retry_policy=dg.RetryPolicy(max_retries=3),
    io_manager_key="parquet",
)
def items(context: dg.AssetExecutionContext, hacker_news: HackerNews, pyspark: PySparkResource) -> DataFrame:
    day = context.asset_partition_key_for_output()
    columns = "id long, type string, parent long, author string"
    return pyspark.spark_session.createDataFrame(hacker_news.items(day), columns)


@dg.multi_asset(
    outs={
        "stories": dg.AssetOut(io_manager_key="parquet"),
        "comments": dg.AssetOut(io_manager_key="parquet"),
    },
    partitions_def=daily,
)
def by_type(items: DataFrame) -> tuple[DataFrame, DataFrame]:
    return items.filter("type = 'story'"), items.filter("type = 'comment'")


@dg.asset(partitions_def=daily, io_manager_key="parquet")
def comment_stories(
    stories,
    comments: DataFrame,
):
    stories = stories.select(F.col("id").alias("parent"), F.col("author").alias("story_author"))
    yield dg.Output(comments.join(stories, "parent"), metadata={"source": "hacker news"})


@dg.asset(io_manager_key="parquet")
def trusted_authors() -> DataFrame:
    spark = SparkSession.builder.getOrCreate()
    return spark.createDataFrame([("bob",)], "author string")


@dg.asset(partitions_def=daily, io_manager_key="parquet")
def top_commenters(comment_stories: DataFrame, trusted_authors: DataFrame) -> pd.DataFrame | None:
    trusted = comment_stories.join(trusted_authors, "author")
    if trusted.isEmpty():
        return None
    return trusted.groupBy("author").count().toPandas()


@dg.asset(partitions_def=daily)
def report(context: dg.AssetExecutionContext, top_commenters) -> None:
    Path(f"report-{context.partition_key}.csv").write_text(top_commenters.to_csv())


@dg.asset_check(asset=top_commenters)
def counts_are_positive(top_commenters: pd.DataFrame) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=bool((top_commenters["count"] > 0).all()))


every_day = dg.define_asset_job("every_day", "*report", op_retry_policy=dg.RetryPolicy(max_retries=2))

pyspark = LazyPySparkResource(spark_config={"spark.sql.shuffle.partitions": "2"})

defs = dg.Definitions(
    assets=[items, by_type, comment_stories, trusted_authors, top_commenters, report],
    asset_checks=[counts_are_positive],
    jobs=[every_day],
    schedules=[dg.build_schedule_from_partitioned_job(every_day)],
    resources={
        "hacker_news": HackerNews(),
        "pyspark": pyspark,
        "parquet": ParquetFiles(pyspark=pyspark),
    },
)
