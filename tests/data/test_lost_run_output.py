"""Finished output of a dead process is adopted; the rest is built again, and its files are removed (rule 6.9)."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from databuild_dagster import BuildContext, databuild_asset
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.data.lost_run_output import LATE_SECONDS, WarehouseRemains, adopt, adoptable
from databuild_dagster.engine.holders import this_process
from databuild_dagster.model.commands import (
    BufferLaunch,
    CancelJobRuns,
    CreateWants,
    FailJobRuns,
    LoseLaunches,
    RunFailure,
    SucceedJobRuns,
    TaintPartitions,
)
from databuild_dagster.model.events import BufferedRun
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.surroundings import MAX_LOSSES
from databuild_dagster.warehouse.errors import StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest
from databuild_dagster.warehouse.removing import take_away
from tests.bindings.conftest import claim
from tests.support.attempts import Attempts, attempts
from tests.support.dead_process import dead_process
from tests.support.instances import write_instance

__all__ = ["attempts"]

DAYS = ["2013-01-01", "2013-01-02"]
REFS = [f"numbers@{day}" for day in DAYS]
OTHER = "numbers@2013-01-03"


@databuild_asset(partitions_def=dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01"), code_version="7")
def numbers(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"day": [context.partition_key]})


@pytest.fixture
def site(deploy: Any) -> Any:
    return deploy(numbers)


def claimed_by_a_dead_process(site: Any) -> list[str]:
    """Two days, each a job run that a process had begun; it is gone."""
    return claim(site.engine, *REFS, holder=dead_process(), code_version="7")


def written(site: Any, job_run: str, ref: str, **facts: Any) -> Any:
    return write_instance(
        pd.DataFrame({"day": ["as the dead wrote it"]}),
        Warehouse(warehouse_of(site.instance)),
        ref=ref,
        uuid=derive_partition_uuid(job_run, ref),
        job_run=job_run,
        **facts,
    )


def test_what_was_finished_is_adopted_and_shown_and_the_rest_is_built_again(site: Any) -> None:
    finished, begun = claimed_by_a_dead_process(site)
    written(site, finished, REFS[0])

    site.build(most_ticks=30)
    site.build(*REFS)

    assert [site.state(ref) for ref in REFS] == [InstanceState.LIVE, InstanceState.LIVE]
    assert site.rows(REFS[0]) == [{"day": "as the dead wrote it"}]
    assert site.rows(REFS[1]) == [{"day": DAYS[1]}]
    states = {run.id: run.state for run in site.engine.queries.job_runs.newest()}
    assert (states[finished], states[begun]) == (JobRunState.SUCCEEDED, JobRunState.LOST)
    assert len(site.engine.queries.instances.history(REFS[0])) == 1, "it was built once"
    assert site.engine.queries.canonical.of([REFS[0]])[REFS[0]].code_version == "7"
    assert site.materialized("numbers") == DAYS


# A job run that is lost already


def later(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backoff of the lost job run is over, and the next tick builds its ref."""
    monkeypatch.setattr(site.engine, "clock", lambda: time.time() + 3600.0)
    site.build()


def lose(site: Any) -> None:
    launches = tuple(launch.launch_id for launch in site.engine.queries.launches.open())
    site.engine.handle(LoseLaunches(launch_ids=launches, reason="its process is gone"))


@pytest.fixture
def lost(site: Any) -> Any:
    """The manifest of a job run that had finished, and was declared lost by the tick of another location."""
    finished, _ = claimed_by_a_dead_process(site)
    manifest = written(site, finished, REFS[0])
    lose(site)
    return manifest


def adopted_from(site: Any) -> str | None:
    canonical = site.engine.queries.canonical.of([REFS[0]])[REFS[0]]
    assert canonical.state is InstanceState.LIVE
    warehouse = Warehouse(warehouse_of(site.instance))
    return read_manifest(warehouse, "numbers", canonical.uuid).adopted_from


