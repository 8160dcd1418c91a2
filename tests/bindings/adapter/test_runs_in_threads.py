"""Several Dagster runs in threads of one process: the log handlers of dagster.yaml are made once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg

from databuild_dagster.bindings.adapter.runs_in_threads import allow_runs_in_threads

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
RUNS = 8
#: A run takes less than a second.
MAX_SECONDS = 120


@dg.op
def says_its_number(context: dg.OpExecutionContext) -> None:
    context.log.info(f"run {context.run.tags['number']}")


@dg.job
def numbered() -> None:
    says_its_number()


def test_runs_in_threads_write_to_the_handlers_of_the_instance_and_end(tmp_path: Path) -> None:
    """Without it, four threads were seen to wait for each other at the second run."""
    file = tmp_path / "lines.log"
    (tmp_path / "dagster.yaml").write_text(WITH_A_HANDLER.format(file=file))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        allow_runs_in_threads(instance)
        threads = ThreadPoolExecutor(4)
        runs = [
            threads.submit(numbered.execute_in_process, instance=instance, tags={"number": str(number)})
            for number in range(RUNS)
        ]

        assert all(run.result(MAX_SECONDS).success for run in runs)

    lines = file.read_text()
    assert all(f"run {number}" in lines for number in range(RUNS))


def test_a_second_call_keeps_the_handlers_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(WITH_A_HANDLER.format(file=tmp_path / "lines.log"))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        allow_runs_in_threads(instance)
        (before,) = instance.get_yaml_python_handlers()

        allow_runs_in_threads(instance)

        assert [*instance.get_yaml_python_handlers()] == [before]
