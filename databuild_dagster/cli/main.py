"""The command's entry: finds the subcommand, and turns an exception into a sentence and an exit code.

Subcommands are imported when they are called, so that `databuild show` waits neither for Dagster nor for Spark.
"""

import faulthandler
import gc
import json
import os
import sqlite3
import sys
import traceback
import warnings
from functools import cache
from pathlib import Path

import click

from databuild_dagster.bindings.local.interrupts import Stopped, heed_no_more_interrupts
from databuild_dagster.calls.streams import print_for
from databuild_dagster.cli.groups import Branch, Leaf, Sections, TableGroup, inserted, with_synonym
from databuild_dagster.cli.process import (
    AWAY,
    FAILED,
    INTERRUPTED,
    REFUSED,
    Exit,
    OutputLost,
    guard_streams,
    heed_interrupts,
    replace_what_streams_cannot_show,
)
from databuild_dagster.data.environment import ENVIRONMENT_VARIABLE
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import tracebacks_logged
from databuild_dagster.model.redaction import traceback_of
from databuild_dagster.model.wording import MAX_VALUE, is_utf8, numbers_cut, one_line
from databuild_dagster.spark.errors import RemoteUnreachable
from databuild_dagster.store.errors import StoreAway, StoreBusy, StoreSilent
from databuild_dagster.version import __version__
from databuild_dagster.warehouse.errors import StorageUnreachable

_PACKAGE = Path(__file__).parents[1]
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
_OF_JOBS = "op_retry_policy of job|Asset job .* materializes assets with varying BackfillPolicies|Parameter `include_sources` of function"
_NO_BAR = "-Dspark.ui.showConsoleProgress=false"
_as_python_shows = warnings.formatwarning


def _own(target: str, summary: str) -> Leaf:
    """A command of this package."""
    return Leaf(f"{__package__}.{target}", summary)


#: The commands of the core, in the order of `databuild --help`; features have further ones. The summaries repeat the first
#: sentences of the docstrings, for help that imports no command; a test compares them.
SECTIONS: dict[str, dict[str, Leaf | Branch]] = {
    "Start": {
        "init": _own("init:init", "Create a project in FOLDER, by default the current folder."),
        "dev": _own("webserver:dev", "Open Dagster: its web server and its daemon."),
        "dev --no-daemon": _own("webserver:webserver", "Open Dagster's web server alone, with databuild's pages."),
        "status": _own("status:status", "Show all assets by state, open wants and orchestrators."),
        "status --locations": _own("location:list_locations", "List the code locations and their assets."),
        "status --forget": _own("location:forget", "Remove the registration of a LOCATION that is gone."),
    },
    "Build": {
        "build": _own("build:build", "Build REFS and what they need, and wait for the end."),
        "want": Branch(
            "Record, list, show and cancel wants.",
            {
                "create": _own("want:create", "Record wants for REFS; the orchestrator builds them."),
                "list": _own("want:list_wants", "List the open wants, newest first."),
                "show": _own("want:show", "Show a want or request, and what it waits for."),
                "cancel": _own("want:cancel", "Cancel wants, and the queued job runs only they need."),
                "cancel --job-runs": _own("job_run:cancel", "Cancel job runs, and the wants for what they build."),
            },
        ),
        "plan": _own("plan:plan", "Show what `databuild build REFS` would do, and why."),
    },
    "Find out": {
        "explain": _own("want:explain", "Explain why REFS are or are not being built now."),
        "partitions": _own("partitions:partitions", "List every partition of ASSET with its state."),
        "show": _own("partitions:show", "Show what readers of REFS see: instances and files."),
        "show --manifest": _own("manifest:show", "Print the manifest of REF, or of the instance UUID."),
        "show --manifest-schema": _own("manifest:schema", "Print the JSON schema of manifests."),
        "show --job-run": _own("job_run:show", "Show a job run, its outputs, and who asked for it."),
        "history": _own("history:history", "List every instance of REFS, newest last."),
        "history --job-runs": _own("job_run:list_job_runs", "List the newest job runs."),
        "history --requests": _own("ledger:list_entries", "List what each request got for each ref."),
        "read": _own("read:read", "Print the rows of REFS."),
    },
    "Correct": {
        "taint": _own("corrections:taint", "Mark the data of REFS as wrong; open wants rebuild it."),
        "taint --list": _own("corrections:list_taints", "List the taints that hold now, newest first."),
        "untaint": _own("corrections:untaint", "Remove a taint from every instance that has it."),
        "revert": _own("corrections:revert", "Make an earlier instance of REF the one readers see."),
        "revert --event": _own("corrections:revert_by_event", "Revert all refs of a promotion or a return."),
        "retry": _own("corrections:retry", "Retry what failed behind REFS."),
        "pause": _own("corrections:pause", "Keep REFS from being launched; their wants stay open."),
        "resume": _own("corrections:resume", "End the pause of REFS; what is wanted is built."),
    },
    "Maintain": {
        "spark": _own("spark:status", "Show the shared Spark server: address, age, use and UI."),
        "spark --stop": _own("spark:stop", "Stop the shared Spark server; the next build starts one."),
    },
    "By subject": {
        "log": Branch(
            "Read, check, rebuild, migrate and back up the event log.",
            {
                "events": _own("log:events", "Print the event log, one JSON line per event."),
                "events --machines": _own("log:states", "Print the state machines as Markdown with diagrams."),
                "check": _own("log:check", "Verify the tables and the log; exit 1 if any is wrong."),
                "rebuild": _own("log:rebuild", "Recompute all tables from the log."),
                "migrate": _own("log:migrate", "Bring an older version's tables to this version."),
                "export": _own("log:export", "Copy the event log into FILE, also during writes."),
                "export --database": _own("log:backup", "Copy the SQLite database into FILE, also during writes."),
                "import": _own("log:import_", "Bring the events of FILE into an empty build state."),
                "take-over": _own("log:take_over", "Make this store the owner of its warehouses."),
            },
        ),
        "admin": Branch(
            "Run a tick or publish a table by hand, without a daemon.",
            {
                "tick": _own("tick:tick", "Run one tick of the orchestrator in this process."),
            },
        ),
    },
}


