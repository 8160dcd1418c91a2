"""Several Dagster runs in threads of one process: the log handlers of dagster.yaml are made once."""

from functools import partial
from pathlib import Path

import dagster as dg

from databuild_dagster.bindings.adapter.runs_in_threads import allow_runs_in_threads
from databuild_dagster.warehouse.threads import in_own_thread

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


@dg.op
def says_its_number(context: dg.OpExecutionContext) -> None:
    context.log.info(f"run {context.run.tags['number']}")


@dg.job
def numbered() -> None:
    says_its_number()


def test_runs_in_threads_write_to_the_handlers_of_the_instance_and_end(tmp_path: Path) -> None:
    """Without `allow_runs_in_threads` the four threads wait for each other for ever."""
    file = tmp_path / "lines.log"
    (tmp_path / "dagster.yaml").write_text(WITH_A_HANDLER.format(file=file))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        allow_runs_in_threads(instance)

        def run(number: int) -> list[bool]:
            tags = {"number": str(number)}
            return [numbered.execute_in_process(instance=instance, tags=tags).success for _ in range(RUNS)]

        threads = [in_own_thread(partial(run, number), f"runs {number}") for number in range(THREADS)]

        assert [thread.result(MAX_SECONDS) for thread in threads] == [[True] * RUNS] * THREADS

    lines = file.read_text().splitlines()
    assert all(sum(f"run {number}" in line for line in lines) == RUNS for number in range(THREADS))


def test_a_second_call_keeps_the_handlers_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(WITH_A_HANDLER.format(file=tmp_path / "lines.log"))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        allow_runs_in_threads(instance)
        (before,) = instance.get_yaml_python_handlers()

        allow_runs_in_threads(instance)

        assert [*instance.get_yaml_python_handlers()] == [before]
