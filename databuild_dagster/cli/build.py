"""`databuild build`: the orchestrator's ticks in this process, no daemon needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from databuild_dagster.cli.building import AssetDone, Built, Workshop, build_refs
from databuild_dagster.cli.definitions import load_deployed
from databuild_dagster.cli.options import (
    DURATION,
    FAIL_FAST,
    Selection,
    Where,
    definitions,
    printed,
    selection,
    tabular,
)
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.cli.process import FAILED, INTERRUPTED, Exit, printing_to_file, printing_to_stderr, screen
from databuild_dagster.cli.progress import BuildProgress, SparkJobs
from databuild_dagster.cli.state import home_to_write, the_instance
from databuild_dagster.cli.tally import Tally
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import few_of, typed
from databuild_dagster.store.queries.queries import Queries

#: Log files of builds that are kept.
MAX_LOGS = 20
#: Assets of the last line, and refs of a command to copy.
MAX_NAMED = 5


class NothingStale(Refused):
    """Nothing that is live was built from an earlier instance of {refs}."""

    hint = "So there is nothing to rebuild."


@click.command()
@selection
@click.option("--priority", type=int, default=0, show_default=True, help="Higher is more urgent.")
@click.option("--comment", default="", help="The reason, shown by `want show`, --json and the pages.")
@click.option("--rebuild", is_flag=True, help="Rebuild REFS, also those that are live or failed.")
@click.option("--fresh", is_flag=True, help="Rebuild those of REFS that another code version built.")
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
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Launches that run at a time in this process.",
)
@click.option(
    "--keep-want", is_flag=True, help="Leave the want open after Ctrl-C or SIGTERM; an orchestrator builds it."
)
@FAIL_FAST
@click.option("--retry", is_flag=True, help="First retry what failed of REFS and behind them.")
@definitions
@tabular
def build(
    selection: Selection,
    priority: int,
    comment: str,
    rebuild: bool,
    fresh: bool,
    downstream: bool,
    timeout: float | None,
    at_once: int,
    keep_want: bool,
    fail_fast: bool,
    retry: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Build REFS and what they need, and wait for the end.

    Live refs are built again only with --rebuild. The command waits for refs that another process builds. It leaves other
    open wants to the orchestrator. After --timeout, a step that runs has 10 s more to end.
    With --at-once above 1, what assets print is in the output of this command, and not on the pages of their Dagster runs.
    On a terminal, the output of Dagster, Spark and the assets is in the file logs/build-TIME.log of the Dagster home.
    """
    home = home_to_write()
    with _printing_apart(home) as log, ExitStack() as display:
        workshop = opened_workshop(where, at_once=at_once)
        refs = selection.refs(workshop.engine.queries)
        if downstream:
            refs, rebuild = _from_earlier(workshop.engine.queries, refs), True
        workshop.has_log = log is not None
        tally = Tally(workshop.engine.queries, refs, workshop.engine.queries.head().seq)
        spark = None if log is None else display.enter_context(SparkJobs(home).watched())
        progress = BuildProgress(workshop.engine, tally, spark)
        display.enter_context(progress.shown(screen(), is_alone=log is not None))
        wants, comment = tuple((ref,) for ref in refs), comment or "databuild build"
        command = CreateWants(
            wants=wants, priority=priority, comment=comment, rebuild=rebuild, fresh=fresh, fail_fast=fail_fast
        )
        built = build_refs(
            workshop, command, progress=progress, timeout_seconds=timeout, retry=retry, keep_want=keep_want
        )
    if as_json:
        emit(built.as_json())
    else:
        _summarize(built, refs, log, keep_want=keep_want)
    if built.interrupted:
        raise Exit(INTERRUPTED)
    if built.not_live or built.timed_out is not None:
        raise Exit(FAILED)


def _from_earlier(queries: Queries, refs: Sequence[Ref]) -> tuple[Ref, ...]:
    found = tuple(queries.live_from_earlier(refs))
    if not found:
        raise NothingStale(refs=few_of(refs))
    return printed(found)


@contextmanager
def _printing_apart(home: Path) -> Iterator[Path | None]:
    """Send what others print to a file where a person reads a terminal, else to stderr; yields the file."""
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


def opened_workshop(where: Where, *, at_once: int = 1) -> Workshop:
    """The workshop on the definitions that a user names; `at_once` as `Workshop.opened`. Raises what loading raises."""
    instance = the_instance()
    locations = load_deployed(where)
    return Workshop.opened(instance, locations, at_once=at_once)


def _summarize(built: Built, refs: Sequence[Ref], log: Path | None, *, keep_want: bool) -> None:
    if built.not_live:
        rows = [(ref.ref, ref.state.value if ref.state else "missing", ref.why) for ref in built.not_live]
        table(("ref", "state", "why"), rows, empty="")
        click.echo("")
    for hint in built.hints:
        click.echo(hint)
    if built.interrupted:
        again = f"databuild build {typed(*refs)}" if len(refs) <= MAX_NAMED else "run the same command"
        want = "stays open" if keep_want else "is taken back"
        click.echo(f"Interrupted: the want {want}, and what is live stays live. To continue: {again}")
    if built.timed_out is not None:
        click.echo(f"{built.timed_out.message} {built.timed_out.advice}")
    n_refs = built.live + len(built.not_live)
    reused = f" ({built.reused} before)" if built.reused else ""
    if built.launches or built.not_live:
        parts = few_of([_in_words(done) for done in built.assets], MAX_NAMED)
        doing = f" in {built.seconds:.1f} s{': ' if parts else ''}{parts}."
    else:
        doing = f"; nothing to build; {built.seconds:.1f} s."
    if built.canceled:
        doing += f" {count(built.canceled, 'job run')} canceled."
    if built.left_to_orchestrator:
        doing += f" {count(built.left_to_orchestrator, 'want')} of arcs left to the orchestrator."
    if log is not None and (built.failed or (built.not_live and not built.interrupted)):
        doing += f" Log: {_short(log)}"
    click.echo(f"{built.live} of {count(n_refs, 'ref')} live{reused}{doing}")


def _in_words(done: AssetDone) -> str:
    """For example: orders 31 (2.1 s), or orders 2 live, 1 failed (2.1 s)."""
    found = +done.counts
    named = {"waiting": "not built"}
    words = ", ".join(f"{n} {named.get(name, name)}" for name, n in found.items())
    only_live = str(found["live"]) if set(found) == {"live"} else words
    return f"{done.asset} {only_live}" + (f" ({done.seconds:.1f} s)" if done.seconds else "")


def _short(path: Path) -> str:
    """Relative to the working directory, if it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
