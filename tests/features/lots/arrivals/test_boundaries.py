"""Rule 10.6: files from outside become lots, by the time in their name or of their last change, each exactly once."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, InvalidAsset, build_definitions, databuild_asset, databuild_boundary
from databuild_dagster.bindings.adapter.run_tags import TAINT_CHECK
from databuild_dagster.bindings.building.deployment import Deployment, deployment_of_repository
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.inprocess import execute_order
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.features.lots.arrivals import watcher as watching
from databuild_dagster.features.lots.arrivals.arrival import Arriver
from databuild_dagster.features.lots.arrivals.arrival_sensors import look_once, summary, warnings
from databuild_dagster.features.lots.arrivals.boundaries import Boundary, boundary_of
from databuild_dagster.features.lots.arrivals.landing import BadLandingPattern
from databuild_dagster.features.lots.arrivals.recording import NoLandingFolder
from databuild_dagster.features.lots.arrivals.watcher import Look, Watcher
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.manifest import Manifest, UriType, read_manifest
from tests.features.lots.arrivals.outside_files import OutsideFiles
from tests.support.dagster_files import fresh_instance
from tests.support.object_store import S3Server

hourly = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-01-02-00:00")
AT_FIVE = "flights@2013-01-01-05:00"
PATTERN = "/flights_{time:%Y%m%dT%H%M}*.parquet"
LONG_AGO = datetime(2013, 1, 1, tzinfo=UTC).timestamp()
#: All intervals of the day have passed.
NOW = datetime(2013, 1, 3, tzinfo=UTC).timestamp()


def at(hour: int, minute: int = 0, second: float = 0.0) -> float:
    """A moment of the day, in seconds since 1970."""
    return LONG_AGO + hour * 3_600 + minute * 60 + second


class Place(OutsideFiles):
    """A landing folder, a boundary over it, and a watcher that forgets all between two looks unless it is asked not to."""

    def drop(self, name: str, *delays: float, modified: float = LONG_AGO, **columns: Any) -> Path:
        """Another program writes a file at some time."""
        path = Path(self.write(name, *delays, **columns))
        os.utime(path, (modified, modified))
        return path

    def damage(self, name: str) -> Path:
        """A file that is none of Parquet."""
        path = Path(self.folder, name)
        path.write_bytes(b"PAR1 and no rows")
        os.utime(path, (LONG_AGO, LONG_AGO))
        return path

    def watcher(self, files: str | None = None, **options: Any) -> Watcher:
        options = {"partitions_def": hourly, "grace_seconds": 0.0, **options}
        spec = databuild_boundary("flights", files=files or f"{self.folder}{PATTERN}", **options)
        self.deploy(spec)
        dataset = self.datasets["flights"]
        assert dataset.kind is DatasetKind.BOUNDARY
        boundary = boundary_of(spec)
        assert boundary is not None
        return Watcher(self.engine, self.instance, dataset, self.warehouse, boundary)

    def look(self, now: float = NOW, **options: Any) -> Look:
        """What a process that has just begun finds."""
        return self.watcher(**options).look(now)

    def lots(self) -> dict[str, list[str]]:
        """Each hour that has an instance, with the names of its files."""
        return {
            lot.ref.partition("@")[2].partition("2013-01-01-")[2][:2]: [
                Path(file.uri).name for file in self.manifest(lot.ref).files
            ]
            for lot in self.queries.canonical.of_dataset("flights")
        }

    def manifest(self, ref: str) -> Manifest:
        return read_manifest(self.warehouse, "flights", self.uuid(ref))

    def instances(self, hour: int) -> int:
        return self.n_instances(f"flights@2013-01-01-{hour:02}:00")

    def green(self) -> set[str]:
        return self.instance.get_materialized_partitions(dg.AssetKey("flights"))


@pytest.fixture
def place(instance: dg.DagsterInstance, tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "landing").mkdir()
    place = Place(instance, tmp_path / "landing")
    yield place
    assert place.check() == []


# What arrives


def test_of_two_who_record_the_same_at_once_one_does_and_its_manifest_stays(place):
    """Rule 10.2: both write the same manifest at the same place, and who is refused takes nothing away."""
    place.drop("flights_20130101T0512.parquet", 1.0)
    place.drop("flights_20130101T0612.parquet", 1.0)
    one, other = place.watcher(), place.watcher()
    seen = one.see(NOW), other.see(NOW)

    looks = [watcher.record(saw, NOW) for watcher, saw in zip((one, other), seen, strict=True)]

    assert [len(look.recorded) for look in looks] == [2, 0]
    assert (looks[1].held, looks[1].more) == ({}, True), "it is looked at again"
    assert list(place.lots()) == ["05", "06"], "both can be read"
    assert place.instances(5) == place.instances(6) == 1
    assert len(place.manifests()) == 2


def test_another_home_that_writes_into_the_same_warehouse_has_lots_of_its_own(place):
    place.drop("flights_20130101T0512.parquet", 1.0)
    place.look()
    with fresh_instance() as another:
        there = Place(another, place.folder)
        there.warehouse = place.warehouse

        there.look()

        uuids = {site.uuid(AT_FIVE) for site in (place, there)}
    assert len(uuids) == 2


def test_a_file_becomes_the_lot_of_the_time_in_its_name_where_it_lies(place):
    file = place.drop("flights_20130101T0512.parquet", 1.0, 2.0)

    look = place.look()

    manifest = place.manifest(AT_FIVE)
    assert place.lots() == {"05": [file.name]}
    assert manifest.lot_id == "20130101PT1H005"
    assert (manifest.uri_type, manifest.files[0].uri, manifest.rows) == (UriType.IDENTIFIER, str(file), 2)
    assert summary(look) == "1 lot arrived with 1 file."
    assert place.green() == {"2013-01-01-05:00"}


def test_intervals_are_half_open(place):
    names = [f"flights_20130101T{time}.parquet" for time in ("0000", "0500", "0559", "0600", "2359")]
    for number, name in enumerate(names):
        place.drop(name, float(number))

    place.look()

    assert place.lots() == {"00": names[:1], "05": names[1:3], "06": names[3:4], "23": names[4:]}


def test_a_time_may_stand_in_folders_and_twice(place):
    place.drop("2013/01/01/05/flights_2013-01-01.parquet", 1.0)
    place.drop("2013/01/01/06/flights_2013-01-02.parquet", 1.0)

    look = place.look(files=f"{place.folder}/{{time:%Y/%m/%d/%H}}/flights_{{time:%Y-%m-%d}}.parquet")

    assert list(place.lots()) == ["05"]
    assert [Path(path).parent.name for path in look.strangers] == ["06"]


def test_by_the_time_of_modification_the_name_tells_nothing(place):
    place.drop("a.parquet", 1.0, modified=at(5, 0))
    place.drop("b.parquet", 2.0, modified=at(5, 59, 59.5))
    place.drop("c.parquet", 3.0, modified=at(6, 0))

    place.look(files=f"{place.folder}/*.parquet", by="modified")

    assert place.lots() == {"05": ["a.parquet", "b.parquet"], "06": ["c.parquet"]}


def test_a_name_tells_the_time_of_the_partitions_zone_unless_it_tells_its_own(place):
    new_york = dg.HourlyPartitionsDefinition(
        "2013-01-01-00:00", end_date="2013-01-02-00:00", timezone="America/New_York"
    )
    place.drop("flights_20130101T0500.parquet", 1.0)
    place.drop("flights_20130101T0500Z.parquet", 2.0)

    place.look(files=f"{place.folder}/flights_{{time:%Y%m%dT%H%M}}.parquet", partitions_def=new_york)
    place.look(files=f"{place.folder}/flights_{{time:%Y%m%dT%H%M%z}}.parquet", partitions_def=new_york)

    assert place.lots() == {"00": ["flights_20130101T0500Z.parquet"], "05": ["flights_20130101T0500.parquet"]}


def in_berlin(kind: Any, day: str, end: str) -> Any:
    return kind(day, end_date=end, timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "end", "shown", "waiting"),
    [
        ("2012-10-28", "2012-10-29", "show twice", ["02:00", "02:00+0100"]),
        ("2012-03-25", "2012-03-26", "skip", ["01:00"]),
    ],
    ids=["twice", "never"],
)
def test_a_local_time_that_the_clocks_show_twice_or_never_is_not_guessed(place, day, end, shown, waiting):
    hours = in_berlin(dg.HourlyPartitionsDefinition, f"{day}-00:00", f"{end}-00:00")
    files = f"{place.folder}/{{time:%Y-%m-%d-%H}}.parquet"
    path = place.drop(f"{day}-02.parquet", 1.0)
    place.drop(f"{day}-03.parquet", 2.0)

    look = place.look(files=files, partitions_def=hours, empty=True)

    assert [Path(file.uri).name for file in place.manifest(f"flights@{day}-03:00").files] == [f"{day}-03.parquet"]
    (why,) = look.unclear.values()
    assert f"the local time {day} 02:00, which the clocks of Europe/Berlin {shown};" in why
    assert why.endswith("`databuild lot arrive flights LOT FILE` names its lot")
    assert (list(look.unclear), [aside.reason for aside in place.queries.planning.set_aside()]) == ([str(path)], [why])
    # The lots that it may be of are not empty for want of a file.
    hours_of_day = {lot.ref.partition("@")[2][11:] for lot in place.queries.canonical.of_dataset("flights")}
    assert hours_of_day.isdisjoint(waiting)
    assert len(hours_of_day) == len(hours.get_partition_keys()) - len(waiting)


def test_a_person_names_the_lot_of_a_file_whose_local_time_is_unclear(place):
    hours = in_berlin(dg.HourlyPartitionsDefinition, "2012-10-28-00:00", "2012-10-29-00:00")
    options = {"files": f"{place.folder}/{{time:%Y-%m-%d-%H}}.parquet", "partitions_def": hours}
    path = place.drop("2012-10-28-02.parquet", 1.0)
    assert list(place.look(**options).unclear) == [str(path)]

    arriver = Arriver(place.engine, place.instance, place.datasets["flights"], place.warehouse)
    arriver.arrive("2012-10-28-02:00+0100", [str(path)])

    assert (place.look(**options).unclear, place.queries.planning.set_aside()) == ({}, [])


def test_include_and_exclude_say_which_of_those_that_fit(place):
    for name in ("jfk", "lga", "jfk_test"):
        place.drop(f"flights_20130101T0500_{name}.parquet", 1.0)

    place.look(include="*_jfk*", exclude=["*_test.parquet"])

    assert place.lots() == {"05": ["flights_20130101T0500_jfk.parquet"]}


def test_what_a_writer_has_not_renamed_yet_is_no_file(place):
    for name in (".flights_20130101T0500.parquet", "_temporary/flights_20130101T0500.parquet"):
        place.drop(name, 1.0)
    shutil.copy(place.drop("flights_20130101T0600.parquet", 1.0), place.folder / "flights_20130101T0500.parquet.tmp")

    place.look(files=f"{place.folder}/**/flights_{{time:%Y%m%dT%H%M}}*")

    assert list(place.lots()) == ["06"]


# When


def test_a_lot_is_closed_when_its_interval_and_the_grace_have_passed(place):
    place.drop("flights_20130101T0500.parquet", 1.0)
    watcher = place.watcher(grace_seconds=300)

    before, after = watcher.look(at(6, 4, 59)), watcher.look(at(6, 5))

    assert (len(before.recorded), len(after.recorded)) == (0, 1)


def test_a_file_that_was_written_to_a_moment_ago_holds_its_lot_and_no_other(place):
    place.drop("flights_20130101T0500_a.parquet", 1.0)
    place.drop("flights_20130101T0500_b.parquet", 2.0, modified=NOW - 5)
    place.drop("flights_20130101T0600.parquet", 3.0)
    watcher = place.watcher(settle_seconds=10)

    first = watcher.look(NOW)
    hours = list(place.lots())
    watcher.look(NOW + 5)

    assert (first.unsettled, hours) == ([AT_FIVE], ["06"])
    assert len(place.lots()["05"]) == 2


def test_a_modification_time_of_another_year_does_not_hold_a_lot(place):
    place.drop("flights_20130101T0500.parquet", 1.0, modified=NOW + 2_000_000_000)
    place.drop("flights_20130101T0600.parquet", 2.0, modified=NOW + 60)
    watcher = place.watcher(settle_seconds=10)

    look = watcher.look(NOW)

    assert (look.unsettled, list(place.lots())) == (["flights@2013-01-01-06:00"], ["05"])


def test_an_interval_without_files_is_an_empty_lot_where_the_boundary_says_so(place):
    """Rule 10.3: empty is live, and has columns."""
    place.drop("flights_20130101T0100.parquet", 1.0)
    watcher = place.watcher(empty=True)

    look = watcher.look(at(3))
    again = watcher.look(at(3, 59))
    next_hour = watcher.look(at(4))

    empty = place.manifest("flights@2013-01-01-00:00")
    assert place.lots() == {"00": [], "01": ["flights_20130101T0100.parquet"], "02": [], "03": []}
    assert [column.name for column in empty.schema.columns] == ["n"]
    assert (len(look.recorded), len(again.recorded), len(next_hour.recorded)) == (3, 0, 1)
    assert place.queries.canonical.states(["flights@2013-01-01-00:00"]).popitem()[1] is InstanceState.LIVE


# What comes again, and late


def test_a_second_file_for_a_closed_lot_makes_a_new_instance_with_both(place):
    """Rule 10.6: late data, never an overwrite."""
    place.drop("flights_20130101T0500_a.parquet", 1.0)
    place.look()
    first = place.manifest(AT_FIVE)
    place.drop("flights_20130101T0500_b.parquet", 2.0)

    look = place.look()

    assert look.late == [AT_FIVE]
    assert summary(look).startswith("1 lot arrived with 1 file; 1 of them late data")
    assert place.lots()["05"] == ["flights_20130101T0500_a.parquet", "flights_20130101T0500_b.parquet"]
    assert place.instances(5) == 2
    assert len(read_manifest(place.warehouse, "flights", first.instance_uuid).files) == 1


def test_a_file_for_an_empty_lot_is_late_data(place):
    place.look(at(6), empty=True)
    place.drop("flights_20130101T0500.parquet", 1.0)

    place.look(at(6), empty=True)

    assert (place.lots()["05"], place.instances(5)) == (["flights_20130101T0500.parquet"], 2)


def test_looking_again_is_no_news(place):
    place.drop("flights_20130101T0500.parquet", 1.0)
    watcher = place.watcher(empty=True)
    watcher.look(NOW)
    events = place.seq

    watcher.look(NOW)
    place.look(empty=True)

    assert place.seq == events


def test_a_copy_under_another_name_is_counted_once(place):
    first = place.drop("flights_20130101T0500.parquet", 1.0, 2.0)
    shutil.copy2(first, place.folder / "flights_20130101T0500 (1).parquet")
    place.look()
    shutil.copy2(first, place.folder / "flights_20130101T0500 (2).parquet")

    place.look()

    assert (place.manifest(AT_FIVE).rows, place.instances(5)) == (2, 1)


def test_a_later_lot_lists_what_is_left_in_a_landing_folder_that_was_tidied_up(place):
    old = place.drop("flights_20130101T0500_a.parquet", 1.0)
    place.drop("flights_20130101T0500_b.parquet", 2.0)
    place.look()
    old.unlink()
    place.look()
    assert place.instances(5) == 1
    place.drop("flights_20130101T0500_c.parquet", 3.0)

    place.look()

    assert place.lots()["05"] == ["flights_20130101T0500_b.parquet", "flights_20130101T0500_c.parquet"]


def test_a_tainted_lot_stays_so_until_the_file_is_another(place):
    place.drop("flights_20130101T0500_a.parquet", 1.0)
    place.look()
    place.taint(AT_FIVE)
    place.drop("flights_20130101T0500_b.parquet", 2.0)

    held = place.look()
    place.drop("flights_20130101T0500_a.parquet", 10.0, modified=LONG_AGO + 60)
    place.look()

    assert list(held.held) == [AT_FIVE]
    assert len(place.lots()["05"]) == 2
    assert place.state(AT_FIVE) is InstanceState.LIVE


# Trouble


def test_why_a_file_is_held_is_a_fact_until_it_is_repaired_or_gone(place):
    """Rule 11.7"""

    def aside():
        return {(aside.kind.value, Path(aside.name).name) for aside in place.queries.planning.set_aside()}

    for name in ("flights_20130101T0500.parquet", "flights_20130101T0600.parquet", "flights_20130101T9900.parquet"):
        place.damage(name)
    watcher = place.watcher()
    watcher.look(NOW)
    events = place.seq
    place.look()
    assert place.seq == events
    held = {("lot", AT_FIVE), ("lot", "flights@2013-01-01-06:00")}
    assert aside() == held | {("file", "flights_20130101T9900.parquet")}

    place.drop("flights_20130101T0500.parquet", 1.0)
    (place.folder / "flights_20130101T0600.parquet").unlink()
    (place.folder / "flights_20130101T9900.parquet").unlink()
    watcher.look(NOW + 1)

    assert aside() == set()


def test_a_file_whose_name_is_not_utf8_holds_its_lot_and_no_other_and_is_named(place):
    name = os.fsdecode(b"flights_20130101T0500_caf\xe9.parquet")
    place.damage(name)
    place.drop("flights_20130101T0600.parquet", 1.0)
    watcher = place.watcher()

    look = watcher.look(NOW)
    (place.folder / name).unlink()
    place.drop("flights_20130101T0500.parquet", 2.0)
    watcher.look(NOW)

    assert look.held == {
        AT_FIVE: f"{place.folder}/flights_20130101T0500_caf\\udce9.parquet cannot be a file of "
        "flights@2013-01-01-05:00: its name is not UTF-8."
    }
    assert list(place.lots()) == ["05", "06"]


ODD_NAMES = (
    *("|", "@", "..", "CON", "%2F%2e", "#a?b=c", "[ab]*", "{x}", " ", "'", '"; DROP TABLE databuild_events; --'),
    *(
        "$(rm -rf ~)",
        "two\nlines",
        "\x1b[2J",
        "caf\u00e9",
        "cafe\u0301",
        "\u202egnp",
        "\U0001f4a5",
        ":",
        "\\",
        "n" * 200,
    ),
)


def test_a_file_of_any_name_that_is_utf8_is_recorded_and_read(place):
    """Rules 10.6, 11.5: each in a lot of its own, and only what the disk refuses is missing."""
    names = {hour: f"flights_20130101T{hour:02}00{odd}.parquet" for hour, odd in enumerate(ODD_NAMES)}
    for hour, name in names.items():
        place.drop(name, float(hour))

    look = place.look()

    assert (look.held, look.strangers) == ({}, [])
    assert place.lots() == {f"{hour:02}": [name] for hour, name in names.items()}
    uris = [file.uri for hour in names for file in place.manifest(f"flights@2013-01-01-{hour:02}:00").files]
    assert [pd.read_parquet(uri)["n"].tolist() for uri in uris] == [[float(hour)] for hour in names]


def test_a_file_that_is_gone_between_listing_and_recording_waits_for_the_next_look(place):
    place.drop("flights_20130101T0500_a.parquet", 1.0)
    gone = place.drop("flights_20130101T0500_b.parquet", 2.0)
    watcher = place.watcher()
    seen = watcher.see(NOW)
    gone.unlink()

    look = watcher.record(seen, NOW)
    assert "is not there any more" in look.held[AT_FIVE]
    watcher.look(NOW)

    assert place.lots() == {"05": ["flights_20130101T0500_a.parquet"]}


def test_other_columns_are_refused_by_name_unless_the_boundary_allows_them(place):
    place.drop("flights_20130101T0500.parquet", 1.0)
    place.drop("flights_20130101T0600.parquet", 1.0, carrier=["AA"])
    place.drop("flights_20130101T0700.parquet", modified=LONG_AGO)
    other = place.folder / "flights_20130101T0800.parquet"
    pd.DataFrame({"other": [1]}).to_parquet(other)
    os.utime(other, (LONG_AGO, LONG_AGO))

    look = place.look()
    place.look(allow_schema_change=True)

    assert list(look.held) == ["flights@2013-01-01-08:00"]
    assert sorted(place.lots()) == ["05", "06", "07", "08"]


def test_names_without_a_time_and_times_without_a_partition_are_named(place):
    for name in ("latest", "20130230T0500", "20140101T0500", "20130101T2500"):
        place.drop(f"flights_{name}.parquet", 1.0)

    look = place.look()

    assert place.lots() == {}
    assert "4 files belong to no lot" in warnings(look)[0]


def test_a_folder_that_is_not_there_makes_no_empty_lots(place):
    with pytest.raises(NoLandingFolder, match="The landing folder .*/nowhere"):
        place.look(files=f"{place.folder}/nowhere{PATTERN}", empty=True)

    assert place.lots() == {}


# Processes that die


def test_a_watcher_that_dies_between_two_batches_is_gone_on_with(place, monkeypatch):
    monkeypatch.setattr(watching, "MAX_LOTS_PER_BATCH", 2)
    for hour in range(5):
        place.drop(f"flights_20130101T{hour:02}00.parquet", float(hour))
    dying = place.watcher()
    commits = []

    def one_and_no_more(*arguments: Any) -> list[str]:
        if commits:
            raise KeyboardInterrupt
        commits.append(arguments)
        return Watcher._commit(dying, *arguments)

    monkeypatch.setattr(dying, "_commit", one_and_no_more)
    with pytest.raises(KeyboardInterrupt):
        dying.look(NOW)
    assert len(place.lots()) == 2

    place.look()

    assert len(place.lots()) == 5
    assert all(place.instances(hour) == 1 for hour in range(5))


def test_what_was_recorded_and_not_shown_is_shown_by_the_next_process(place):
    place.drop("flights_20130101T0500.parquet", 1.0)
    dying = place.watcher(empty=True)
    dying.record(dying.see(at(7)), at(7))
    assert place.green() == set()

    place.look(at(7), empty=True)

    assert len(place.green()) == 7


def test_a_look_takes_so_many_files_and_says_that_there_are_more(place, monkeypatch):
    monkeypatch.setattr(watching, "MAX_FILES_PER_LOOK", 2)
    for hour in range(5):
        place.drop(f"flights_20130101T{hour:02}00.parquet", float(hour))
    watcher = place.watcher()

    looks = [watcher.look(NOW) for _ in range(4)]

    assert [len(look.recorded) for look in looks] == [2, 2, 1, 0]
    assert [look.more for look in looks] == [True, True, False, False]


# Among the rest


def test_a_lot_is_read_by_what_is_built_from_it_and_wanted_like_any_other(instance, tmp_path):
    place = Place(instance, tmp_path / "landing")
    place.drop("flights_20130101T0500.parquet", 1.0, 2.0)
    flights = databuild_boundary("flights", partitions_def=hourly, files=f"{place.folder}{PATTERN}")

    @databuild_asset(partitions_def=hourly)
    def delays(context: BuildContext, flights: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"total": [flights.n.sum()]})

    repository, deployment, boundary = deployed(flights, delays)
    look_once(instance, repository, deployment, "flights", boundary)
    place.want("flights@2013-01-01-06:00")
    launcher = OrderCollector(instance)
    place.want("delays@2013-01-01-05:00")
    place.want("delays@2013-01-01-07:00")
    for _ in range(3):
        run_tick(instance, repository, deployment, launcher)
        for order in launcher.take_orders():
            list(execute_order(instance, repository, order))

    states = place.states(AT_FIVE, "delays@2013-01-01-05:00", "delays@2013-01-01-07:00", "flights@2013-01-01-06:00")
    assert states == [InstanceState.LIVE, InstanceState.LIVE, InstanceState.UPSTREAM_BUILDING, None]


def test_a_tainted_lot_is_red_in_dagster_without_a_check_that_it_does_not_declare(instance, tmp_path):
    place = Place(instance, tmp_path / "landing")
    place.drop("flights_20130101T0500.parquet", 1.0)
    flights = databuild_boundary("flights", partitions_def=hourly, files=f"{place.folder}{PATTERN}", settle_seconds=0)
    repository, deployment, boundary = deployed(flights)
    look_once(instance, repository, deployment, "flights", boundary)
    run_tick(instance, repository, deployment, OrderCollector(instance))

    place.taint(AT_FIVE, reason="wrong units")
    run_tick(instance, repository, deployment, OrderCollector(instance))

    check = dg.AssetCheckKey(dg.AssetKey("flights"), TAINT_CHECK)
    assert instance.event_log_storage.get_latest_asset_check_execution_by_key([check]) == {}
    (red,) = instance.get_runs()
    (said,) = [entry.message for entry in instance.all_logs(red.run_id) if "wrong units" in entry.message]
    assert "red until other files arrive, or until the taint is canceled" in said


def deployed(*assets: Any) -> tuple[dg.RepositoryDefinition, Deployment, Boundary]:
    """A code location whose first asset is a boundary."""
    repository = build_definitions(assets, location="tests").get_repository_def()
    deployment, boundary = deployment_of_repository(repository), boundary_of(assets[0])
    assert deployment is not None
    assert boundary is not None
    return repository, deployment, boundary


def test_the_sensor_of_a_boundary_runs_as_soon_as_it_is_deployed(instance, tmp_path):
    place = Place(instance, tmp_path / "landing")
    place.drop("flights_20130101T0500.parquet", 1.0)
    flights = databuild_boundary("flights", partitions_def=hourly, files=f"{place.folder}{PATTERN}")
    by_hand = databuild_boundary("by_hand", partitions_def=hourly)
    repository = build_definitions([flights, by_hand], location="tests").get_repository_def()
    (sensor,) = [sensor for sensor in repository.sensor_defs if sensor.name.startswith("databuild_arrivals")]

    with dg.build_sensor_context(instance, repository_def=repository) as context:
        said = sensor(context)

    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert isinstance(said, dg.SkipReason)
    assert said.skip_message == "1 lot arrived with 1 file."


# In a bucket


def test_in_a_bucket_the_same(instance, s3: S3Server, bucket: str, tmp_path):
    """Objects appear whole, so that none has to settle."""
    place = Place(instance, f"s3://{bucket}/landing")
    local = Place(instance, tmp_path)
    for name, delay in (
        ("flights_20130101T0500.parquet", 1.0),
        ("flights_latest.parquet", 2.0),
        ("deep/x.parquet", 3.0),
    ):
        s3.client().upload_file(str(local.drop(name, delay)), bucket, f"landing/{name}")

    look = place.look()
    s3.client().upload_file(
        str(local.drop("flights_20130101T0501.parquet", 4.0)), bucket, "landing/flights_20130101T0501.parquet"
    )
    late = place.look()
    again = place.look()

    assert [Path(path).name for path in look.strangers] == ["flights_latest.parquet"]
    assert place.manifest(AT_FIVE).files[0].uri.startswith(f"s3://{bucket}/landing/")
    assert place.lots() == {"05": ["flights_20130101T0500.parquet", "flights_20130101T0501.parquet"]}
    assert (len(late.late), again.recorded) == (1, [])


def test_by_the_time_an_object_was_written(instance, s3: S3Server, bucket: str, tmp_path):
    place = Place(instance, f"s3://{bucket}/landing")
    s3.client().upload_file(str(Place(instance, tmp_path).drop("a.parquet", 1.0)), bucket, "landing/a.parquet")
    this_year = dg.DailyPartitionsDefinition("2020-01-01")

    watcher = place.watcher(files=f"s3://{bucket}/landing/*.parquet", by="modified", partitions_def=this_year)
    written = s3.client().head_object(Bucket=bucket, Key="landing/a.parquet")["LastModified"]
    seen = watcher.see(written.timestamp() + 2 * 86_400)

    assert [interval.key for interval in seen.news] == [f"{written:%Y-%m-%d}"]


def test_a_bucket_that_cannot_be_listed_makes_no_empty_lots(instance, s3: S3Server):
    place = Place(instance, "s3://there-is-no-such-bucket/landing")

    with pytest.raises(Exception, match="there is no bucket"):
        place.look(empty=True)

    assert place.lots() == {}


# Refused when it is declared


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"files": "landing/flights_*.parquet"}, "it has no {time:…}"),
        ({"files": "landing/{time:%H%M}.parquet"}, "leaves a gap"),
        ({"files": "landing/{time:%Y%m%d%M}.parquet"}, "leaves a gap"),
        ({"files": "landing/{time:%Y%m%d}.parquet"}, "86,400 seconds open, and a lot is 3,600 long"),
        ({"files": "landing/{time:%Y%m%dT%Q}.parquet"}, "%Q is none of"),
        ({"files": "landing/{partition_key}.parquet"}, "only {time:…}"),
        ({"files": "landing/{time}.parquet"}, "only {time:…}"),
        ({"files": "landing/{time:%Y"}, "brace"),
        ({"files": "landing/{time:%Y%m%dT%H}/"}, "it ends with a folder"),
        ({"files": "s3://*/{time:%Y%m%dT%H}.parquet"}, "the bucket has to be named"),
        ({"files": "landing/{time:%Y%m%dT%H}.parquet", "by": "modified"}, "it has a time in the name"),
        ({"files": "landing/{time:%Y%m%dT%H}.parquet", "exclude": "/old/*"}, "is to match below its folder"),
        ({"files": "landing/{time:%Y%m%dT%H}.parquet", "by": "size"}, "write by='name' or by='modified'"),
        ({"files": "landing/{time:%Y%m%dT%H}.parquet", "grace_seconds": -1}, "it must be at least 0"),
        (
            {"grace_seconds": float("nan")},
            "grace_seconds of boundary 'flights' is nan; it must be a number, and at least 0",
        ),
        ({"settle_seconds": float("inf")}, "settle_seconds of boundary 'flights' is inf; it must be a number"),
        ({"interval_seconds": 10**50}, "is a number of 51 digits; it must be at most 2,147,483,647"),
        ({"grace_seconds": "60"}, "is '60'; it must be a number, and at least 0"),
        ({"interval_seconds": 1.5}, "is 1.5; it must be a whole number, and at least 1"),
        ({"interval_seconds": True}, "is True; it must be a whole number, and at least 1"),
        ({"empty": True}, "has options for watched files and no files"),
        (
            {"files": "landing/*.parquet", "by": "modified", "partitions_def": dg.StaticPartitionsDefinition(["a"])},
            "time",
        ),
    ],
)
def test_a_boundary_that_cannot_work_is_refused_in_a_sentence(options, why):
    with pytest.raises((InvalidAsset, BadLandingPattern)) as refused:
        databuild_boundary("flights", **{"partitions_def": hourly, **options})

    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
