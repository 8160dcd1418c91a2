"""Every shape of asset, built and read by a Spark that writes and reads the warehouse itself (rule 10.9)."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import pandas as pd
import pytest

from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.spark.server import stop_server
from tests.support.project import Project

from ..support.jvm_elsewhere import JVM_BUCKET, JVM_TIMEOUT
from ..support.object_store import S3Server, own_bucket
from ..support.spark_elsewhere import sail_by
from .sources import of_spark

pytestmark = [
    pytest.mark.long("a Spark without our disk writes and reads a bucket itself"),
    pytest.mark.feature("lots"),
    pytest.mark.usefixtures("closed_sessions"),
]

DEFINITIONS = of_spark("""
import pandas as pd

from databuild_dagster import ByFile, ByKey, databuild_multi_asset

days = dg.DailyPartitionsDefinition("2024-01-29", end_date="2024-02-01")
keys = dg.StaticPartitionsDefinition(["a b/c=d%é", "2013-01-01-05:00", "without rows"])


def positive(rows: DataFrame) -> bool:
    return 0 == rows.filter("n < 0").count() < rows.count()


def few(rows: pd.DataFrame) -> bool:
    return 0 < len(rows) < 1000


@databuild_asset(blocking_checks=[positive, few])
def one(spark: SparkSession) -> DataFrame:
    return spark.range(6, numPartitions=3).select(F.col("id").alias("n"), F.concat(F.lit("k"), F.col("id") % 2).alias("k"))


@databuild_asset(blocking_checks=[positive, few])
def by_pandas(one: pd.DataFrame) -> pd.DataFrame:
    return one.assign(at=pd.Timestamp("2024-01-01 12:00"), some=[1.5, None] * 3)


@databuild_asset
def by_both(one: DataFrame, by_pandas: DataFrame) -> DataFrame:
    return one.join(by_pandas.select("n", "at"), "n")


@databuild_asset
def empty() -> DataFrame:
    return EMPTY


@databuild_asset
def no_rows(one: DataFrame) -> DataFrame:
    return one.filter("n > 100")


@databuild_asset
def of_nothing(no_rows: DataFrame, empty: DataFrame) -> DataFrame:
    return no_rows.agg(F.count("n").alias("n"))


@databuild_multi_asset(outs={"low": dg.AssetSpec("low"), "high": dg.AssetSpec("high")})
def halves(one: DataFrame) -> dict:
    return {"low": one.filter("n < 3"), "high": one.filter("n >= 3")}


@databuild_asset(parts=ByFile("one", parts=3), blocking_checks=[positive, few])
def parts_by_file(one: DataFrame) -> DataFrame:
    if (HERE / "fail-parts").exists() and one.filter("n = 0").count():
        raise ValueError("bad day")
    return one.select((F.col("n") * 10).alias("n"))


@databuild_asset(parts=ByKey("one", "k"), blocking_checks=[positive, few])
def parts_by_key(one: DataFrame) -> DataFrame:
    return one.filter("k = 'k0'")


@databuild_asset(parts=ByKey("one", "k"), blocking_checks=[positive, few])
def parts_by_pandas(one: pd.DataFrame) -> pd.DataFrame:
    return one


@databuild_asset(partitions_def=keys, batched=True, blocking_checks=[positive, few])
def batch(context: BuildContext, one: DataFrame) -> DataFrame:
    of_key = [one.withColumn("partition_key", F.lit(key)) for key in context.partition_keys if key != "without rows"]
    return of_key[0].unionByName(of_key[1]) if len(of_key) > 1 else of_key[0]


@databuild_asset(partitions_def=keys, batched=True, blocking_checks=[positive, few])
def batch_by_pandas(batch: pd.DataFrame) -> pd.DataFrame:
    return batch


@databuild_asset(partitions_def=keys, batched=True)
def batch_of_both(batch: DataFrame, batch_by_pandas: DataFrame) -> DataFrame:
    return batch.unionByName(batch_by_pandas)


@databuild_asset
def whole(batch_of_both: DataFrame) -> DataFrame:
    return batch_of_both.agg(F.count("n").alias("n"))


@databuild_asset(blocking_checks=[positive])
def refused(one: DataFrame) -> DataFrame:
    return one.select((F.col("n") - 1).alias("n"))


@databuild_asset(partitions_def=keys, batched=True)
def null_key(one: DataFrame) -> DataFrame:
    return one.select("n", F.lit(None).cast("string").alias("partition_key"))


