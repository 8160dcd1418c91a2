"""`databuild env`, and a branch of a project that is built in an environment."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetKey, DagsterInstance

from databuild_dagster import table
from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.data.home import DB_URL_VARIABLE
from databuild_dagster.data.read_plan import NothingLive
from tests.cli.sources import of_pandas
from tests.support.object_store import S3Server
from tests.support.project import Project
from tests.support.world import worlds

SHOP = of_pandas("""
days = dg.StaticPartitionsDefinition(["mon", "tue"])

@databuild_asset(partitions_def=days)
def raw(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [1, 2, 3]})

def wash(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.n > 1]

@databuild_asset(partitions_def=days)
def clean(raw: pd.DataFrame) -> pd.DataFrame:
    return wash(raw)

@databuild_asset(partitions_def=days)
def other(raw: pd.DataFrame) -> pd.DataFrame:
    return raw

@databuild_asset(partitions_def=days)
def report(clean: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([clean, other])

@databuild_asset(partitions_def=days)
def side(other: pd.DataFrame) -> pd.DataFrame:
    return other

defs = build_definitions([raw, clean, other, report, side], warehouse=HERE / "production")
""")
#: An asset whose partitions are in Dagster's storage.
OF_SHOPS = """
@databuild_asset(partitions_def=dg.DynamicPartitionsDefinition(name="shops"))
def staff(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})

