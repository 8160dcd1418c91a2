"""What Dagster does not promise and the package uses; the tests of the callers use the names that are missing here."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.adapter import dagster_private, dagster_storage
from tests.support.dagster_files import fresh_instance


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with fresh_instance() as instance:
        yield instance


def test_a_run_is_left_out_of_the_list_of_runs_and_its_checks_out_of_its_target(instance: dg.DagsterInstance) -> None:
    check = dg.AssetCheckKey(dg.AssetKey("a"), "c")
    run = instance.add_run(dg.DagsterRun("job", tags={"a": "b"}, asset_check_selection=frozenset({check})))

    dagster_storage.leave_out_of_run_list(instance, run.run_id)
    dagster_storage.target_assets_alone(instance, run)

    assert instance.get_runs(dg.RunsFilter(exclude_subruns=True)) == []
    (found,) = instance.get_runs(dg.RunsFilter(tags={"a": "b"}))
    assert (found.run_id, found.asset_check_selection) == (run.run_id, None)


WITHOUT_A_NAME = """
import dagster._core.definitions.data_version as module
del module.NULL_EVENT_POINTER
from databuild_dagster.cli.main import run
raise SystemExit(run(["build", "a", "-f", "definitions.py"]))
"""


@pytest.mark.long("a process that imports a name which Dagster lacks")
def test_a_dagster_without_one_of_these_names_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text(
        "import databuild_dagster\ndefs = databuild_dagster.build_definitions([])\n"
    )
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_NAME],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert f"Dagster {dg.__version__} lacks a name that this version of databuild_dagster uses" in done.stderr
    assert "cannot import name 'NULL_EVENT_POINTER'" in done.stderr
    assert "pip install 'dagster>=1.12,<1.14'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long("only a process can be ended")
def test_a_process_that_prints_ends_with_the_process_that_builds() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(250)
    printing = subprocess.Popen(["tail", "-f", "/dev/null"])

    subprocess.run(["sh", "-c", dagster_private._WATCH, "watch", str(gone.pid), str(printing.pid)], timeout=250)

    assert printing.wait(250) == -signal.SIGTERM
