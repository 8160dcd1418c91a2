"""`databuild adopt`: what exists already becomes live where it lies, or one sentence says why not and nothing is recorded."""

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster.model.events import LotArrived
from tests.support.project import DEFINITIONS, Done, Project

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

DAYS = ["2024-01-29", "2024-01-30", "2024-01-31"]
PATTERN = "outside/day={partition_key}/*.parquet"

MORE = """
by_region = dg.MultiPartitionsDefinition({"day": daily, "region": dg.StaticPartitionsDefinition(["eu", "u/s"])})
hourly = dg.HourlyPartitionsDefinition("2024-01-29-00:00", end_date="2024-01-29-03:00")


@databuild_asset(partitions_def=by_region)
def sales() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset(partitions_def=hourly)
def clicks() -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset
def airlines() -> pd.DataFrame:
    return pd.DataFrame({"carrier": ["AA"]})


@dg.asset
def plain() -> None: ...


defs = build_definitions([orders, revenue, sales, clicks, airlines, plain, dg.AssetSpec("declared")])
"""


class Outside:
    """Files of another program, beside the project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "outside"

    def write(self, path: str, *amounts: float, **columns: object) -> Path:
        """`path` is below the folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        table = {"day": [file.parent.name.removeprefix("day=")] * len(amounts), "amount": list(amounts), **columns}
        pd.DataFrame(table).to_parquet(file)
        return file

    def day(self, day: str, *amounts: float, name: str = "a.parquet", **columns: object) -> Path:
        return self.write(f"day={day}/{name}", *amounts, **columns)

    def adopt(self, *arguments: str, asset: str = "orders", files: str = PATTERN) -> Done:
        return self.project.call("adopt", asset, "--files", files, *arguments)

    def refused(self, *arguments: str, asset: str = "orders", files: str = PATTERN) -> str:
        """The one line of a refusal; nothing is recorded, and no manifest is left."""
        before = self.arrived(), self.manifests()
        done = self.adopt(*arguments, asset=asset, files=files)
        assert done.code == 2, done
        assert (self.arrived(), self.manifests()) == before
        (line,) = done.err.splitlines()
        return line

    def arrived(self) -> list[list[str]]:
        """The refs of each event of arrivals."""
        facts = [event.fact for event in self.project.queries.events(0)]
        return [[arrival.ref for arrival in fact.arrivals] for fact in facts if isinstance(fact, LotArrived)]

    def manifests(self) -> list[Path]:
        return sorted(self.project.home.rglob("manifest.json"))

    def states(self, asset: str = "orders") -> dict[str, str]:
        return {
            partition["ref"].partition("@")[2]: partition["state"]
            for partition in self.project.ask("partitions", asset)
        }


@pytest.fixture
def outside(project: Project) -> Iterator[Outside]:
    project.define(DEFINITIONS + MORE)
    yield Outside(project)
    assert project.is_sound()


@pytest.fixture
def no_files(shared_project: Project) -> Outside:
    """No files and nothing recorded, for tests that are refused."""
    shared_project.define(DEFINITIONS + MORE)
    return Outside(shared_project)


def test_partitions_that_have_files_are_live_and_the_others_are_named(outside):
    """Rule 4.2: one command, one event."""
    outside.day(DAYS[0], 1.0, 2.0)
    outside.day(DAYS[1], 3.0)
    outside.day(DAYS[1], 4.0, name="b.parquet")

    done = outside.adopt()

    assert done.code == 0, done
    assert "2 partitions live from 3 files, 4 rows." in done.out
    assert "30 partitions without files: orders@2024-01-31" in done.out
    assert outside.arrived() == [[f"orders@{day}" for day in DAYS[:2]]]
    assert [outside.states()[day] for day in DAYS] == ["Live", "Live", None]


def test_an_adopted_partition_is_read_and_built_from_where_it_is(outside):
    """Rule 10.2: readers read what a manifest lists."""
    project = outside.project
    files = [outside.day(f"2024-01-{day}", 1.0 * day) for day in (29, 30, 31)]
    outside.adopt()

    rows = project.ask("read", f"orders@{DAYS[1]}")
    built = project.build("revenue@2024-01-01")

    assert rows == [{"day": DAYS[1], "amount": 30.0}]
    assert built["job_runs"]["succeeded"] == 1, "the days were there"
    assert project.ask("read", "revenue@2024-01-01") == [{"revenue": 90.0}]
    assert project.ask("show", f"orders@{DAYS[1]}")["canonical"]["files"] == [str(files[1])]
    assert project.call("log", "check", "--deep").code == 0