def test_the_next_job_run_adopts_what_a_lost_one_had_finished(
    site: Any, lost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(site, monkeypatch)

    assert adopted_from(site) == lost.instance_uuid
    assert site.rows(REFS[0]) == [{"day": "as the dead wrote it"}]
    assert site.rows(REFS[1]) == [{"day": DAYS[1]}]
    before, now = site.engine.queries.instances.history(REFS[0])
    assert (before.state, now.state, now.job_run != before.job_run) == (
        InstanceState.UP_FOR_RETRY,
        InstanceState.LIVE,
        True,
    )
    assert site.materialized("numbers") == DAYS


@pytest.mark.feature("clean")
def test_the_clean_up_of_what_was_adopted_removes_nothing_of_it(
    site: Any, lost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from databuild_dagster.features.clean.cleaning import Cleaner

    later(site, monkeypatch)
    warehouse = Warehouse(warehouse_of(site.instance))
    cleaner = Cleaner(site.engine, warehouse.root)

    first, second = (cleaner.carry_out(cleaner.plan_clean()) for _ in range(2))

    assert [going.uuid for going in first.going] == [lost.instance_uuid]
    assert (second.going, second.finished) == ([], [])
    assert site.rows(REFS[0]) == [{"day": "as the dead wrote it"}]


def test_a_lost_job_run_is_not_adopted_after_a_new_want(site: Any, lost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may ask for a rebuild."""
    site.engine.handle(CreateWants(wants=((REFS[0],),), rebuild=True))

    later(site, monkeypatch)

    assert adopted_from(site) is None


def test_a_lost_job_run_is_not_adopted_after_a_taint(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was lost too often, and a person says that the cause is repaired: everything is built again."""
    for hour in range(MAX_LOSSES):
        monkeypatch.setattr(site.engine, "clock", partial(float, time.time() + hour * 3600.0))
        finished, _ = claimed_by_a_dead_process(site)
        written(site, finished, REFS[0])
        lose(site)
    assert site.state(REFS[0]) is InstanceState.FAILED
    site.engine.handle(TaintPartitions(refs=(REFS[0],), reason="repaired"))

    site.build(REFS[0])

    assert adopted_from(site) is None
    assert site.rows(REFS[0]) == [{"day": DAYS[0]}]


@pytest.fixture
def asked(site: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the next job run of the first day would adopt."""
    job_run = site.engine.new_id()

    def ask(code_version: str | None = "7", inputs: dict[Any, str] | None = None) -> Any:
        queries, warehouse = site.engine.queries, Warehouse(warehouse_of(site.instance))
        if queries.job_runs.get(job_run) is None:
            monkeypatch.setattr(site.engine, "clock", lambda: time.time() + 3600.0)
            runs = (BufferedRun(job_run, (REFS[0],), DAYS[0]),)
            launch_id = site.engine.new_id()
            site.engine.handle(
                BufferLaunch(launch_id=launch_id, job="numbers", location="tests", owner="here", runs=runs)
            )
        return adoptable(queries, warehouse, job_run, REFS[0], inputs or {}, code_version)

    return ask


def test_a_lost_job_run_of_other_code_or_without_a_file_is_not_adopted(site: Any, lost: Any, asked: Any) -> None:
    assert asked() == lost
    assert asked(code_version="8") is None
    assert asked(code_version=None) is None

    folder = Warehouse(warehouse_of(site.instance)).instance_dir("numbers", lost.instance_uuid)
    Path(folder, lost.files[0].uri).unlink()
    assert asked() is None


def test_a_lost_job_run_is_adopted_while_its_inputs_are_what_readers_see(site: Any, asked: Any) -> None:
    site.build(OTHER)
    uuid = site.engine.queries.canonical.of([OTHER])[OTHER].uuid
    finished, _ = claimed_by_a_dead_process(site)
    manifest = written(site, finished, REFS[0], inputs={OTHER: uuid})
    lose(site)

    assert asked(inputs={OTHER: uuid}) == manifest
    assert asked(inputs={OTHER: "of another build"}) is None
    site.engine.handle(TaintPartitions(refs=(OTHER,), reason="wrong"))
    assert asked() is None
    site.build(OTHER)
    assert asked() is None


def test_a_failed_job_run_is_not_adopted(site: Any, asked: Any) -> None:
    """It may have been stopped because of its data."""
    finished, _ = claimed_by_a_dead_process(site)
    written(site, finished, REFS[0])
    site.engine.handle(FailJobRuns(failures=(RunFailure(finished, "the server was lost", "transient"),)))

    assert asked() is None


def stop_by_a_gate(manifest: Path, _: Path) -> None:
    before = manifest.read_text()
    assert '"complete"' in before
    manifest.write_text(before.replace('"complete"', '"partial"'))


#: Ways to spoil a manifest or its file.
SPOILED: dict[str, Callable[[Path, Path], object]] = {
    "stopped by a gate": stop_by_a_gate,
    "without its file": lambda _, file: file.unlink(),
    "damaged": lambda manifest, _: manifest.write_text("garbage"),
    "newer": lambda manifest, _: manifest.write_text('{"schema_version": 99}'),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_output_that_is_not_complete_is_not_adopted_and_stops_no_tick(
    site: Any, spoil: Callable[[Path, Path], object]
) -> None:
    finished, _ = claimed_by_a_dead_process(site)
    manifest = written(site, finished, REFS[0])
    path = Path(Warehouse(warehouse_of(site.instance)).manifest_path("numbers", manifest.instance_uuid))
    spoil(path, path.parent / manifest.files[0].uri)

    site.build()

    assert {run.id: run.state for run in site.engine.queries.job_runs.newest()}[finished] is JobRunState.LOST


def test_of_what_a_dead_process_had_begun_nothing_is_left_once_it_is_lost(site: Any) -> None:
    finished, begun = claimed_by_a_dead_process(site)
    warehouse = Warehouse(warehouse_of(site.instance))
    written(site, finished, REFS[0])
    half = Path(warehouse.instance_dir("numbers", derive_partition_uuid(begun, REFS[1])))
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"half of it")
    staged = [Path(warehouse.new_staging_dir(job_run)) for job_run in (finished, begun)]
    for folder in staged:
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(b"half of it")

    site.build(most_ticks=30)

    assert not half.exists()
    assert not any(folder.exists() for folder in staged)
    assert site.state(REFS[0]) is InstanceState.LIVE
    assert site.rows(REFS[0]) == [{"day": "as the dead wrote it"}], "what was adopted is no remains"


def test_a_clean_up_that_was_itself_killed_is_gone_on_with(site: Any) -> None:
    """The staging folder goes last, so that the next tick knows of it."""
    _, begun = claimed_by_a_dead_process(site)
    site.build()
    warehouse = Warehouse(warehouse_of(site.instance))
    half = Path(warehouse.instance_dir("numbers", derive_partition_uuid(begun, REFS[1])))
    half.mkdir(parents=True)
    staged = Path(warehouse.new_staging_dir(begun))
    staged.mkdir()

    site.build()

    assert not half.exists()
    assert not staged.exists()


def test_what_a_live_process_is_writing_is_left_alone(site: Any) -> None:
    (job_run,) = claim(site.engine, REFS[0], holder=this_process(), code_version="7")
    site.engine.handle(CancelJobRuns(job_run_ids=(job_run,), reason="no more"))
    warehouse = Warehouse(warehouse_of(site.instance))
    staged, others = (Path(warehouse.new_staging_dir(name)) for name in (job_run, site.engine.new_id()))
    for folder in (staged, others):
        folder.mkdir()

    assert WarehouseRemains(site.engine, warehouse.root).clear() == []

    assert staged.exists(), "it may not have heard of its end yet"
    assert others.exists(), "of another home, which has the same cache"


# Attempts of a Spark elsewhere


@pytest.mark.feature("clean")
def test_a_manifest_of_an_attempt_is_adopted_though_its_process_is_dead(attempts: Attempts) -> None:
    """Killed between the manifest and the event: its files are no leftovers meanwhile."""
    attempts.world.start("days@1", "days@2")
    folder = attempts.write(attempts.world.job_run("days@1"), "days@1", "days@2")
    manifest = attempts.publish("days@1", folder)
    run = attempts.world.queries.job_runs.get(manifest.job_run)
    assert attempts.clean().leftovers == []

    (success,) = attempts.remains.finished([run])

    assert success.outputs[0].manifest.uri == attempts.warehouse.manifest_path("days", manifest.instance_uuid)
    attempts.world.handle(SucceedJobRuns(runs=(success,)))
    attempts.world.lose("days@2")
    attempts.world.clock.turn(2 * LATE_SECONDS)
    attempts.clean()
    assert set(attempts.listed(manifest)) < set(attempts.files()), "its batch lost the other file"
    assert len(attempts.files()) == 2


def test_the_attempts_of_a_dead_launch_are_cleared_but_for_listed_files(attempts: Attempts) -> None:
    launch = attempts.world.start("days@1", "days@2", "days@3")
    used = attempts.write(attempts.world.job_run("days@1"), "days@1", "days@2")
    manifest = attempts.publish("days@1", used)
    attempts.succeed(manifest)
    attempts.publish("days@2", used)
    attempts.write(attempts.world.job_run("days@3"), "days@3")
    attempts.world.lose("days@2")
    assert attempts.remains.clear([launch]) == []
    attempts.world.clock.turn(2 * LATE_SECONDS)

    assert attempts.remains.clear([launch]) == [launch]

    assert attempts.files() == sorted([*attempts.listed(manifest), f"{Path(used).name}/_SUCCESS"])


@pytest.fixture
def taken_over(attempts: Attempts) -> Any:
    """A finished manifest of a lost job run, and the job run that is to adopt it."""
    folder = attempts.write(attempts.world.job_run("days@1"), "days@1")
    lost = attempts.publish("days@1", folder)
    attempts.world.lose("days@1")
    attempts.world.clock.turn(2 * LATE_SECONDS)
    return lost, attempts.world.job_run("days@1")


@pytest.mark.feature("clean")
def test_an_adopted_attempt_outlives_the_instance_that_it_came_from(attempts: Attempts, taken_over: Any) -> None:
    lost, job_run = taken_over
    adopted = adopt(attempts.warehouse, lost, job_run, 2)
    attempts.succeed(adopted)

    done = attempts.clean()

    assert [going.uuid for going in done.going] == [lost.instance_uuid]
    assert adopted.files == lost.files
    assert set(attempts.listed(adopted)) < set(attempts.files())


def test_an_attempt_is_not_adopted_that_a_clean_up_is_removing(attempts: Attempts, taken_over: Any) -> None:
    lost, job_run = taken_over
    take_away(attempts.warehouse, "days", lost.instance_uuid)

    with pytest.raises(StorageTrouble, match="another process removed it at the same time"):
        adopt(attempts.warehouse, lost, job_run, 2)