@databuild_asset(partitions_def=keys, batched=True)
def stray_key(one: DataFrame) -> DataFrame:
    return one.select("n", F.lit("stray").alias("partition_key"))


@databuild_asset(partitions_def=days)
def found() -> pd.DataFrame:
    raise ValueError("its files are there already")


@databuild_asset
def of_found(found: DataFrame) -> DataFrame:
    return found


@databuild_asset(partitions_def=days, batched=True)
def found_by_key(found: DataFrame) -> DataFrame:
    return found


defs = build_definitions(
    [found, of_found, found_by_key, one, by_pandas, by_both, empty, no_rows, of_nothing, halves, parts_by_file, parts_by_key, parts_by_pandas, batch,
     batch_by_pandas, batch_of_both, whole, refused, null_key, stray_key],
    spark=DatabuildSpark(mode="remote", url={url!r}),
    warehouse={warehouse!r},
)
""")

DAYS = ("2024-01-29", "2024-01-30", "2024-01-31")
ODD, ZONED, WITHOUT = "a b/c=d%é", "2013-01-01-05:00", "without rows"
#: Ref to the number of its rows and the sum of its numbers.
SHAPES = {
    "one": (6, 15),
    "by_pandas": (6, 15),
    "by_both": (6, 15),
    "empty": (0, 0),
    "no_rows": (0, 0),
    "of_nothing": (1, 0),
    "low": (3, 3),
    "high": (3, 12),
    "parts_by_file": (6, 150),
    "parts_by_key": (3, 6),
    "parts_by_pandas": (6, 15),
    **{f"{asset}@{key}": (6, 15) for asset in ("batch", "batch_by_pandas") for key in (ODD, ZONED)},
    **{f"batch_of_both@{key}": (12, 30) for key in (ODD, ZONED)},
    **{f"{asset}@{WITHOUT}": (0, 0) for asset in ("batch", "batch_by_pandas", "batch_of_both")},
    "whole": (1, 24),
}


@dataclass(frozen=True)
class Place:
    """A Spark that does not see our disk, and a folder of a bucket, which it sees."""

    url: str
    store: S3Server
    bucket: str
    folder: str

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}/{self.folder}"

    @property
    def warehouse(self) -> str:
        return f"{self.root}/warehouse"

    def urls(self) -> set[str]:
        keys = [f"s3://{self.bucket}/{key}" for key in self.store.keys(self.bucket)]
        return {url for url in keys if url.startswith(f"{self.root}/")}


def place_of(request: pytest.FixtureRequest, name: str) -> Place:
    """The bucket of a JVM is chosen when the JVM starts, so that its tests share one."""
    if name == OF_SEAWEEDFS:
        seaweedfs = request.getfixturevalue("seaweedfs")
        return Place(
            request.getfixturevalue("sail_by_seaweedfs").url, seaweedfs, own_bucket(seaweedfs, request), "tests"
        )
    s3 = request.getfixturevalue("s3")
    if name == OF_A_JVM:
        return Place(request.getfixturevalue("jvm").url, s3, JVM_BUCKET, request.getfixturevalue("tmp_path").name)
    return Place(request.getfixturevalue("running_sail").url, s3, request.getfixturevalue("bucket"), "tests")


A_BUCKET, OF_A_JVM, OF_SEAWEEDFS = "a bucket", "a bucket of a JVM", "a bucket of SeaweedFS"
A_DISK, MODE_SAIL = "a disk that the Spark shares", "mode sail"
#: On one worker, for one JVM: it takes more of the processor than the shapes.
BY_A_JVM = pytest.param(OF_A_JVM, marks=[pytest.mark.xdist_group("a JVM"), JVM_TIMEOUT, pytest.mark.extended])
BUCKETS = [A_BUCKET, BY_A_JVM, pytest.param(OF_SEAWEEDFS, marks=pytest.mark.extended)]
#: A Spark of the home shares its disk as well, so the disk is the layout of most other tests.
PLACES = [*BUCKETS, pytest.param(A_DISK, marks=pytest.mark.extended), MODE_SAIL]


@pytest.fixture(params=BUCKETS)
def place(request) -> Place:
    return place_of(request, request.param)


@pytest.fixture
def elsewhere(project: Project, place: Place) -> Project:
    project.define(definitions(place.url, place.warehouse))
    return project


def definitions(url: str, warehouse: str) -> str:
    return DEFINITIONS.replace("{url!r}", repr(url)).replace("{warehouse!r}", repr(warehouse))


def summed(rows):
    return len(rows), sum(row["n"] for row in rows)


@pytest.fixture(params=PLACES)
def anywhere(request, project: Project, tmp_path) -> Iterator[Project]:
    if request.param not in (A_DISK, MODE_SAIL):
        place = place_of(request, request.param)
        project.define(definitions(place.url, place.warehouse))
        yield project
        return
    if request.param == MODE_SAIL:
        remote = "mode=\"remote\", url=''"
        project.define(definitions("", "").replace(remote, "mode='sail'").replace("warehouse='',", ""))
        yield project
        close_sessions()
        stop_server(project.home)
        return
    with sail_by(request.getfixturevalue("s3"), [], tmp_path / "sail.log") as server:
        project.define(definitions(server.url, str(project.folder / "ware house")))
        yield project
        close_sessions()


def test_every_shape_is_built_and_read(anywhere: Project) -> None:
    anywhere.build(*SHAPES)

    assert {ref: summed(anywhere.ask("read", ref)) for ref in SHAPES} == SHAPES
    assert anywhere.ask("log", "check", "--deep", "--contents")["ok"]


def test_a_refused_shape_fails_alone_and_is_not_read(elsewhere: Project) -> None:
    bad = {"refused": "Check positive of refused", f"null_key@{ODD}": "a null key", f"stray_key@{ODD}": "'stray'"}

    done = elsewhere.call("build", *bad, "one")

    assert done.code == 1
    assert "1 of 4 refs live" in done.out
    for ref, why in bad.items():
        assert why in elsewhere.call("read", ref).err


def test_parts_that_were_done_are_taken_up_from_their_attempts(elsewhere: Project, place) -> None:
    elsewhere.fail("parts")
    assert elsewhere.call("build", "parts_by_file").code == 1
    done = {url for url in place.urls() if "/parts_by_file/data/attempt=" in url and url.endswith(".parquet")}
    elsewhere.fail("parts", yes=False)

    elsewhere.build("parts_by_file", "--retry")

    files = set(elsewhere.ask("show", "parts_by_file")["canonical"]["files"])
    assert (len(done), len(files - done), done <= files) == (2, 1, True)
    assert all("/data/attempt=" in file for file in files)
    assert summed(elsewhere.ask("read", "parts_by_file")) == SHAPES["parts_by_file"]
    assert elsewhere.ask("log", "check", "--deep")["ok"]


def test_an_instance_of_an_attempt_is_validated_indexed_compacted_and_reverted(anywhere: Project) -> None:
    anywhere.build("one", f"batch@{ODD}")
    first = anywhere.ask("show", "one")["canonical"]
    assert first["n_files"] == 3

    for operation in (("validate", "--range", "n=0:5"), ("build_index", "--column", "n"), ("compact",)):
        name, *options = operation
        for asset in ("one", "batch"):
            assert anywhere.call("operation", "run", name, asset, *options, "--local").code == 0
    compacted = anywhere.ask("show", "one")["canonical"]

    assert compacted["n_files"] == 1
    assert summed(anywhere.ask("read", "one")) == summed(anywhere.ask("read", f"batch@{ODD}")) == (6, 15)
    assert anywhere.ask("read", f"batch@{ODD}", "--where", "n = 5") == [{"n": 5, "k": "k1"}]

    anywhere.ask("revert", "one", "--to", first["uuid"])
    assert anywhere.ask("show", "one")["canonical"]["files"] == first["files"]
    assert anywhere.ask("read", "one", "--where", "n = 5") == [{"n": 5, "k": "k1"}]
    anywhere.ask("taint", "one", "--reason", "bad day")
    anywhere.build("one")
    assert set(anywhere.ask("show", "one")["canonical"]["files"]).isdisjoint(first["files"] + compacted["files"])


def test_files_of_another_program_in_a_bucket_are_adopted_and_read_there(elsewhere: Project, place) -> None:
    for number, day in enumerate(DAYS):
        file = BytesIO()
        pd.DataFrame({"n": [number, number]}).to_parquet(file)
        key = f"{place.folder}/outside/day={day}/a b.parquet"
        place.store.client().put_object(Bucket=place.bucket, Key=key, Body=file.getvalue())

    adopted = elsewhere.call("adopt", "found", "--files", f"{place.root}/outside/day={{partition_key}}/*.parquet")
    assert adopted.code == 0, adopted
    elsewhere.build("of_found", *(f"found_by_key@{day}" for day in DAYS))

    assert summed(elsewhere.ask("read", "of_found")) == (6, 6)
    assert [summed(elsewhere.ask("read", f"found_by_key@{day}")) for day in DAYS] == [(2, 0), (2, 2), (2, 4)]
