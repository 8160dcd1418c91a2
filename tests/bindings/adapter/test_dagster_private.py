"""What Dagster does not promise and the package uses; the tests of the callers use the names that are missing here."""

import os
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


BUILDING = """
import sys, time
from dagster._core.execution import compute_logs
from databuild_dagster.bindings.adapter.dagster_private import shield_log_tails
shield_log_tails()
with compute_logs.tail_to_stream(sys.argv[1], sys.stdout):
    print("watched", file=sys.stderr, flush=True)
    time.sleep(1_000)
"""


@pytest.mark.long("only a process can be ended")
def test_a_process_that_prints_ends_with_the_process_that_builds_and_nobody_waits_for(tmp_path: Path) -> None:
    printed = tmp_path / "output"
    printed.write_text("a line\n")
    command = [sys.executable, "-c", BUILDING, str(printed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as building:
        assert building.stdout is not None
        assert building.stderr is not None
        # The process that prints starts before its watch: the line alone would not show that there is one.
        assert building.stderr.readline() == b"watched\n"
        assert building.stdout.readline() == b"a line\n"

        building.kill()

        # The end of the output is the end of the process that prints; `communicate` waits for the other one afterwards.
        assert building.communicate(timeout=250)[0] == b""


@pytest.mark.long("only processes have children")
def test_the_end_of_a_step_leaves_no_process_behind() -> None:
    shell = dagster_private._in_its_own_session([sys.executable, "watch_orphans.py", str(os.getpid()), "0"])

    shell.terminate()
    shell.communicate(timeout=250)

    with pytest.raises(ProcessLookupError):
        os.killpg(shell.pid, 0)
