"""`databuild build` of the example with each asset published as a table, and the processor time of the publications.

    python -m bench.published_year REF…

The same code as the command, in a process of its own; only the default `publish=Iceberg()` is added to the definitions. A
publication runs in a thread of its own and reads footers in a few more; the time is that of these threads. Prints one line of JSON.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

import databuild_dagster
from bench.timed_build import Silent
from databuild_dagster import Iceberg
from databuild_dagster.bindings.local.building import Workshop, build_refs
from databuild_dagster.bindings.local.tally import Tally
from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.cli.definitions import load_deployed
from databuild_dagster.cli.options import Where
from databuild_dagster.cli.state import the_instance
from databuild_dagster.features.tables import live_files, publisher, table_publishing
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.refs import parse_ref


class ThreadSeconds:
    """Processor seconds of the threads that call a function, and its calls."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0
        self._lock = Lock()

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - began
                    self.calls += 1

        return timed


def main() -> None:
    refs = [parse_ref(text) for text in sys.argv[1:]]
    follows, read_footers = ThreadSeconds(), ThreadSeconds()
    table_publishing.follow = follows.around(publisher.follow)  # type: ignore[attr-defined]
    # One footer is read by the thread of its publication, whose time has it already.
    live_files._read_footer = read_footers.around(live_files._read_footer)
    databuild_dagster.build_definitions = functools.partial(databuild_dagster.build_definitions, publish=Iceberg())
    instance = the_instance()
    workshop = Workshop.opened(instance, load_deployed(Where((), (), (), None)))
    queries = workshop.engine.queries
    progress = Silent(workshop.engine, Tally(queries, refs, queries.events.head().seq))
    began_cpu, began = time.process_time(), time.perf_counter()
    command = CreateWants(wants=tuple((ref,) for ref in refs), comment="bench")
    built = build_refs(workshop, command, progress=progress)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    assert not built.not_live, built.not_live[:3]
    close_sessions()
    from databuild_dagster.features.tables.table_lags import table_lags

    lags = table_lags(instance, queries.datasets.all().values())
    assert {lag.partitions_behind for lag in lags} == {0}, lags
    answer = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "publishing_cpu_seconds": follows.seconds + read_footers.seconds,
        "looks": follows.calls,
        "tables": len(lags),
        "job_runs": built.succeeded,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
