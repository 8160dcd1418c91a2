"""`databuild build`: the orchestrator's ticks in this process, no daemon needed."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import UNSET, UnsetType

from databuild_dagster.bindings.local.building import MAX_NAMED, BuildResult, NotLive, Workshop
from databuild_dagster.bindings.local.load_note import LoadWatch
from databuild_dagster.bindings.local.second_builds import ComparedBuild, checked_sample
from databuild_dagster.bindings.registry.selections import refs_of_names
from databuild_dagster.calls.build import build_named, built_from
from databuild_dagster.calls.progress import SparkJobs
from databuild_dagster.calls.streams import printing_to_file, printing_to_stderr, screen, warn
from databuild_dagster.cli.definitions import load_deployed, noted_load
from databuild_dagster.cli.options import (
    DURATION,
    Selection,
    Where,
    asked,
    definitions,
    printed,
    selection,
    tabular,
)
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.process import FAILED, INTERRUPTED, Exit
from databuild_dagster.cli.state import home_to_write, recorded_engine, the_instance
from databuild_dagster.engine.why.awaited import process_of
from databuild_dagster.engine.why.first_failures import FirstFailure
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.events import EVENT_TYPES, PartitionDelegated, WantCreated, names_of
from databuild_dagster.model.records import Time, error_as_json, extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import typed

#: Events that leave work to a build of live refs: all that the want of a live ref does not record.
_NEWS = names_of(*(kind for kind in EVENT_TYPES if kind not in (WantCreated, PartitionDelegated)))
#: Log files of builds that are kept.
MAX_LOGS = 20


class _AtOnce(click.IntRange):
    """A number of launches; `auto` is None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return None if value == "auto" else super().convert(value, param, ctx)


