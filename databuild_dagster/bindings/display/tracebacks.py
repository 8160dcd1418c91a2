"""What a failed job run raised, read from the log of its Dagster run: the build state keeps the sentence alone (decision 0071).

A traceback is text of Python's. Its frames are told apart by their files: the author's, and those of installed packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from databuild_dagster.bindings.claims.run_messages import details_of
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.records import Time
from databuild_dagster.model.redaction import without_secrets
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.job_runs import JobRunView

if TYPE_CHECKING:
    from dagster import DagsterInstance

#: Entries of a log that are searched, the newest first, and read at once.
MAX_ENTRIES: Final = 5_000
_AT_ONCE: Final = 500
#: The name of the link to Spark's pages, in the log of a run.
SPARK_UI: Final = "spark_ui"

_log = logger(__name__)

_BEGINS: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'  File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
#: The folder of an installed package, or of Python's own modules.
_INSTALLED: Final = re.compile(r".*[/\\](?:site-packages|dist-packages|python3\.\d+|zoneinfo)[/\\](?P<inside>.+)")
_PACKAGE: Final = "databuild_dagster"
_OURS: Final = re.compile(rf"(?:.*[/\\])?(?P<inside>{_PACKAGE}[/\\].+)")
#: What Python writes before the lines of a group of exceptions, and of each of them.
_IN_A_GROUP: Final = re.compile(r"^ *[|+](?:-[-+]*.*$| ?)", re.MULTILINE)
#: The lines between two tracebacks of a chain.
_CHAINED: Final = ("During handling of the above", "The above exception was the direct cause")


class Frame(msgspec.Struct, frozen=True):
    """A call in a traceback."""

    #: The path inside of its package, or of an author's file its name and folder: a page shows no path of a server.
    file: str
    line: int
    function: str
    code: str
    is_authors: bool


class Traceback(msgspec.Struct, frozen=True):
    """An exception with the calls that led to it, the outermost first."""

    frames: list[Frame]
    #: Its type and its whole message.
    error: str


class Raised(msgspec.Struct, frozen=True):
    """What a job run raised, and where its Dagster run says more."""

    job_run: str
    dagster_run_id: str | None
    #: The step and the time in the log of the Dagster run.
    step: str | None
    at: Time | None
    #: Spark's own pages, while that Spark lives.
    spark_ui: str | None
    #: A chain of exceptions, the last of which ended the job run.
    tracebacks: list[Traceback]
    #: Why there is no traceback, and what to do; null with one, and for a job run that did not fail.
    note: str | None


class _Found(NamedTuple):
    """The text of a traceback, with its place in the log."""

    text: str
    step: str | None
    at: float


def raised_by(instance: DagsterInstance, run: JobRunView) -> Raised:
    """What a job run raised. Reads at most `MAX_ENTRIES` of its Dagster run's log."""
    id, has_failed = run.dagster_run_id, run.state in (JobRunState.FAILED, JobRunState.LOST)
    if id is None or not (has_failed or run.state is JobRunState.RUNNING):
        return Raised(run.id, id, None, None, None, [], None)
    try:
        found = _find(instance, id, run) if run.state is JobRunState.FAILED else None
        tracebacks = tracebacks_in(found.text) if found else []
        note = _why_none(instance, run, has_details=found is not None) if has_failed and not tracebacks else None
        step, at = (found.step, Time(found.at)) if found else (None, None)
        return Raised(run.id, id, step, at, _spark_ui(instance, id), tracebacks, note)
    except Exception as error:  # Each of Dagster's storages raises errors of its own database.
        log_failure(_log, f"the log of Dagster run {id} cannot be read", error)
        note = f"The log of the Dagster run cannot be read now: {type(error).__name__}. Try again when Dagster's database answers."
        return Raised(run.id, id, None, None, None, [], note)


def _why_none(instance: DagsterInstance, run: JobRunView, *, has_details: bool) -> str:
    if has_details:
        return "No exception was raised: the reason of the failure is all there is."
    if instance.get_run_by_id(run.dagster_run_id or "") is None:
        return "Dagster has deleted the run, and the traceback with it. A retry that fails again has a new one."
    if run.state is JobRunState.LOST:
        return "The process of the run ended before it could report an error. The log of the Dagster run has what it printed."
    return f"The newest {MAX_ENTRIES:,} entries in the log of the Dagster run have no traceback of it; Dagster shows all of them."


