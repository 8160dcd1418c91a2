"""The keys that other tools look at are copies, and follow the log, also after a crash (rule 10.2)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pandas as pd
import pytest

from databuild_dagster import databuild_asset, databuild_boundary
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.registry.instance import close_engine
from databuild_dagster.features.lots.copies import lot_copies
from databuild_dagster.features.lots.copies.lot_copies import (
    cursor_of,
    keep_copies,
    refresh_copies,
    repair_lot_copies,
    wrong_lot_copies,
)
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import asset_of, derive_partition_uuid
from databuild_dagster.store import log
from databuild_dagster.warehouse.errors import DiskTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    FileEntry,
    Manifest,
    ManifestState,
    manifest_fact,
    read_manifest,
    write_manifest,
)
from databuild_dagster.warehouse.removing import take_away
from tests.features.lots.deployed_world import DeployedWorld
from tests.support.catalog import HERE
from tests.support.dagster_files import fresh_instance
from tests.support.written import manifest_of

#: The copies follow the log, whose order is the same in both databases; two tests show that.
DATABASES = ("sqlite",)

hourly = dg.HourlyPartitionsDefinition("2023-02-27-00:00", end_date="2023-03-01-00:00")
HOUR, LOT = "2023-02-27-23:00", "20230227PT1H023"
FLIGHTS, DELAYS = f"flights@{HOUR}", f"delays@{HOUR}"
OF_FLIGHTS = f"datasets/name=flights/version=0/lot={LOT}"
OF_DELAYS = f"datasets/name=delays/version=20240101-00/lot={LOT}"
ARC = f"arcs/project=here/version=20240101-00/arc=delays/lot={LOT}"


@databuild_asset(partitions_def=hourly, subscribe=["flights"], tags={"databuild/version": "20240101-00"})
def delays(flights: pd.DataFrame) -> pd.DataFrame:
    return flights


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["eu/west", "..", "us"]), key_prefix="raw")
def regions() -> pd.DataFrame:
    return pd.DataFrame()


@databuild_asset
def report() -> pd.DataFrame:
    return pd.DataFrame()


class Place(DeployedWorld):
    """A world whose job runs write manifests, and whose ticks are recorded."""

    def __init__(self, instance: dg.DagsterInstance, root: str) -> None:
        super().__init__(instance, root)
        self.deployment = Deployment(location=HERE, warehouse=root)
        self.deploy(databuild_boundary("flights", partitions_def=hourly), delays, regions, report)

    def write(self, ref: str, uuid: str, job_run: str, state: ManifestState) -> ManifestFact:
        kept = state in (ManifestState.COMPLETE, ManifestState.PARTIAL)
        files = (FileEntry("part-0.parquet", 3, 1, "sha256:00"),) if kept else ()
        manifest = manifest_of(
            dataset=asset_of(ref), ref=ref, instance_uuid=uuid, job_run=job_run, state=state, files=files
        )
        uri = write_manifest(self.warehouse, manifest)
        return manifest_fact(manifest, uri)

    def arrive_with(self, ref: str, origin: str, state: ManifestState = ManifestState.COMPLETE) -> str:
        job_run = self.engine.new_id()
        uuid = derive_partition_uuid(job_run, ref)
        manifest = self.write(ref, uuid, job_run, state)
        arrival = Arrival(job_run_id=job_run, ref=ref, origin=origin, manifest=manifest)
        self.handle(c.ArriveLots(arrivals=(arrival,)))
        return uuid

    def build(self, ref: str, state: ManifestState = ManifestState.COMPLETE) -> str:
        job_run = self.job_run(ref)
        return self.succeed(ref, manifest=self.write(ref, self.uuid(ref), job_run, state))

    def fail_with(self, ref: str, state: ManifestState = ManifestState.PARTIAL) -> str:
        job_run = self.job_run(ref)
        self.write(ref, self.uuid(ref), job_run, state)
        self.fail(ref)
        return self.uuid(ref)

    def tick(self) -> list[str]:
        keep_copies(self.instance, self.deployment)
        return self.keys()

    def keys(self) -> list[str]:
        """The files among the keys, temporary ones included."""
        root = Path(self.warehouse.root)
        found = [path for top in ("datasets", "arcs") for path in (root / top).rglob("*") if path.is_file()]
        return sorted(str(path.relative_to(root)) for path in found)

    def says(self, key: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads((Path(self.warehouse.root) / key).read_bytes())
        return said

    def wrong(self) -> list[tuple[str, str]]:
        return sorted(
            (os.path.relpath(wrong.path, self.warehouse.root), wrong.why) for wrong in wrong_lot_copies(self.instance)
        )


@pytest.fixture
def place(shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("DATABUILD_DB_URL", shared_url)
    with fresh_instance() as instance:
        yield Place(instance, str(tmp_path / "warehouse"))
        # A database that a test has given back has the same url for the next one.
        close_engine(shared_url)


def test_a_lot_is_found_by_its_dataset_version_lot_and_state(place):
    uuid = place.arrive_with(FLIGHTS, "file:///a")

    assert place.tick() == [f"{OF_FLIGHTS}/state=complete/manifest.json"]

    copy = place.says(f"{OF_FLIGHTS}/state=complete/manifest.json")
    record = read_manifest(place.warehouse, "flights", uuid)
    path = os.path.join(place.warehouse.instance_dir("flights", uuid), "part-0.parquet")
    assert msgspec.convert(copy, Manifest, strict=False) == msgspec.structs.replace(
        record, uri_type="identifier", files=(msgspec.structs.replace(record.files[0], uri=path),)
    ), "the files are named by their whole paths, for the copy lies elsewhere"


def test_a_tainted_lot_has_no_manifest_for_others_until_the_taint_is_taken_back(place):
    place.arrive_with(FLIGHTS, "file:///a")
    keys = place.tick()
    taint = place.taint(FLIGHTS)

    assert place.tick() == []
    assert not (Path(place.warehouse.root) / OF_FLIGHTS).exists(), "not even a folder that is named after a state"
    place.untaint(taint)
    assert place.tick() == keys


def test_an_attempt_that_failed_has_a_key_of_its_own_and_its_retry_takes_it_away(place):
    """Rule 10.2: attempt for partial and removed."""
    place.arrive_with(FLIGHTS, "file:///a")
    failed = place.fail_with(DELAYS)
    assert place.tick()[:2] == [f"{ARC}/partial.arc", f"{OF_DELAYS}/state=partial/attempt={failed}/manifest.json"]

    place.taint(DELAYS)
    place.build(DELAYS)

    assert place.tick()[:2] == [f"{ARC}/complete.arc", f"{OF_DELAYS}/state=complete/manifest.json"]


def test_the_attempts_of_a_lot_that_is_not_live_stay_until_they_are_cleaned_up(place):
    """Rule 10.2: while it is tainted for a retry, is built again, and has failed again."""
    first = place.fail_with(DELAYS)
    kept = f"{OF_DELAYS}/state=partial/attempt={first}/manifest.json"
    assert place.tick() == [f"{ARC}/partial.arc", kept]
    place.taint(DELAYS)
    assert place.tick() == [f"{ARC}/partial.arc", kept]
    place.job_run(DELAYS)
    assert place.tick() == [f"{ARC}/running.arc", kept]
    place.write(DELAYS, place.uuid(DELAYS), place.canonical(DELAYS).job_run, ManifestState.PARTIAL)
    place.fail(DELAYS)
    second = f"{OF_DELAYS}/state=partial/attempt={place.uuid(DELAYS)}/manifest.json"
    assert place.tick() == [f"{ARC}/partial.arc", *sorted([kept, second])]

    take_away(place.warehouse, "delays", first)
    refresh_copies(place.instance, [DELAYS])

    removed = f"{OF_DELAYS}/state=removed/attempt={first}/manifest.json"
    assert place.keys() == [f"{ARC}/partial.arc", second, removed]
    assert place.wrong() == []


def test_an_arc_is_running_while_it_builds_or_waits_and_then_what_became_of_it(place):
    """Rule 10.5: that what it waits for has come is no event of its own."""
    place.job_run(DELAYS)
    assert place.tick() == [f"{ARC}/running.arc"]
    place.miss(DELAYS, FLIGHTS)
    assert place.tick() == [f"{ARC}/running.arc"]
    place.arrive_with(FLIGHTS, "file:///a")
    assert place.tick()[0] == f"{ARC}/missing.arc", "no process works on it before the next tick starts it again"

    uuid = place.build(DELAYS)
    assert place.tick()[0] == f"{ARC}/complete.arc"

    assert place.says(f"{ARC}/complete.arc") == {
        "arc": "delays",
        "lot": LOT,
        "ref": DELAYS,
        "state": "complete",
        "instance_uuid": uuid,
    }


def test_a_manifest_without_its_event_has_no_key(place):
    """Rule 10.2: the log is the authority; a lost process may have finished, and its manifest is not read."""
    job_run = place.job_run(DELAYS)
    place.write(DELAYS, place.uuid(DELAYS), job_run, ManifestState.COMPLETE)
    place.lose(DELAYS)

    assert place.tick() == [f"{ARC}/partial.arc"]


def test_a_live_lot_with_an_unreadable_manifest_has_no_copy_and_stops_no_other(place):
    uuid = place.arrive_with(FLIGHTS, "file:///a")
    Path(place.warehouse.manifest_path("flights", uuid)).write_bytes(b"{")
    place.build("report")

    assert place.tick() == ["datasets/name=report/version=0/lot=_/state=complete/manifest.json"]


def test_a_tick_without_news_asks_where_the_log_ends_and_nothing_else(place, monkeypatch):
    """Rule 11.3"""
    place.arrive_with(FLIGHTS, "file:///a")
    place.tick()
    asked = []
    ask = place.store.ask
    monkeypatch.setattr(place.store, "ask", lambda *question: asked.append(question) or ask(*question))
    monkeypatch.setattr(type(place.instance), "daemon_cursor_storage", property(lambda _: pytest.fail("was asked")))

    place.tick()

    assert [sql for sql, *_ in asked] == [log.HEAD]


@pytest.mark.databases("sqlite", "postgres")
def test_a_tick_stops_at_its_limit_and_the_next_one_continues(place, monkeypatch):
    """One event may have more refs than a tick may write."""
    keys = [f"2023-02-27-{hour:02}:00" for hour in range(9)]
    arrivals = []
    for key in keys:
        job_run = place.engine.new_id()
        ref = f"flights@{key}"
        manifest = place.write(ref, derive_partition_uuid(job_run, ref), job_run, ManifestState.COMPLETE)
        arrivals.append(Arrival(job_run_id=job_run, ref=ref, origin=key, manifest=manifest))
    place.handle(c.ArriveLots(arrivals=tuple(arrivals)))
    place.build("report")
    monkeypatch.setattr(lot_copies, "MAX_REFS", 4)
    monkeypatch.setattr(lot_copies, "PORTION", 2)

    n_keys = [len(place.tick()) for _ in range(5)]

    assert n_keys == [4, 8, 10, 10, 10]
    assert place.wrong() == []


def test_many_lots_that_stop_waiting_at_once_are_written_in_shares_too(place, monkeypatch):
    """They waited for one event, and record none of their own."""
    hours = [f"2023-02-27-{hour:02}:00" for hour in range(5)]
    for hour in hours:
        place.miss(f"delays@{hour}", f"flights@{hour}")
    assert len(place.tick()) == 5
    for hour in hours:
        place.arrive_with(f"flights@{hour}", "file:///a")
    monkeypatch.setattr(lot_copies, "MAX_REFS", 2)
    monkeypatch.setattr(lot_copies, "PORTION", 2)

    n_missing = [sum(key.endswith("/missing.arc") for key in place.tick()) for _ in range(3)]
    n_keys = [len(place.tick()) for _ in range(3)]

    assert n_missing == [2, 4, 5]
    assert n_keys[-1] == 10
    assert place.wrong() == []


def test_a_copy_that_a_tick_will_rewrite_is_not_wrong(place, monkeypatch):
    place.arrive_with(FLIGHTS, "file:///a")
    place.tick()
    place.arrive_with(FLIGHTS, "file:///b", ManifestState.EMPTY)

    assert place.wrong() == []


@pytest.mark.parametrize("after", range(4))
def test_a_death_between_two_writes_is_repaired_by_the_next_writer(place, monkeypatch, after):
    place.arrive_with(FLIGHTS, "file:///a", ManifestState.EMPTY)
    place.tick()
    place.arrive_with(FLIGHTS, "file:///b")
    place.build(DELAYS)
    from databuild_dagster.warehouse import disk

    left = [after]
    replace, remove = disk.replace, disk.remove_files

    def dying(do):
        def done(*arguments):
            if left[0] == 0:
                raise DiskTrouble(path="x", done="written", why="killed")
            left[0] -= 1
            return do(*arguments)

        return done

    monkeypatch.setattr(disk, "replace", dying(replace))
    monkeypatch.setattr(disk, "remove_files", dying(remove))
    place.tick()
    monkeypatch.setattr(disk, "replace", replace)
    monkeypatch.setattr(disk, "remove_files", remove)
    place.engine.memory.forget()  # It is another process.

    assert place.tick() == [
        f"{ARC}/complete.arc",
        f"{OF_DELAYS}/state=complete/manifest.json",
        f"{OF_FLIGHTS}/state=complete/manifest.json",
    ]
    assert place.wrong() == []


def test_the_last_writer_has_seen_the_newest_instance(place, monkeypatch):
    """Two orchestrators: one has looked, then the other has written what came meanwhile."""
    place.arrive_with(FLIGHTS, "file:///a")
    put, late = lot_copies.put_all_copies, []

    def overtaken(*arguments):
        if not late:
            late.append(place.arrive_with(FLIGHTS, "file:///b"))
        return put(*arguments)

    monkeypatch.setattr(lot_copies, "put_all_copies", overtaken)
    monkeypatch.setattr(lot_copies, "in_threads", lambda do, values: [do(value) for value in values])

    place.tick()

    assert place.says(f"{OF_FLIGHTS}/state=complete/manifest.json")["instance_uuid"] == late[0]


def test_another_warehouse_gets_all_keys_of_what_is_live_wherever_that_lies(place, tmp_path):
    uuid = place.arrive_with(FLIGHTS, "file:///a")
    place.tick()
    there = Warehouse(str(tmp_path / "there"))

    keep_copies(place.instance, Deployment(location="here", warehouse=there.root))

    copy = json.loads((Path(there.root) / OF_FLIGHTS / "state=complete/manifest.json").read_bytes())
    assert copy["files"][0]["uri"].startswith(place.warehouse.instance_dir("flights", uuid))
    assert cursor_of(place.instance, "here").warehouse == there.root


def test_trouble_with_the_warehouse_is_logged_and_made_good_by_the_next_tick(place, caplog):
    place.arrive_with(FLIGHTS, "file:///a")
    blocked = Path(place.warehouse.root) / "datasets"
    blocked.write_bytes(b"a file where a folder has to be")

    place.tick()
    assert "could not be brought up to date" in caplog.text
    blocked.unlink()

    assert place.tick() == [f"{OF_FLIGHTS}/state=complete/manifest.json"]


# Check and repair


def spoilt(place: Place) -> None:
    """One key is lost, one says something else, one is another version's, one of no ref, and one half written."""
    root = Path(place.warehouse.root)
    (root / OF_FLIGHTS / "state=complete/manifest.json").unlink()
    (root / ARC / "complete.arc").write_bytes(b"{}")
    for stray in (
        "datasets/name=flights/version=7/lot=x/state=complete/manifest.json",
        f"{OF_DELAYS}/state=partial/attempt=y/manifest.json",
        f"{OF_DELAYS}/state=complete/.manifest.json.0123",
        "datasets/name=flights/note",
    ):
        (root / stray).parent.mkdir(parents=True, exist_ok=True)
        (root / stray).write_bytes(b"x")
    (root / "datasets" / "mine.txt").write_bytes(b"not among the keys")


