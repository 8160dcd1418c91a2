"""Dagster's web server with further routes, started through Dagster's own commands.

`python -m databuild_dagster.bindings.adapter.dagster_web` is `dagster dev` whose web server has the pages. The import of the
web server takes a second, so only functions import it.
"""

import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import dagster

from databuild_dagster.bindings.adapter.dagster_private import DagsterDiffers
from databuild_dagster.bindings.adapter.dev_logs import leave_out_colors
from databuild_dagster.data.home import HOME_VARIABLE
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger

#: The prefix of the environment variables that give the options of Dagster's web server.
OPTIONS_VARIABLES: Final = "DAGSTER_WEBSERVER"
#: The commands by which `dagster dev` starts its web server and its daemon, with ours in their places.
_DAGSTERS: Final = ["-m", "dagster_webserver"]
_OURS: Final = ["-m", "databuild_dagster", "dev", "--no-daemon"]
_DAGSTERS_DAEMON: Final = ["-m", "dagster._daemon"]
_OUR_DAEMON: Final = ["-m", "databuild_dagster.bindings.adapter.dev_logs"]

#: The name by which Dagster's web server makes its class, and the name by which `dagster dev` starts processes.
_SERVER_CLASS: Final = "DagsterWebserver"
_STARTER: Final = "open_ipc_subprocess"
#: The method of uvicorn's server that handles signals.
_AT_SIGNAL: Final = "handle_exit"

#: Beginnings of what `dagster dev` warns of at each start: that people use `dg dev` now, and that it ignores a dagster.yaml.
_SUPERSEDED: Final = "Function `dev_command` is superseded"
_OTHER_SETTINGS: Final = "Found a dagster instance configuration value"
_SETTINGS: Final = ("dagster.yaml", "dagster.yml")

_logger = logger(__name__)

#: From a Dagster instance, a path prefix, and whether the web server is read-only, to routes of Starlette.
MakeRoutes = Callable[[Any, str, bool], Sequence[Any]]


class NoWebserver(DatabuildError):
    """The pages are inside Dagster's web server, and that is not installed here."""

    hint = "Install it: pip install dagster-webserver"


def run_webserver(arguments: Sequence[str], make_routes: MakeRoutes, at_exit: Callable[[], None]) -> None:
    """Run Dagster's web server with its own options and more routes, before its own; leaves the process at its end.

    `at_exit` is called when the server is asked to end, before it waits for its answers to be complete.
    Raises `NoWebserver`, `DagsterDiffers`.
    """
    try:
        import dagster_webserver  # noqa: F401
    except ImportError as error:
        raise NoWebserver from error
    try:
        from dagster_webserver import app
        from dagster_webserver.cli import cli
    except ImportError as error:
        raise DagsterDiffers(version=dagster.__version__, why=str(error)) from error
    setattr(app, _SERVER_CLASS, webserver_with(make_routes))
    _call_at_exit(at_exit)
    leave_out_of_collections()
    leave_out_colors()
    cli(args=list(arguments), prog_name="databuild dev --no-daemon", auto_envvar_prefix=OPTIONS_VARIABLES)


def leave_out_of_collections() -> None:
    """Let garbage collections pass over what is loaded now: they searched Dagster's modules for 170 ms, within an answer."""
    gc.collect()
    gc.freeze()


def webserver_with(make_routes: MakeRoutes) -> type[Any]:
    """Dagster's web server with more routes, before its own, whose last route takes every path. Raises `DagsterDiffers`."""
    try:
        from dagster_webserver.webserver import DagsterWebserver
    except ImportError as error:
        raise DagsterDiffers(version=dagster.__version__, why=str(error)) from error

    class WebserverWithPages(DagsterWebserver[Any, Any]):
        def build_routes(self) -> Any:
            return [*self._routes_of_pages(), *super().build_routes()]  # type: ignore[no-untyped-call]

        def _routes_of_pages(self) -> Sequence[Any]:
            try:
                context = self._process_context
                return make_routes(context.instance, self._app_path_prefix, context.read_only)
            except Exception:
                # Dagster's own pages are needed most when something is wrong.
                _logger.exception("The web server has no pages of databuild.")
                return ()

    return WebserverWithPages


def _call_at_exit(at_exit: Callable[[], None]) -> None:
    """Before uvicorn, which Dagster starts without a time limit for open answers, handles the signal to end."""
    from uvicorn import Server

    handle_exit = getattr(Server, _AT_SIGNAL)

    def handle_exit_too(server: Any, *signal: Any) -> None:
        try:
            at_exit()
        finally:
            handle_exit(server, *signal)

    setattr(Server, _AT_SIGNAL, handle_exit_too)


def with_ours(command: Sequence[str]) -> list[str]:
    """A command of `dagster dev`, with our web server or daemon in the place of Dagster's."""
    interpreter, *rest = command
    for theirs, ours in ((_DAGSTERS, _OURS), (_DAGSTERS_DAEMON, _OUR_DAEMON)):
        if rest[: len(theirs)] == theirs:
            return [interpreter, *ours, *rest[len(theirs) :]]
    return [*command]


def leave_out_wrong_warnings(home: Path, folder: Path) -> None:
    """Leave out warnings of `dagster dev` that are wrong for `databuild dev`; every other warning stays.

    `dg dev` is no replacement, because it has no pages. And the home uses the settings of the project, by a link to their file;
    Dagster compares only the folders.
    """
    warnings.filterwarnings("ignore", _SUPERSEDED, dagster.SupersessionWarning)
    own = [folder / name for name in _SETTINGS if (folder / name).exists()][:1]
    of_home = home / _SETTINGS[0]
    if own and of_home.exists() and of_home.samefile(own[0]):
        logging.getLogger("dagster").addFilter(lambda record: not record.getMessage().startswith(_OTHER_SETTINGS))


def run_dev() -> None:
    """Run `dagster dev`; leaves the process at its end. Raises `DagsterDiffers`.

    The arguments of this process are the address of our pages and then the arguments of `dagster dev`. The address is shown when
    Dagster begins its web server, because Dagster may refuse its arguments before that.
    """
    pages, *arguments = sys.argv[1:]
    try:
        from dagster._cli import ENV_PREFIX, cli
        from dagster._cli import dev as dagster_dev

        start = getattr(dagster_dev, _STARTER)
    except (ImportError, AttributeError) as error:
        raise DagsterDiffers(version=dagster.__version__, why=str(error)) from error

    def start_ours(command: Sequence[str], **options: Any) -> Any:
        ours = with_ours(command)
        if ours[1 : 1 + len(_OURS)] == _OURS:
            print(f"The pages of databuild will be at {pages}", file=sys.stderr, flush=True)
        return start(ours, **options)

    setattr(dagster_dev, _STARTER, start_ours)
    leave_out_colors()
    if home := os.environ.get(HOME_VARIABLE):
        leave_out_wrong_warnings(Path(home), Path.cwd())
    cli(args=["dev", *arguments], prog_name="dagster", auto_envvar_prefix=ENV_PREFIX)


if __name__ == "__main__":
    run_dev()