def test_show_says_that_it_was_adopted_and_from_where(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()

    shown = outside.project.call("show", f"orders@{DAYS[0]}").out

    assert f"adopted from {outside.folder}/day={DAYS[0]}/*.parquet (1 file, " in shown


def test_dagster_shows_it_materialized_with_the_instance_as_data_version(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()

    with dg.DagsterInstance.from_config(str(outside.project.home)) as instance:
        (record,) = instance.fetch_materializations(dg.AssetKey("orders"), limit=5).records

    uuid = outside.project.ask("show", f"orders@{DAYS[0]}")["canonical"]["uuid"]
    assert record.partition_key == DAYS[0]
    assert record.asset_materialization.tags["dagster/data_version"] == uuid


def test_a_dry_run_lists_everything_and_records_nothing(outside):
    path = outside.day(DAYS[0], 1.0, 2.0)

    answer = outside.adopt("--dry-run", "--json").json
    shown = outside.adopt("--dry-run", "--wide").out

    assert [(entry["ref"], entry["files"], entry["rows"]) for entry in answer["recorded"]] == [
        (f"orders@{DAYS[0]}", 1, 2)
    ]
    assert str(path) in shown
    assert "1 partition would be live" in shown
    assert (outside.arrived(), outside.manifests()) == ([], [])


def test_the_same_again_is_nothing_and_what_came_since_is_added(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()

    again = outside.adopt()
    outside.day(DAYS[1], 2.0)
    more = outside.adopt("--json").json

    assert "Nothing to record." in again.out
    assert [entry["ref"] for entry in more["recorded"]] == [f"orders@{DAYS[1]}"]
    assert more["same"] == [f"orders@{DAYS[0]}"]
    assert outside.arrived() == [[f"orders@{DAYS[0]}"], [f"orders@{DAYS[1]}"]]


def test_only_the_partitions_that_are_named_are_looked_at(outside):
    for day in DAYS:
        outside.day(day, 1.0)

    outside.adopt("--partitions", f"{DAYS[1]}..{DAYS[2]}")

    assert outside.arrived() == [[f"orders@{DAYS[1]}", f"orders@{DAYS[2]}"]]


def test_a_named_partition_without_files_is_refused(outside):
    outside.day(DAYS[0], 1.0)

    said = outside.refused("--partitions", DAYS[0], "--partitions", DAYS[1])

    assert f"No files for orders@{DAYS[1]}: none match {outside.folder}/day={DAYS[1]}/*.parquet." in said


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("1999-01-01", "its partitions begin with 2024-01-29"),
        ("2024-01-31..2024-01-29", "2024-01-31 comes after 2024-01-29"),
        ("2024-01-29..soon", "'soon' is not a key of its partitions"),
    ],
)
def test_a_partition_that_does_not_exist_is_refused(no_files, named, said):
    assert said in no_files.refused("--partitions", named)


def test_live_with_other_data_is_refused_until_the_user_says_which_counts(outside):
    """Rule 4.2: a new instance; the one before is history."""
    outside.day(DAYS[0], 1.0)
    outside.adopt()
    outside.day(DAYS[0], 2.0, name="late.parquet")
    outside.day(DAYS[1], 5.0)

    said = outside.refused()
    kept = outside.adopt("--live", "keep", "--json").json
    replaced = outside.adopt("--live", "replace", "--json").json

    assert f"orders@{DAYS[0]} is live already with other data. --live keep leaves it" in said
    assert (kept["kept"], [entry["ref"] for entry in kept["recorded"]]) == (
        [f"orders@{DAYS[0]}"],
        [f"orders@{DAYS[1]}"],
    )
    assert [entry["ref"] for entry in replaced["recorded"]] == [f"orders@{DAYS[0]}"]
    assert len(outside.project.ask("history", f"orders@{DAYS[0]}")) == 2
    assert [row["amount"] for row in outside.project.ask("read", f"orders@{DAYS[0]}")] == [1.0, 2.0]


def test_a_partition_built_here_is_replaced_and_adopted_again(outside):
    outside.day(DAYS[0], 7.0)
    outside.adopt()
    outside.project.call("taint", f"orders@{DAYS[0]}", "--reason", "wrong")
    outside.project.build(f"orders@{DAYS[0]}")

    outside.adopt("--live", "replace")

    assert len(outside.project.ask("history", f"orders@{DAYS[0]}")) == 3
    assert [row["amount"] for row in outside.project.ask("read", f"orders@{DAYS[0]}")] == [7.0]


def test_files_that_were_said_to_be_wrong_are_not_adopted_again_until_they_change(outside):
    outside.day(DAYS[0], 1.0)
    outside.adopt()
    outside.project.call("taint", f"orders@{DAYS[0]}", "--reason", "wrong")

    said = outside.refused()
    outside.day(DAYS[0], 2.0)
    mended = outside.adopt()

    assert "was adopted from these files, and tainted since. `databuild show orders@2024-01-29`" in said
    assert mended.code == 0
    assert outside.states()[DAYS[0]] == "Live"


def test_a_partition_that_is_being_built_is_refused_naming_the_job_run(outside):
    """Rule 4.4"""
    outside.day(DAYS[0], 1.0)
    outside.project.call("tick")
    outside.project.claim(f"orders@{DAYS[0]}")

    said = outside.refused()

    (job_run,) = outside.project.ask("job-run", "list")
    assert f"orders@{DAYS[0]} is being built by job run {job_run['id']}" in said


def test_a_damaged_file_is_named(outside):
    outside.day(DAYS[0], 1.0)
    outside.day(DAYS[1], 1.0).write_bytes(b"PAR1 but not really PAR1")

    said = outside.refused()

    assert f"{outside.folder}/day={DAYS[1]}/a.parquet cannot be a file of orders@{DAYS[1]}:" in said


def test_columns_that_differ_among_partitions_are_refused_unless_allowed(outside):
    outside.day(DAYS[0], 1.0, note=["x"])
    outside.day(DAYS[1], 1.0)

    said = outside.refused()
    allowed = outside.adopt("--allow-schema-change")

    assert f"for orders@{DAYS[1]}, does not fit: it has no column 'note', unlike orders@{DAYS[0]}" in said
    assert allowed.code == 0, allowed


def test_types_that_cannot_be_read_together_are_refused_all_the_same(outside):
    outside.day(DAYS[0], 1.0, note=["x"])
    outside.day(DAYS[1], 1.0, note=[1])

    assert "Column 'note' is string" in outside.refused("--allow-schema-change")


def test_columns_that_differ_within_a_partition_are_refused(outside):
    outside.day(DAYS[0], 1.0)
    outside.day(DAYS[0], 1.0, name="b.parquet", note=["x"])

    said = outside.refused("--allow-schema-change")

    assert f"day={DAYS[0]}/b.parquet, for orders@{DAYS[0]}, does not fit: it has more, or wider, columns" in said


def test_columns_that_differ_from_what_is_live_are_refused(outside):
    outside.project.build(f"orders@{DAYS[2]}")
    outside.day(DAYS[0], 1.0).unlink()
    pd.DataFrame({"day": [1], "amount": [1.0]}).to_parquet(outside.folder / f"day={DAYS[0]}" / "a.parquet")

    assert f"column 'day' is bigint, not string, unlike orders@{DAYS[2]}" in outside.refused()


def test_times_of_nanoseconds_are_refused_with_what_to_do(outside):
    outside.day(DAYS[0], 1.0, at=pd.to_datetime([DAYS[0]]).as_unit("ns"))

    said = outside.refused()

    assert "Column 'at' is timestamp[ns], and Spark reads no nanoseconds" in said


def test_a_file_that_two_partitions_would_have_is_refused(outside):
    outside.write("orders.parquet", 1.0)

    said = outside.refused(files="outside/{partition_key:o}rders.parquet")

    assert f"{outside.folder}/orders.parquet would belong to orders@{DAYS[0]} and to orders@{DAYS[1]}." in said


def test_files_of_our_own_warehouse_are_refused(outside):
    outside.project.build("airlines")

    said = outside.refused(asset="airlines", files="home/warehouse/airlines/data/*/*.parquet")

    assert "lies in the warehouse" in said


@pytest.mark.parametrize(
    ("asset", "files", "said"),
    [
        ("orders", "outside/*.parquet", "all partitions would have the same files"),
        ("orders", "outside/{day}.parquet", "{day} is neither {partition_key} nor one of its dimensions"),
        ("orders", "outside/{partition_key", "expected '}' before end of string"),
        ("orders", "outside/{partition_key!r}", "!r means nothing here"),
        ("airlines", "outside/{partition_key}", "the asset has no partitions"),
        ("sales", "outside/{day}/*.parquet", "{region} is not in it. Write it as in --files '/data/flights/day={day}/"),
        ("sales", "outside/{day}/{region:%Y}/*.parquet", "only partitions in time have a date"),
        ("order", "outside/{partition_key}", "Did you mean orders?"),
        ("plain", "outside/*", "plain is a plain Dagster asset"),
        ("declared", "outside/*", "declared is declared, and built elsewhere"),
        ("orders", "nope://bucket/{partition_key}", "nope"),
        ("orders", "outside/{partition_key}", "orders@2024-01-31 and 29 more: none match"),
    ],
)
def test_a_pattern_or_asset_that_means_nothing_is_refused(no_files, asset, files, said):
    assert said in no_files.refused(asset=asset, files=files)


def test_dimensions_and_keys_stand_for_themselves(outside):
    outside.write("eu/2024-01-29/a.parquet", 1.0)
    outside.write("u/s/2024-01-29/a.parquet", 2.0)

    outside.adopt(asset="sales", files="outside/{region}/{day}/*.parquet")

    assert outside.arrived() == [["sales@2024-01-29|eu", "sales@2024-01-29|u/s"]]
    assert outside.project.ask("read", "sales@2024-01-29|u/s")[0]["amount"] == 2.0


def test_a_day_may_be_written_as_folders_of_year_and_month(outside):
    outside.write("2024/01/29/a.parquet", 1.0)

    outside.adopt(files="outside/{partition_key:%Y/%m/%d}")

    assert outside.arrived() == [[f"orders@{DAYS[0]}"]]


def test_a_key_is_found_as_hive_writes_it_too(outside):
    """Spark spells out the colon of an hour in the name of a folder."""
    outside.write("hour=2024-01-29-01%3A00/a.parquet", 1.0)

    outside.adopt(asset="clicks", files="outside/hour={partition_key}")

    assert outside.arrived() == [["clicks@2024-01-29-01:00"]]


def test_an_asset_without_partitions_takes_all_that_matches_and_no_hidden_files(outside):
    outside.write("air/a.parquet", 1.0)
    outside.write("air/b.parquet", 2.0)
    outside.write("air/_temporary/c.parquet", 3.0)
    (outside.folder / "air" / "_SUCCESS").touch()
    (outside.folder / "air" / ".a.parquet.crc").touch()

    outside.adopt(asset="airlines", files=f"file://{outside.folder}/air/*")

    assert [row["amount"] for row in outside.project.ask("read", "airlines")] == [1.0, 2.0]


def test_files_without_rows_are_empty_and_have_their_columns(outside):
    """Rule 10.3"""
    outside.day(DAYS[0])

    outside.adopt()

    assert outside.states()[DAYS[0]] == "Live"
    assert outside.project.ask("read", f"orders@{DAYS[0]}") == []


def test_a_file_that_goes_or_changes_later_is_named_and_never_read_as_another(outside):
    """I7, the part that needs the disk."""
    path = outside.day(DAYS[0], 1.0)
    outside.adopt()
    outside.day(DAYS[0], 1.0, 2.0, 3.0)

    changed = outside.project.call("read", f"orders@{DAYS[0]}")
    deep = outside.project.call("log", "check", "--deep")
    os.unlink(path)
    gone = outside.project.call("read", f"orders@{DAYS[0]}")

    assert f"{path} is lost, or was changed since it was listed" in changed.err
    assert (deep.code, str(path) in deep.out) == (1, True)
    assert (changed.code, gone.code) == (2, 2)


def test_a_plain_asset_that_was_live_is_adopted_once_it_is_ours(outside):
    """Its instance names Dagster's event, and no files of ours."""
    project = outside.project
    project.build("plain")
    ours = "@databuild_asset\ndef plain() -> pd.DataFrame:\n    return pd.DataFrame({'n': [1]})\n"
    project.define((DEFINITIONS + MORE).replace("@dg.asset\ndef plain() -> None: ...\n", ours))
    outside.write("plain.parquet", 4.0)

    done = outside.adopt(asset="plain", files="outside/plain.parquet")

    assert done.code == 0, done
    assert [row["amount"] for row in project.ask("read", "plain")] == [4.0]
