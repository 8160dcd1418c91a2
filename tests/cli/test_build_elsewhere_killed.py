"""kill -9 of a builder, while its Spark writes into a bucket itself: its files are never read, and are removed.

The bucket holds one request back, so that the process dies exactly there; the request is answered afterwards."""

import os

import pytest

from tests.support.object_store import ENVIRONMENT, Hold, S3Server
from tests.support.project import Project
from tests.support.spark_elsewhere import Elsewhere

from .sources import of_spark

pytestmark = [
    pytest.mark.long("a builder is killed"),
    pytest.mark.extended,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("closed_sessions"),
]

DEFINITIONS = of_spark("""
@databuild_asset(code_version="1")
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3)


defs = build_definitions([numbers], spark=DatabuildSpark(mode="remote", url={url!r}), warehouse={warehouse!r})
""")


def killed_at(project: Project, s3: S3Server, path: str, end: str = "") -> Hold:
    """A builder of `numbers` is killed while the bucket holds its request back; not answered yet."""
    hold = s3.hold("PUT", path, end)
    environment = {name: os.environ[name] for name in (*ENVIRONMENT, "AWS_ENDPOINT_URL", "DATABUILD_CACHE_DIR")}
    builder = project.start("build", "numbers", **environment)
    assert hold.reached.wait(300), builder.poll()
    builder.kill()
    builder.wait()
    return hold


def attempts(s3: S3Server, bucket: str, prefix: str = "warehouse") -> set[str]:
    """The folders of attempts in the warehouse at a prefix."""
    keys = [key.split("/") for key in s3.keys(bucket)]
    return {parts[3] for parts in keys if parts[0] == prefix and parts[3:] and parts[3].startswith("attempt=")}


@pytest.mark.parametrize(
    ("path", "is_stored"),
    [
        pytest.param("/numbers/data/attempt=", True, id="late write"),
        pytest.param("/numbers/data/instance=", False, id="before the manifest"),
        pytest.param("/numbers/data/instance=", True, id="after the manifest"),
    ],
)
@pytest.mark.feature("clean")
def test_a_killed_builder_leaves_nothing_that_is_read_or_stays(
    project: Project, running_sail: Elsewhere, s3: S3Server, bucket: str, path: str, is_stored: bool
) -> None:
    project.define(DEFINITIONS.format(url=running_sail.url, warehouse=f"s3://{bucket}/warehouse"))
    hold = killed_at(project, s3, path)
    if "attempt=" not in path:
        if not is_stored:
            s3.refusals.append((500, "InternalError", path))
        hold.answer()

    project.build("numbers")

    if "attempt=" in path:
        hold.answer()
        assert len(attempts(s3, bucket)) == 2, "Spark wrote after its launch was lost and another one had published"
        (left,) = project.ask("gc", "--leftovers")["leftovers"]
        assert "an attempt of job run" in left["why"]
        assert not left["orphan"]
    states = [run.state for run in project.queries.job_runs.newest()]
    is_adopted = "instance=" in path and is_stored
    assert sorted(states) == (["Succeeded"] if is_adopted else ["Lost", "Succeeded"])
    assert len(project.ask("read", "numbers")) == 3
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
    project.ask("gc", "--leftovers", "--yes")
    (attempt,) = attempts(s3, bucket)
    (file, *_) = project.ask("show", "numbers")["canonical"]["files"]
    assert f"/{attempt}/" in file
    assert len(project.ask("read", "numbers")) == 3
