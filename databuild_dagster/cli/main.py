"""The command's entry: finds the subcommand, and turns whatever it raises into one sentence and an exit code.

Subcommands are imported when they are called, so that `databuild show` waits neither for Dagster nor for Spark.
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import sys
import traceback

import click

from databuild_dagster.cli.exits import FAILED, INTERRUPTED, REFUSED, Exit, heed_no_more_interrupts
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.wording import one_line

#: Where each subcommand stands, in the order of `databuild --help`.
_COMMANDS = {
    "init": "init:init",
    "build": "build:build",
    "plan": "plan:plan",
    "explain": "explain:explain",
    "want": "wants:want",
    "partitions": "partitions:partitions",
    "show": "partitions:show",
    "history": "history:history",
    "lots": "lots:lots",
    "gaps": "gaps:gaps",
    "read": "read:read",
    "job-runs": "job_runs:job_runs",
    "delegations": "delegations:delegations",
    "metrics": "metrics:metrics",
    "arcs": "arcs:arcs",
    "adopt": "adopt:adopt",
    "lot": "lot:lot",
    "manifest": "manifest:manifest",
    "locations": "locations:locations",
    "taint": "taints:taint",
    "untaint": "taints:untaint",
    "revert": "taints:revert",
    "retry": "taints:retry",
    "clean": "clean:clean",
    "gc": "clean:gc",
    "operate": "operate:operate",
    "operations": "operations:operations",
    "receipt": "receipt:receipt",
    "events": "log:events",
    "tick": "build:tick_once",
    "migrate": "log:migrate",
    "rebuild": "log:rebuild",
    "check": "log:check",
    "states": "states:states",
    "spark": "spark:spark",
    "dev": "dev:dev",
}


class LazyGroup(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(f"databuild_dagster.cli.{module}"), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="databuild_dagster")
def cli() -> None:
    """Who wants which partition, what builds it, and which build you read.

    Every command works on the Dagster instance of DAGSTER_HOME, or of .dagster_home in the project. With --json,
    stdout is JSON alone. Exit codes: 0 done, 1 something wanted failed or a check found something, 2 refused or
    bad usage, 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in arguments
    debug = "--debug" in arguments or bool(os.environ.get("DATABUILD_DEBUG"))
    try:
        result = cli.main(args=arguments, prog_name="databuild", standalone_mode=False)
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
        _tell(type(error).__name__, one_line(error.format_message(), most=None), _usage_hint(error), as_json=as_json)
        return REFUSED
    except BrokenPipeError:
        # The reader has seen enough, as with `| head`; nothing is left to be written to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _told(error, as_json=as_json)


def _is_help(error: click.ClickException) -> bool:
    """A group called without a command answers with its help, which is no sentence to be put on one line."""
    return isinstance(error, click.UsageError) and error.ctx is not None and error.message == error.ctx.get_help()


def _told(error: Exception, *, as_json: bool) -> int:
    if isinstance(error, DatabuildError):
        _tell(type(error).__name__, error.message, error.advice, as_json=as_json)
        return REFUSED
    if type(error).__module__.startswith("databuild_dagster."):
        _tell(type(error).__name__, one_line(str(error), most=None), "", as_json=as_json)
        return REFUSED
    if trouble := _trouble_with_dagsters_files(error):
        _tell("DagsterStorageUnusable", trouble, "Look at the rights there and at the free space.", as_json=as_json)
        return REFUSED
    _tell(
        type(error).__name__,
        one_line(f"{type(error).__name__}: {error}", most=None),
        "Run it again with --debug.",
        as_json=as_json,
    )
    return FAILED


def _trouble_with_dagsters_files(error: BaseException | None) -> str | None:
    """Dagster passes on what SQLite says, wrapped; ours is `StoreUnusable` long before."""
    while error is not None:
        if isinstance(error, sqlite3.OperationalError):
            return f"Dagster's own files in {os.environ.get('DAGSTER_HOME', 'DAGSTER_HOME')} cannot be used: {error}."
        error = error.__cause__ or error.__context__
    return None


def _tell(kind: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": {"type": kind, "message": message, "hint": hint}}))
    else:
        click.echo(f"Error: {message} {hint}".rstrip(), err=True)


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"`{error.ctx.command_path} --help` shows how to use it."
    return ""