def _find(instance: DagsterInstance, id: str, run: JobRunView) -> _Found | None:
    refs = few_of(run.refs)
    for entry in _newest(instance, id):
        if entry.dagster_event is not None:
            continue
        details, like = details_of(entry.user_message, refs)
        if details is not None:
            return _Found(details, entry.step_key, entry.timestamp)
        refs = like or refs
    return _of_the_step(instance, id)


def _of_the_step(instance: DagsterInstance, id: str) -> _Found | None:
    """The error of the step, which is the first error of its job runs, or an error before all of them."""
    from dagster import DagsterEventType

    for entry in instance.all_logs(id, of_type=DagsterEventType.STEP_FAILURE):
        data = entry.dagster_event.step_failure_data if entry.dagster_event else None
        if data is not None and (error := data.error) is not None:
            error = error.cause or error
            return _Found(f"{_BEGINS}\n{''.join(error.stack)}{error.message}", entry.step_key, entry.timestamp)
    return None


def _newest(instance: DagsterInstance, id: str) -> Iterator[Any]:
    cursor: str | None = None
    for _ in range(MAX_ENTRIES // _AT_ONCE):
        found = instance.get_records_for_run(id, cursor=cursor, limit=_AT_ONCE, ascending=False)
        yield from (record.event_log_entry for record in found.records)
        if not found.has_more:
            return
        cursor = found.cursor


def _spark_ui(instance: DagsterInstance, id: str) -> str | None:
    from dagster import DagsterEventType

    for entry in instance.all_logs(id, of_type=DagsterEventType.ENGINE_EVENT):
        data = entry.dagster_event.engine_event_data if entry.dagster_event else None
        link = None if data is None else data.metadata.get(SPARK_UI)
        if link is not None:
            return str(link.value)
    return None


def tracebacks_in(text: str) -> list[Traceback]:
    """The chain of exceptions in a text of Python's; empty if the text is no traceback."""
    found: list[Traceback] = []
    text = without_secrets(text)
    if "Exception Group Traceback" in text:
        text = _IN_A_GROUP.sub("", text)
    for part in text.split(_BEGINS)[1:]:
        lines = part.strip("\n").split("\n")
        # The frames and their code are indented; the message of the error may have indented lines too.
        n = next((place for place, line in enumerate(lines) if line and not line.startswith("  ")), len(lines))
        error = "\n".join(line for line in lines[n:] if not line.startswith(_CHAINED)).strip()
        found.append(Traceback(_frames(lines[:n]), error))
    return found


def _frames(lines: Sequence[str]) -> list[Frame]:
    calls: list[tuple[re.Match[str], list[str]]] = []
    for line in lines:
        if (match := _FRAME.fullmatch(line)) is not None:
            calls.append((match, []))
        elif calls and line.strip(" ~^"):
            calls[-1][1].append(line.strip())
    packages = [_package_of(match["path"]) for match, _ in calls]
    authors = _package_of_the_author(packages)
    return [
        Frame(_shown(match["path"]), int(match["line"]), match["function"], " ".join(code), package in (None, authors))
        for (match, code), package in zip(calls, packages, strict=True)
    ]


def _package_of(path: str) -> str | None:
    """The installed package that a file belongs to; None for a file of a project."""
    inside = _OURS.fullmatch(path) or _INSTALLED.fullmatch(path)
    if inside is not None:
        return re.split(r"[/\\]", inside["inside"])[0]
    return path if path.startswith("<") else None


def _package_of_the_author(packages: Iterable[str | None]) -> str | None:
    """The package that this package has called: a project may be installed as others are."""
    found, before = None, None
    for package in packages:
        if before == _PACKAGE and package != before:
            found = package
        before = package
    return found


def _shown(path: str) -> str:
    inside = _OURS.fullmatch(path) or _INSTALLED.fullmatch(path)
    return inside["inside"] if inside is not None else "/".join(re.split(r"[/\\]", path)[-2:])
