"""`build`: what `databuild build` does, in a script or a notebook."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from databuild_dagster.bindings.local.building import BuildResult, Workshop, build_refs
from databuild_dagster.bindings.local.interrupts import Stopped, interrupts_restored
from databuild_dagster.bindings.local.second_builds import checked_sample
from databuild_dagster.bindings.local.tally import Tally
from databuild_dagster.calls.place import Refs, opened
from databuild_dagster.calls.progress import BuildProgress, SparkJobs
from databuild_dagster.calls.streams import say, screen, warn
from databuild_dagster.engine.ports import Sample
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.errors import InvalidRequest, Refused
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.queries import Queries

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from databuild_dagster.bindings.local.locations import AnyDefinitions


#: One build of this process at a time: Dagster configures logging for the whole process at each run, which blocks for ever
#: beside a run in another thread, and an interrupt cancels all job runs of the process.
_one_build = threading.RLock()


class NothingStale(Refused):
    """Nothing that is live was built from an earlier instance of {refs}."""

    hint = "So there is nothing to rebuild."


class BuildInterrupted(KeyboardInterrupt):
    """A build was interrupted and has cleaned up: its job runs and, without `keep_want`, its wants are canceled."""

    #: The outcome up to then.
    result: BuildResult

    def __init__(self, result: BuildResult) -> None:
        super().__init__(f"{result.sentence} The same call continues.")
        self.result = result


def build(
    refs: Refs,
    *,
    definitions: AnyDefinitions | None = None,
    only: str | Iterable[str] = (),
    rebuild: bool = False,
    fresh: bool = False,
    verify: float | None = None,
    downstream: bool = False,
    retry: bool = False,
    fail_fast: bool = False,
    keep_want: bool = False,
    priority: int = 0,
    comment: str = "build()",
    timeout_seconds: float | None = None,
    at_once: int | Literal["auto"] = "auto",
    progress: bool = True,
    home: str | Path | None = None,
    instance: DagsterInstance | None = None,
) -> BuildResult:
    """Build refs and what they need in this process, and wait for the end, as `databuild build`: `build("sales@2024-01-01..2024-01-31")`.

    `refs` is a ref, a range, or several of them. `definitions` is what `build_definitions` returned, a module, a
    file, or several of them; without it, the project in the working directory. `progress` is shown on a terminal and in a notebook.
    The instance is `instance`, that of `home`, of DAGSTER_HOME, or the `.dagster_home` of the project, which is made. Other
    options are those of the command.

    A failure of an asset is no error: look at the result, or call `build(…).check()`. An interrupt cancels the job runs and the
    wants, and raises `BuildInterrupted`. It reaches a build in the main thread alone; in other threads a build also takes no
    `timeout_seconds`. Builds of several threads run one after another. Raises a `DatabuildError` before anything is recorded,
    `CannotLoad`, `BadHome`, and what ended the work.
    """
    if timeout_seconds is not None and threading.current_thread() is not threading.main_thread():
        why = "only a build in the main thread can be stopped; leave it out"
        raise InvalidRequest(what="timeout_seconds", value=timeout_seconds, why=why)
    if timeout_seconds is not None and not timeout_seconds > 0:
        raise InvalidRequest(what="timeout_seconds", value=timeout_seconds, why="give seconds above 0")
    if at_once != "auto" and at_once < 1:
        raise InvalidRequest(what="at_once", value=at_once, why="at least one launch runs at a time")
    sample = checked_sample(verify, fresh=fresh, rebuild=rebuild or downstream)
    from databuild_dagster.bindings.local.locations import deployed, locations_of
    from databuild_dagster.bindings.orchestration.inprocess import forbid_runs_in_threads

    # Dagster ends a loop of its own after each run. Beside the loop of a notebook that is refused, which Dagster ignores.
    warnings.filterwarnings("ignore", "coroutine 'BaseEventLoop.shutdown_asyncgens'", RuntimeWarning)
    with _one_build, opened(instance, home) as place, interrupts_restored():
        number = None if at_once == "auto" else at_once
        workshop = Workshop.opened(place.instance, deployed(locations_of(definitions)), at_once=number)
        try:
            warn(workshop.warnings)
            named = place.refs(refs, only)
            if downstream:
                named, rebuild = built_from(place.engine.queries, named), True
            result = build_named(
                workshop,
                named,
                _on_screen if progress else nullcontext,
                says=lambda _: None,
                sample=sample,
                timeout_seconds=timeout_seconds,
                retry=retry,
                priority=priority,
                comment=comment,
                rebuild=rebuild,
                fresh=fresh,
                fail_fast=fail_fast,
                keep_want=keep_want,
            )
        except Stopped as stopped:
            raise stopped.__cause__ or stopped from None
        finally:
            forbid_runs_in_threads(place.instance)
    if result.interrupted:
        raise BuildInterrupted(result)
    return result


def _on_screen(progress: BuildProgress) -> AbstractContextManager[None]:
    """A table on a terminal or below the cell of a notebook, as far as there is one."""
    console = screen()
    return progress.in_notebook() if console.is_jupyter else progress.shown(console, is_alone=False)


def built_from(queries: Queries, refs: Sequence[Ref]) -> tuple[Ref, ...]:
    """The live refs that were built from earlier instances of refs, directly or not. Raises `NothingStale`."""
    if not (found := tuple(queries.instances.live_from_earlier(refs))):
        raise NothingStale(refs=few_of(refs))
    return found


def build_named(
    workshop: Workshop,
    refs: Sequence[Ref],
    shown: Callable[[BuildProgress], AbstractContextManager[object]],
    *,
    timeout_seconds: float | None,
    retry: bool,
    keep_want: bool,
    sample: Sample | None = None,
    spark: SparkJobs | None = None,
    says: Callable[[str], None] = say,
    **wanted: Any,
) -> BuildResult:
    """Want each of the refs with the options `wanted` of `CreateWants`, and build them while the progress is shown."""
    queries = workshop.engine.queries
    progress = BuildProgress(workshop.engine, Tally(queries, refs, queries.events.head().seq), spark, says)
    command = CreateWants(wants=tuple((ref,) for ref in refs), **wanted)
    with shown(progress):
        return build_refs(
            workshop,
            command,
            progress=progress,
            timeout_seconds=timeout_seconds,
            retry=retry,
            keep_want=keep_want,
            sample=sample,
        )
