"""Several Dagster runs in threads of one process: the log handlers of dagster.yaml are made once."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.orchestration.inprocess import allow_runs_in_threads

WITH_A_HANDLER = """
telemetry: {{enabled: false}}
python_logs:
  dagster_handler_config:
    handlers:
      ours:
        class: logging.FileHandler
        filename: {file}
        level: INFO
"""
THREADS = 4
#: In each thread, one after the other.
RUNS = 3
#: A run takes less than a second.
MAX_SECONDS = 120

RUNS_IN_THREADS = f"""
import sys
from functools import partial

import dagster as dg

from databuild_dagster.bindings.orchestration.inprocess import allow_runs_in_threads
from databuild_dagster.warehouse.threads import in_own_thread


@dg.op
def says_its_number(context):
    context.log.info(f"run {{context.run.tags['number']}}")


@dg.job
def numbered():
    says_its_number()


def run(number):
    return [numbered.execute_in_process(instance=instance, tags={{"number": str(number)}}) for _ in range({RUNS})]


with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
    allow_runs_in_threads(instance)
    threads = [in_own_thread(partial(run, number), f"runs {{number}}") for number in range({THREADS})]
    assert all(result.success for thread in threads for result in thread.result())
"""


@pytest.mark.long("a process whose threads wait for ever cannot end")
def test_runs_in_threads_write_to_the_handlers_of_the_instance_and_end(tmp_path: Path) -> None:
    """Without `allow_runs_in_threads` the four threads wait for each other for ever."""
    file = tmp_path / "lines.log"
    (tmp_path / "dagster.yaml").write_text(WITH_A_HANDLER.format(file=file))

    done = subprocess.run(
        [sys.executable, "-c", RUNS_IN_THREADS, str(tmp_path)], capture_output=True, text=True, timeout=MAX_SECONDS
    )

    assert done.returncode == 0, done.stderr
    lines = file.read_text().splitlines()
    assert all(sum(f"run {number}" in line for line in lines) == RUNS for number in range(THREADS))


def test_a_second_call_keeps_the_handlers_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(WITH_A_HANDLER.format(file=tmp_path / "lines.log"))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        allow_runs_in_threads(instance)
        (before,) = instance.get_yaml_python_handlers()

        allow_runs_in_threads(instance)

        assert [*instance.get_yaml_python_handlers()] == [before]