@click.command()
@selection
@asked(CreateWants, "comment", "priority", "rebuild", "fresh", "fail_fast")
@click.option(
    "--verify",
    type=float,
    default=None,
    metavar="FRACTION",
    help="Build FRACTION of what --fresh returns, and compare rows.",
)
@click.option(
    "--downstream", is_flag=True, help="Rebuild what was built from earlier instances of REFS, in place of REFS."
)
@click.option(
    "--timeout",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="Stop after this time with exit code 1; the wants stay open.",
)
@click.option(
    "--at-once",
    type=_AtOnce(min=1),
    default="auto",
    show_default=True,
    metavar="N",
    help="Launches that run at a time in this process.",
)
@click.option(
    "--keep-want", is_flag=True, help="Leave the want open after Ctrl-C or SIGTERM; an orchestrator builds it."
)
@click.option("--retry", is_flag=True, help="First retry what failed of REFS and behind them.")
@definitions
@tabular
def build(
    selection: Selection,
    wanted: dict[str, Any],
    verify: float | None,
    downstream: bool,
    timeout: float | None,
    at_once: int | None,
    keep_want: bool,
    retry: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Build REFS and what they need, and wait for the end.

    Live refs are built again only with --rebuild. The command waits for refs that another process builds. It leaves other
    open wants to the orchestrator. After --timeout, a step that runs has 10 s more to end.
    --at-once auto runs 2 launches at a time on this machine, 4 with a bucket or a Spark elsewhere, and 1 without free cores or if an
    asset of the project is neither of Spark alone nor has a concurrency above 1. With more than 1, what assets print is in
    the output of this command, and not on the pages of their Dagster runs.
    On a terminal, the output of Dagster, Spark and the assets is in the file logs/build-TIME.log of the Dagster home.
    """
    sample = checked_sample(verify, fresh=wanted["fresh"], rebuild=wanted["rebuild"] or downstream)
    home = home_to_write()
    with _printing_apart(home) as log, ExitStack() as display:

        def built_in(workshop: Workshop, spark: SparkJobs | None) -> tuple[BuildResult, Sequence[Ref]]:
            workshop.has_log, asked = log is not None, dict(wanted)
            refs = selection.refs(workshop.engine.queries)
            if downstream:
                refs, asked["rebuild"] = printed(built_from(workshop.engine.queries, refs)), True
            result = build_named(
                workshop,
                refs,
                lambda progress: progress.shown(screen(), is_alone=log is not None),
                sample=sample,
                spark=spark,
                timeout_seconds=timeout,
                retry=retry,
                keep_want=keep_want,
                **asked | {"comment": asked["comment"] or "databuild build"},
            )
            return result, refs

        built: BuildResult | None = None
        # In a process that has loaded definitions before, the watch would miss what they read.
        watch = None if "dagster" in sys.modules else LoadWatch(home, where)
        is_plain = watch is not None and not (wanted["rebuild"] or wanted["fresh"] or downstream or retry)
        if is_plain and (workshop := _workshop_of_note(home, where, selection)) is not None:
            built, refs = built_in(workshop, None)
        # A ref may have been tainted since the look at its state.
        if built is None or (built.not_live and not built.interrupted):
            workshop = opened_workshop(where, at_once=at_once, watch=watch)
            spark = None if log is None else display.enter_context(SparkJobs(home).watched())
            built, refs = built_in(workshop, spark)
            if watch is not None:
                workshop.note_load(watch)
    if as_json:
        emit(_shape(built))
    else:
        _summarize(built, refs, log, keep_want=keep_want)
    if built.interrupted:
        raise Exit(INTERRUPTED)
    if built.not_live or built.timed_out is not None or built.not_deterministic:
        raise Exit(FAILED)


@contextmanager
def _printing_apart(home: Path) -> Iterator[Path | None]:
    """Send the output of Dagster, Spark and assets to a file if a person reads a terminal, else to stderr; yields the file."""
    if not screen().is_terminal:
        with printing_to_stderr():
            yield None
        return
    folder = home / "logs"
    for old in sorted(folder.glob("build-*.log"))[: -MAX_LOGS + 1]:
        old.unlink(missing_ok=True)
    log = folder / f"build-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    with printing_to_file(log):
        yield log


def _workshop_of_note(home: Path, where: Where, selection: Selection) -> Workshop | None:
    """A workshop without code if the definitions are those of the note, and all refs are live and need no duty (rule 8.9).

    None if that is in doubt, or if an answer needs Dagster.
    """
    if (engine := recorded_engine(home)) is None or (head := noted_load(where, engine, _NEWS)) is None:
        return None
    queries = engine.queries
    if head.at > engine.clock() or queries.planning.set_aside():
        return None
    refs = refs_of_names(queries, the_instance, selection.names, selection.only)
    states = set(queries.canonical.states(refs).values())
    return Workshop.without_code(engine) if states == {InstanceState.LIVE} else None


def opened_workshop(where: Where, *, at_once: int | None = 1, watch: LoadWatch | None = None) -> Workshop:
    """The workshop on the definitions that a user names, which load within `watch`; `at_once` as `Workshop.opened`.

    Raises what loading raises.
    """
    from databuild_dagster.warehouse.files import keep_no_freed_memory

    keep_no_freed_memory()
    instance = the_instance()
    with watch or nullcontext():
        locations = load_deployed(where)
    workshop = Workshop.opened(instance, locations, at_once=at_once)
    warn(workshop.warnings)
    return workshop


class BuiltRefs(msgspec.Struct, frozen=True):
    """The refs of a request."""

    live: int
    failed: int


class EndedRuns(msgspec.Struct, frozen=True):
    """The job runs of this process."""

    succeeded: int
    dep_missed: int
    failed: int
    canceled: int


class ShownWait(msgspec.Struct, frozen=True):
    """A job run for which a build waited."""

    ref: Ref
    job_run: str
    state: JobRunState
    job: str
    dagster_run_id: str | None
    process: str
    since: Time


class ShownBuild(msgspec.Struct, frozen=True):
    """The outcome of a build; `assets` have their refs by state."""

    request_id: str
    refs: BuiltRefs
    job_runs: EndedRuns
    launches: int
    reused: int
    stale: Sequence[Ref]
    equal: int
    cut_off: int
    returned: int
    seconds: float
    not_live: Sequence[NotLive]
    failed_first: Sequence[FirstFailure]
    hints: Sequence[str]
    assets: list[dict[str, Any]]
    interrupted: bool
    left_to_orchestrator: int
    waits_for: list[ShownWait]
    verified: Sequence[ComparedBuild] | UnsetType = UNSET
    #: After --timeout, or of the first ref that --verify found to have other rows.
    error: dict[str, str] | UnsetType = UNSET


def _shape(built: BuildResult) -> ShownBuild:
    errors = [*([] if built.timed_out is None else [built.timed_out]), *built.not_deterministic]
    return extended(
        ShownBuild,
        built,
        refs=BuiltRefs(built.live, len(built.not_live)),
        job_runs=extended(EndedRuns, built),
        seconds=round(built.seconds, 3),
        assets=[{**done.counts, "asset": done.asset, "seconds": round(done.seconds, 3)} for done in built.assets],
        waits_for=[extended(ShownWait, run, process=process_of(run)) for run in built.waits_for],
        verified=UNSET if built.verified is None else built.verified,
        **({"error": error_as_json(errors[0])} if errors else {}),
    )


def _summarize(built: BuildResult, refs: Sequence[Ref], log: Path | None, *, keep_want: bool) -> None:
    _, columns, rows, notes = built.shown()
    if rows:
        table(columns, rows, empty="")
        click.echo("")
    for note in notes:
        click.echo(note)
    if built.interrupted:
        again = f"databuild build {typed(*refs)}" if len(refs) <= MAX_NAMED else "run the same command"
        want = "stays open" if keep_want else "is taken back"
        click.echo(f"Interrupted: the want {want}, and what is live stays live. To continue: {again}")
    has_failed = built.failed or (built.not_live and not built.interrupted)
    click.echo(built.sentence + (f" Log: {_short(log)}" if log is not None and has_failed else ""))


def _short(path: Path) -> str:
    """Relative to the working directory, if it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