def core() -> Sections:
    """The commands that need no feature."""
    return SECTIONS


@cache
def with_features() -> Sections:
    """All commands, with the commands of installed packages. Raises `InvalidFeature`."""
    from databuild_dagster.feature import features

    return inserted(SECTIONS, [command for feature in features() for command in feature.located_commands()])


@click.group(
    cls=TableGroup,
    tables=(core, with_features),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__)
@click.option("--env", "environment", metavar="NAME", help="Work in an environment; DATABUILD_ENV is the same.")
def cli(environment: str | None) -> None:
    """Build partitions that are wanted, and show what built them.

    Every command works on the Dagster instance of DAGSTER_HOME, or of .dagster_home in the project, and takes -m, -f
    and -w, which name definitions as for `dagster`. Only terminals get colors, and none with NO_COLOR or TERM=dumb.
    With --json, stdout is JSON alone. Exit codes: 0 done, 1 something wanted failed, a check found something, or stdout
    could not be written, 2 refused or bad usage, 75 the database was away or busy, 130 interrupted by Ctrl-C or SIGTERM.
    """
    if environment == "":
        # A shell's variable that is not set would choose the base.
        raise click.UsageError("--env names no environment; leave it out to work on the base.")
    if environment is not None:
        os.environ[ENVIRONMENT_VARIABLE] = environment
    print_for(environment)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    guard_streams()
    heed_interrupts()
    # A crash in a library's native code names the calls of each thread: no message of ours can.
    faulthandler.enable()
    # PySpark warns of it in every process, in the middle of a build; `make matrix` has a row for pandas 3.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    # They are about jobs, which a command does not launch; the code servers of Dagster print them.
    warnings.filterwarnings("ignore", _OF_JOBS)
    # Spark draws no bar into the lines of a command, also where a resource of the project starts it.
    os.environ[_JVM_OPTIONS] = f"{_NO_BAR} {os.environ.get(_JVM_OPTIONS, '').replace(_NO_BAR, '')}".strip()
    warnings.formatwarning = shown_warning
    code = run(sys.argv[1:] if arguments is None else arguments)
    # The interpreter would search all of Dagster's modules for garbage at its end: half a second of processor time.
    gc.freeze()
    sys.exit(code)