def test_a_copy_that_disagrees_with_the_log_is_found(place):
    place.arrive_with(FLIGHTS, "file:///a")
    place.build(DELAYS)
    place.tick()
    assert place.wrong() == []

    spoilt(place)

    assert place.wrong() == sorted(
        [
            (f"{ARC}/complete.arc", "it differs from the record"),
            ("datasets/name=flights/note", "it belongs to no ref"),
            ("datasets/name=flights/version=7/lot=x/state=complete/manifest.json", "it belongs to no ref"),
            (f"{OF_DELAYS}/state=complete/.manifest.json.0123", "it should not be there any more"),
            (f"{OF_DELAYS}/state=partial/attempt=y/manifest.json", "it should not be there any more"),
            (f"{OF_FLIGHTS}/state=complete/manifest.json", "it is missing"),
        ]
    )


@pytest.mark.databases("sqlite", "postgres")
def test_a_repair_puts_all_of_it_right_and_says_how_many(place):
    place.arrive_with(FLIGHTS, "file:///a")
    place.build(DELAYS)
    keys = place.tick()
    spoilt(place)

    assert repair_lot_copies(place.instance)._asdict() == {"written": 2, "removed": 4, "refs": 2}

    assert place.keys() == sorted([*keys, "datasets/mine.txt"])
    assert place.wrong() == []
    assert repair_lot_copies(place.instance)._asdict() == {"written": 0, "removed": 0, "refs": 2}


def test_check_names_a_new_version_of_a_dataset_and_a_repair_moves_all_copies(place):
    place.build("report")
    place.tick()

    @databuild_asset(name="report", tags={"databuild/version": "2"})
    def newer() -> pd.DataFrame:
        return pd.DataFrame()

    place.deploy(databuild_boundary("flights", partitions_def=hourly), delays, regions, newer)
    place.tick()
    assert len(place.wrong()) == 2

    repair_lot_copies(place.instance)

    assert place.keys() == ["datasets/name=report/version=2/lot=_/state=complete/manifest.json"]
