"""`databuild build` with two more figures: seconds spent in Dagster's own writes, and the memory of this process.

    python -m bench.timed_build [--at-once N] REF…

The same code as the command, in a process of its own. What Dagster writes (events, runs, tags) is timed where
its storages are called, whichever thread calls them. Prints one line of JSON.
"""

import argparse
import functools
import json
import resource
import time
from collections.abc import Callable
from typing import Any

from databuild_dagster.bindings.local.building import build_refs
from databuild_dagster.bindings.local.tally import Tally
from databuild_dagster.bindings.reading.spark_resource import close_sessions
from databuild_dagster.calls.progress import BuildProgress
from databuild_dagster.cli.build import opened_workshop
from databuild_dagster.cli.options import Where
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.refs import parse_ref

EVENT_LOG_WRITES = ("store_event", "store_event_batch")
RUN_WRITES = ("add_run", "handle_run_event", "add_run_tags")


class Silent(BuildProgress):
    """Shows nothing."""

    def say(self, text: str) -> None: ...


class Clock:
    """Seconds of what it is wrapped around, and processor seconds of its threads; a call within a call counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.processor = 0.0
        self.calls = 0
        self._depth = 0

    def around(self, storage: object, name: str) -> Callable[..., Any]:
        """A method of a storage, as its class has it when it is called: the adapter gives the class a method of its own later."""

        @functools.wraps(getattr(storage, name))
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            began, used = time.perf_counter(), time.thread_time()
            try:
                return getattr(type(storage), name)(storage, *args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - began
                    self.processor += time.thread_time() - used
                    self.calls += 1

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description="A build with the seconds of Dagster's own writes.")
    parser.add_argument("--at-once", type=int, default=1, help="launches at a time")
    parser.add_argument("refs", nargs="+", type=parse_ref)
    options = parser.parse_args()
    refs = options.refs
    began = time.perf_counter()
    workshop = opened_workshop(Where((), (), (), None), at_once=options.at_once)
    instance = workshop.instance
    clock = Clock()
    for storage, names in ((instance.event_log_storage, EVENT_LOG_WRITES), (instance.run_storage, RUN_WRITES)):
        for name in names:
            setattr(storage, name, clock.around(storage, name))
    loaded, loaded_cpu = time.perf_counter() - began, time.process_time()

    queries = workshop.engine.queries
    progress = Silent(workshop.engine, Tally(queries, refs, queries.events.head().seq))
    command = CreateWants(wants=tuple((ref,) for ref in refs), comment="bench")
    began = time.perf_counter()
    built = build_refs(workshop, command, progress=progress)
    whole = time.perf_counter() - began

    assert not built.not_live, built.not_live[:3]
    close_sessions()
    answer = {
        "seconds": built.seconds,
        "with_copies": whole,
        "loading": loaded,
        "loading_cpu": loaded_cpu,
        "cpu": time.process_time(),
        "dagster_writes": clock.seconds,
        "dagster_writes_cpu": clock.processor,
        "n_dagster_writes": clock.calls,
        "launches": built.launches,
        "job_runs": built.succeeded,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