def shown_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as stderr shows it. A warning of this package is for its users, who need no line of its code."""
    if Path(filename).is_relative_to(_PACKAGE):
        return f"Warning: {message}\n"
    return _as_python_shows(message, category, filename, lineno, line)


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    replace_what_streams_cannot_show()
    try:
        return _run(arguments)
    except OutputLost as lost:
        if lost.is_by_reader:
            return 0
        _tell("OutputLost", str(lost), "Write it elsewhere; the command may have done its work.", as_json=False)
        return FAILED


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    debug = "--debug" in arguments or bool(os.environ.get("DATABUILD_DEBUG"))
    try:
        _check_are_text(arguments)
        with tracebacks_logged(debug):
            # click writes colors to each terminal; rich asks for these by itself.
            is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
            color = False if is_plain else None
            result = cli.main(args=arguments, prog_name="databuild", standalone_mode=False, color=color)
        return result if isinstance(result, int) else 0
    except Exit as leaving:
        return leaving.code
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, click.Abort):
        heed_no_more_interrupts()
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        if _is_help(error):
            click.echo(error.format_message(), err=True)
            return REFUSED
        message = one_line(numbers_cut(_sentence(with_synonym(error).format_message())), most=MAX_VALUE)
        _tell(type(error).__name__, message, _usage_hint(error), as_json=as_json)
        return REFUSED
    except OutputLost:
        raise
    except Exception as error:
        if debug:
            click.echo(traceback_of(error), err=True, nl=False)
        if isinstance(error, Stopped) and isinstance(error.__cause__, Exception):
            code = _report(error.__cause__, as_json=as_json)
            return AWAY if code == AWAY else FAILED
        return _report(error, as_json=as_json)


def _check_are_text(arguments: list[str]) -> None:
    """No store, log or file name of ours takes a byte that is no UTF-8. Raises `click.UsageError`."""
    for argument in arguments:
        if "\0" in argument or not is_utf8(argument):
            shown = argument.replace("\0", "\\0")
            if (encoding := sys.getfilesystemencoding()) != "utf-8" and not argument.isascii():
                raise click.UsageError(
                    f"The argument '{one_line(shown)}' cannot be read: this process reads names as {encoding}. "
                    "Set LC_ALL=C.UTF-8 or PYTHONUTF8=1."
                )
            raise click.UsageError(
                f"The argument '{one_line(shown)}' is no text in UTF-8. Write it in UTF-8, without NUL."
            )


def _is_help(error: click.ClickException) -> bool:
    """Whether the error is the help of a group called without a command: help keeps its lines."""
    return isinstance(error, click.UsageError) and error.ctx is not None and error.message == error.ctx.get_help()


#: The database of the build state, the object store or a Spark elsewhere does not answer.
_OUTAGES = (StoreAway, StoreSilent, StoreBusy, StorageUnreachable, RemoteUnreachable)
_WHEN_LOCKED = "Another process has locked them. Nothing is lost: run the command again when that process has ended."
_WHEN_AWAY = "Nothing is lost: check that the server runs and can be reached, then run the command again."


def _report(error: Exception, *, as_json: bool) -> int:
    if isinstance(error, DatabuildError):
        _tell(type(error).__name__, error.message, error.advice, as_json=as_json)
        return AWAY if isinstance(error, _OUTAGES) else REFUSED
    if type(error).__module__.startswith("databuild_dagster."):
        _tell(type(error).__name__, one_line(error, most=None), "", as_json=as_json)
        return REFUSED
    if trouble := _trouble_with_dagsters_files(error):
        _tell("DagsterStorageUnusable", *trouble, as_json=as_json)
        return AWAY if _WHEN_AWAY in trouble else REFUSED
    if isinstance(error, OSError):
        _tell(
            "FileUnusable",
            _trouble_with_a_file(error),
            "Check its name and rights, and the free space.",
            as_json=as_json,
        )
        return REFUSED
    _tell(
        type(error).__name__,
        f"{type(error).__name__}: {one_line(error, most=None)}",
        "Run it again with --debug.",
        as_json=as_json,
    )
    return FAILED


#: Dagster's modules that speak to its database. The error of an asset's own database passes through none of them.
_DAGSTERS_STORAGE = (
    "dagster._core.storage.event_log",
    "dagster._core.storage.runs",
    "dagster._core.storage.schedules",
    "dagster._core.storage.sql",
    "dagster_postgres.",
)


def _trouble_with_dagsters_files(error: BaseException | None) -> tuple[str, str] | None:
    """The sentence and the advice. Dagster passes on what its database says, wrapped; ours is `StoreUnusable` long before."""
    is_dagsters = False
    while error is not None:
        names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
        is_dagsters = is_dagsters or any(name.startswith(_DAGSTERS_STORAGE) for name in names)
        if is_dagsters and isinstance(error, sqlite3.OperationalError):
            is_locked = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            home = os.environ.get("DAGSTER_HOME", "DAGSTER_HOME")
            advice = _WHEN_LOCKED if is_locked else "Look at the rights there and at the free space."
            return f"Dagster's own files in {home} cannot be used: {error}.", advice
        if is_dagsters and type(error).__module__.startswith("psycopg") and type(error).__name__ == "OperationalError":
            return f"Dagster's own database cannot be used: {one_line(error).rstrip('.?')}.", _WHEN_AWAY
        error = error.__cause__ or error.__context__
    return None


def _trouble_with_a_file(error: OSError) -> str:
    name = error.filename if isinstance(error.filename, str) else ""
    return f"{one_line(name) or 'A file or a connection'} cannot be used: {one_line(error.strerror or error)}."


def _tell(kind: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": {"type": kind, "message": message, "hint": hint}}))
    else:
        click.echo(f"Error: {message} {hint}".rstrip(), err=True)


def _sentence(text: str) -> str:
    """A message of click, some of which end without a full stop; a hint follows."""
    return text if text.rstrip("'\")").endswith((".", "?", "!")) else f"{text}."


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"`{error.ctx.command_path} --help` shows how to use it."
    return ""