defs = build_definitions([raw, clean, other, report, side, staff], warehouse=HERE / "production")
"""
MON = ("report@mon", "side@mon")


@pytest.fixture
def shop(project: Project) -> Project:
    """Five assets, built for a day in the base."""
    project.define(SHOP)
    project.build(*MON)
    return project


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


def uuids(project: Project, *options: str) -> dict[str, str]:
    refs = ("raw@mon", "clean@mon", "other@mon", *MON)
    return {ref: str(project.ask(*options, "show", ref)["canonical"]["uuid"]) for ref in refs}


def test_a_branch_builds_the_cone_of_its_change_and_borrows_the_rest(shop: Project) -> None:
    before, stored = uuids(shop), files(shop.folder / "production")
    opened = shop.ask("env", "create", "branch")
    shop.define(SHOP.replace("frame.n > 1", "frame.n > 2"))

    plan = {one["ref"]: (one["action"], one["reason"]) for one in shop.ask("--env", "branch", "plan", *MON)["jobs"]}
    shop.ask("--env", "branch", "build", *MON)

    assert plan["clean@mon"] == ("build", "wash in definitions.py changed")
    assert plan["report@mon"] == ("build", "its input clean@mon is built here")
    assert plan["side@mon"][0] == "reuse"
    after = uuids(shop, "--env", "branch")
    assert {ref for ref in before if before[ref] != after[ref]} == {"clean@mon", "report@mon"}
    assert files(shop.folder / "production") == stored, "nothing is written beside the base's data"
    assert {path.split("/")[0] for path in files(Path(opened["root"]))} == {"clean", "report"}
    assert uuids(shop) == before, "the base is as it was"
    assert len(shop.ask("--env", "branch", "read", "report@mon")) == 4
    shown = shop.ask("env", "show", "branch")
    assert (shown["borrowed"], shown["built"]) == (3, 2)
    for environment in ((), ("--env", "branch")):
        assert shop.call(*environment, "log", "check", "--deep").code == 0


def test_what_a_branch_built_is_compared_with_its_base(shop: Project) -> None:
    shop.ask("env", "create", "branch")
    assert "nothing to compare is built" in shop.call("env", "diff", "branch").out
    shop.define(SHOP.replace("frame.n > 1", "frame.n > 2"))
    shop.ask("--env", "branch", "build", *MON)

    found = shop.ask("env", "diff", "branch", "--key", "n")
    text = shop.call("--env", "branch", "env", "diff", "clean@*").out
    comment = shop.call("--env", "branch", "env", "diff", "branch", "--markdown").out

    assert [(of["dataset"], of["counts"]) for of in found["datasets"]] == [
        ("clean", {"different": 1}),
        ("report", {"different": 1}),
    ]
    assert (found["datasets"][0]["removed"], found["datasets"][0]["consumers"]) == (1, ["report"])
    assert ("clean.n" in text, "report.n" in text) == (True, False)
    assert "Not built in the environment: 1 selected partition." in text
    assert "| clean | 1 different | 2 | 1 |  | report |" in comment
    assert "| report@mon | different | 5 | 4 |" in comment
    for words in (("clean@mon",), (), ("branch", "wrong"), ("branch", "--key", "wrong")):
        assert shop.call("env", "diff", *words).code == 2, words


def test_a_plan_borrows_by_the_code_as_it_is_now(shop: Project) -> None:
    shop.ask("env", "create", "branch")
    shop.ask("--env", "branch", "plan", "raw@mon")
    shop.define(SHOP.replace("frame.n > 1", "frame.n > 2"))

    plan = {one["ref"]: one["action"] for one in shop.ask("--env", "branch", "plan", *MON)["jobs"]}

    assert (plan["clean@mon"], plan["report@mon"], plan["side@mon"]) == ("build", "build", "reuse")


def test_environments_are_listed_and_removed(shop: Project) -> None:
    shop.ask("env", "create", "branch")
    listed = shop.ask("env", "list")
    assert [(one["name"], one["borrowed"], one["built"]) for one in listed] == [("branch", 0, 0)]
    assert "until" in shop.call("env", "show", DATABUILD_ENV="branch").out
    assert shop.call("--env", "branch", "env", "create", "further").code == 2
    for name in ("", f"../{shop.home.name}.environments/branch"):
        assert shop.call("--env", name, "status").code == 2

    with shop.recording_nothing():
        shop.ask("env", "create", "brief", "--unpinned")
    assert [one["is_pinned"] for one in shop.ask("env", "list")] == [True, False]
    assert "It is not pinned" in shop.call("env", "show", "brief").out

    shop.ask("env", "drop", "branch")
    shop.ask("env", "drop", "brief")

    assert shop.ask("env", "list") == []
    gone = shop.call("status", DATABUILD_ENV="branch")
    assert (gone.code, "has no environment branch" in gone.err) == (2, True)


def test_a_take_over_names_the_environments_that_have_to_be_attached(project: Project) -> None:
    project.define(SHOP)
    project.build("raw@mon")
    project.ask("env", "create", "branch")

    taken = project.ask("log", "take-over", "--yes")
    refused = project.call("--env", "branch", "plan", "raw@mon")
    attached = project.ask("env", "attach", "branch")

    assert taken["environments"] == ["branch"]
    assert (refused.code, "databuild env attach branch" in refused.err) == (2, True)
    assert attached["state"] == "open"
    assert [job["action"] for job in project.ask("--env", "branch", "plan", "raw@mon")["jobs"]] == ["reuse"]


def test_a_base_that_is_away_ends_a_build_at_once(shop: Project) -> None:
    opened = shop.ask("env", "create", "branch")
    shop.ask("--env", "branch", "plan", *MON)
    shop.home.rename(shop.home.with_name("elsewhere"))

    done = shop.call("build", "side@tue", DAGSTER_HOME=opened["home"])

    assert (done.code, "no build state is in" in done.err) == (75, True)
    compared = shop.call("env", "diff", DAGSTER_HOME=opened["home"])
    assert (compared.code, str(shop.home) in compared.err, "Traceback" in compared.err) == (2, True, False)
    shop.home.with_name("elsewhere").rename(shop.home)


def test_an_environment_follows_its_base_and_is_refreshed(shop: Project, caplog: pytest.LogCaptureFixture) -> None:
    opened = shop.ask("env", "create", "branch")
    shop.ask("--env", "branch", "plan", *MON)
    shop.ask("taint", "clean@mon", "--reason", "wrong rates")

    read = shop.call("--env", "branch", "read", "clean@mon")
    assert (read.code, "tainted in the base (wrong rates)" in read.err) == (2, True)
    assert len(shop.ask("--env", "branch", "read", "clean@mon", "--allow-tainted")) == 2
    with pytest.raises(NothingLive):
        table("clean", format="arrow", home=opened["home"])
    shop.ask("--env", "branch", "plan", "side@mon")
    assert "tainted by the base: wrong rates" in shop.call("--env", "branch", "history", "clean@mon").out
    shop.build("clean@mon")

    refreshed = shop.call("env", "refresh", DATABUILD_ENV="branch")

    assert (refreshed.code, "1 partition borrowed again" in refreshed.out) == (0, True), refreshed.out
    assert uuids(shop, "--env", "branch") == uuids(shop)
    assert shop.ask("env", "refresh", "branch")["borrowed"] == []
    shop.home.rename(shop.home.with_name("elsewhere"))
    try:
        read = shop.call("read", "report@mon", DAGSTER_HOME=opened["home"])
    finally:
        shop.home.with_name("elsewhere").rename(shop.home)
    assert read.code == 0
    assert caplog.text.count("does not answer") == 1


def test_a_build_shows_in_dagster_what_it_and_a_plan_borrowed(shop: Project) -> None:
    opened = shop.ask("env", "create", "branch")
    shop.ask("--env", "branch", "plan", "side@mon")

    shop.ask("--env", "branch", "build", "report@mon")

    with open_instance(Path(opened["home"])) as instance:
        shown = {
            asset: instance.get_materialized_partitions(dg.AssetKey(asset))
            for asset in ("raw", "clean", "other", "side")
        }
    assert all(keys == {"mon"} for keys in shown.values()), shown


def test_what_a_branch_built_becomes_the_data_of_the_base_and_is_not_built_again(shop: Project) -> None:
    shop.ask("env", "create", "branch")
    shop.define(SHOP.replace("frame.n > 1", "frame.n > 2"))
    shop.ask("--env", "branch", "build", *MON)
    built = uuids(shop, "--env", "branch")

    refused = shop.call("env", "promote", "branch", "--dry-run")
    assert (refused.code, "its code is not the code that the base has registered" in refused.out) == (1, True)
    assert shop.call("env", "promote", "branch").code == 2
    shop.ask("env", "create", "next")
    assert "environment next" in shop.call("--env", "branch", "env", "promote", "next").err
    # The deploy of the merged branch.
    shop.ask("plan", *MON)
    shop.build("raw@mon")
    rehearsed = shop.ask("env", "promote", "branch", "--dry-run")
    done = shop.ask("--env", "branch", "env", "promote")

    assert [move["ref"] for move in done["moved"]] == ["clean@mon", "report@mon"]
    assert {**done, "seq": None} == rehearsed
    assert uuids(shop) == built
    with DagsterInstance.from_config(str(shop.home)) as instance:
        event = instance.get_latest_materialization_event(AssetKey("report"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.description == "Built in the environment branch, and promoted."
    assert {one["action"] for one in shop.ask("plan", *MON)["jobs"]} == {"reuse"}
    assert shop.build(*MON)["job_runs"]["succeeded"] == 0
    shop.ask("env", "drop", "branch")
    assert len(shop.ask("read", "report@mon")) == 4
    assert shop.call("log", "check", "--deep").code == 0
    revert = ("revert", "--event", str(done["seq"]))
    assert "2 refs would go back. Nothing was done." in shop.call(*revert, "--dry-run").out
    reverted = shop.ask(*revert, "--reason", "wrong rates")
    assert [one["uuid"] for one in reverted["reverted"]] == [move["before"] for move in done["moved"]]
    assert len(shop.ask("read", "report@mon")) == 5
    assert shop.call(*revert, "--dry-run").code == 1


@pytest.mark.databases("postgres")
@pytest.mark.parametrize(
    "place", ["variable", pytest.param("settings", marks=pytest.mark.long("Dagster makes its tables"))]
)
def test_a_branch_is_built_beside_a_base_in_postgresql(
    project: Project, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    url = worlds.new_url()
    if place == "variable":
        monkeypatch.setenv(DB_URL_VARIABLE, url)
    else:
        monkeypatch.setenv("SHOP_URL", url.replace("+psycopg:", "+psycopg2:"))
        (project.home / "dagster.yaml").write_text("storage: {postgres: {postgres_url: {env: SHOP_URL}}}\n")
    with open_instance(project.home) as instance:
        instance.add_dynamic_partitions("shops", ["centre"])
    shop = SHOP + OF_SHOPS
    project.define(shop)
    project.build(*MON)
    before = uuids(project)
    opened = project.ask("env", "create", "branch")
    project.define(shop.replace("frame.n > 1", "frame.n > 2"))

    plan = {one["ref"]: one["action"] for one in project.ask("--env", "branch", "plan", *MON)["jobs"]}
    project.ask("--env", "branch", "build", *MON, "staff@centre")

    assert (plan["clean@mon"], plan["report@mon"], plan["side@mon"]) == ("build", "build", "reuse")
    assert Path(opened["home"], "databuild.db").exists()
    assert not (project.home / "databuild.db").exists()
    after = uuids(project, "--env", "branch")
    assert {ref for ref in before if before[ref] != after[ref]} == {"clean@mon", "report@mon"}
    assert uuids(project) == before
    assert len(project.ask("--env", "branch", "read", "report@mon")) == 4
    (shown,) = project.ask("env", "list")
    assert (shown["borrowed"], shown["built"]) == (3, 3)
    compared = project.ask("env", "diff", "branch")
    assert [one["dataset"] for one in compared["datasets"]] == ["clean", "report", "staff"]
    project.build("--rebuild", "side@mon")
    gc = ("gc", "--keep", "0", "--older-than", "none", "--yes")
    stored = files(project.folder / "production")
    project.ask(*gc)
    assert files(project.folder / "production") == stored, "the environment may read it"
    project.ask("env", "drop", "branch")
    project.ask(*gc)
    assert files(project.folder / "production") < stored
    assert project.ask("env", "list") == []


def test_a_branch_is_built_and_promoted_in_the_bucket_of_its_base(project: Project, s3: S3Server, bucket: str) -> None:
    in_bucket = SHOP.replace('HERE / "production"', f'"s3://{bucket}/production"')
    project.define(in_bucket)
    project.build(*MON)
    before = set(s3.keys(bucket))
    project.ask("env", "create", "branch", "--root", f"s3://{bucket}/branches/branch")
    project.define(in_bucket.replace("frame.n > 1", "frame.n > 2"))

    project.ask("--env", "branch", "build", *MON)

    written = {key for key in s3.keys(bucket) if key.endswith(".parquet")} - before
    assert {key.split("/")[2] for key in written if key.startswith("branches/branch/")} == {"clean", "report"}
    assert len(written) == 2
    assert len(project.ask("--env", "branch", "read", "report@mon")) == 4
    assert len(project.ask("--env", "branch", "read", "side@mon")) == 3
    # The deploy of the merged branch.
    project.build("raw@mon")
    project.ask("env", "promote", "branch")
    project.ask("env", "drop", "branch")
    assert written <= set(s3.keys(bucket))
    assert len(project.ask("read", "report@mon")) == 4
    assert project.call("log", "check", "--deep").code == 0
    project.build("--rebuild", "clean@mon", "report@mon")
    project.ask("gc", "--keep", "0", "--older-than", "none", "--yes")
    assert not written & set(s3.keys(bucket)), "the base owns the root"
