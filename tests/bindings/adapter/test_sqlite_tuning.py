"""Dagster's SQLite files are written through engines that stay: cheaper, and nothing else is different."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.adapter import sqlite_tuning as tuning
from databuild_dagster.bindings.adapter.sqlite_tuning import MAX_KEPT_OPEN, tune_dagster_writes

ASSET = dg.AssetKey("orders")


@pytest.fixture(autouse=True)
def tuned() -> None:
    tune_dagster_writes()


def instance_at(home: Path) -> dg.DagsterInstance:
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").touch()
    return dg.DagsterInstance.from_config(str(home))


def record(instance: dg.DagsterInstance, day: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(ASSET, partition=day))


def test_an_engine_is_made_once_per_file_and_not_once_per_event(tmp_path: Path) -> None:
    with instance_at(tmp_path / "home") as instance:
        record(instance, "1")
        before = dict(tuning._kept)

        record(instance, "2")

        assert {key: tuning._kept[key] for key in before} == before
        assert instance.get_materialized_partitions(ASSET) == {"1", "2"}


def test_a_connection_that_is_not_tuned_reads_what_was_written_at_once(tmp_path: Path) -> None:
    index = tmp_path / "home" / "history" / "runs" / "index.db"
    with instance_at(tmp_path / "home") as instance:
        record(instance, "1")

        with closing(sqlite3.connect(index)) as other:
            found = other.execute("SELECT asset_key, partition FROM event_logs").fetchall()

    assert found == [(ASSET.to_string(), "1")]


def test_a_home_that_was_removed_and_made_again_is_another_home(tmp_path: Path) -> None:
    with instance_at(tmp_path / "home") as instance:
        record(instance, "1")
    shutil.rmtree(tmp_path / "home")

    with instance_at(tmp_path / "home") as instance:
        record(instance, "2")

        assert instance.get_materialized_partitions(ASSET) == {"2"}
    assert (tmp_path / "home" / "history" / "runs" / "index.db").exists()


def test_a_forked_process_has_connections_of_its_own(tmp_path: Path) -> None:
    with instance_at(tmp_path / "home") as instance:
        record(instance, "1")
        child = os.fork()
        if not child:
            record(instance, "2")
            os._exit(0 if {key[0] for key in tuning._kept} == {os.getppid(), os.getpid()} else 1)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert instance.get_materialized_partitions(ASSET) == {"1", "2"}


def test_files_of_many_runs_do_not_stay_open_for_ever(tmp_path: Path) -> None:
    with instance_at(tmp_path / "home") as instance:
        for number in range(MAX_KEPT_OPEN + 5):
            with instance.event_log_storage.run_connection(f"run-{number}"):  # type: ignore[attr-defined]
                pass

    assert len(tuning._kept) <= MAX_KEPT_OPEN
