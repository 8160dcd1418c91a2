"""A code location becomes a loaded repository in this process, found exactly as `dagster` finds it.

Options (-m, -f, -w), the search in the working directory (workspace.yaml, `[tool.dagster]` of pyproject.toml) and the
loaders are Dagster's. Each of its errors becomes a sentence.
"""

import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dagster import RepositoryDefinition

from databuild_dagster.bindings.adapter import dagster_storage
from databuild_dagster.bindings.adapter.dagster_private import repository_def_from_target_def
from databuild_dagster.bindings.building.deployment import Deployment, deployment_of_repository
from databuild_dagster.model.wording import one_line
from databuild_dagster.spark.at_import import allow_before_sessions

_NONE_HERE: Final = (
    "There are no definitions here: name them with -m MODULE, -f FILE or -w WORKSPACE, "
    "or change to a directory with a workspace.yaml or a pyproject.toml with [tool.dagster]."
)
#: Code that is no project's: Python's, this package's, and what is installed.
_NOT_OF_PROJECTS: Final = ("<", str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"))
_INSTALLED: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")


class CannotLoad(Exception):
    """The definitions cannot be loaded; the message is one sentence, `__cause__` the original error."""


class NoDefinitions(CannotLoad):
    """No definitions are named, and the working directory has none."""


@dataclass(frozen=True)
class CodeLocation:
    """A loaded code location."""

    #: As Dagster names it.
    name: str
    repository: RepositoryDefinition
    #: None for a location without `build_definitions`.
    deployment: Deployment | None
    #: The name of the definitions in their module, or of the function that makes them; None if nobody named it.
    attribute: str | None = None


def load_code_locations(
    *, modules: Sequence[str] = (), files: Sequence[str] = (), workspaces: Sequence[str] = ()
) -> list[CodeLocation]:
    """Load the named locations, or the project in the working directory. Raises `CannotLoad`."""
    for path in (*files, *workspaces):
        if not Path(path).is_file():
            raise CannotLoad(f"There is no file {path}; give the path of your definitions.")
    opts = dagster_storage.WorkspaceOpts(
        module_name=list(modules) or None,
        python_file=list(files) or None,
        workspace=list(workspaces) or None,
    )
    try:
        origins = dagster_storage.workspace_opts_to_load_target(opts).create_origins()
    except Exception as error:  # Dagster raises click errors, check errors and its own here.
        if not (text := one_line(error, most=None)) or "No arguments given" in text:
            raise NoDefinitions(_NONE_HERE) from error
        raise CannotLoad(text) from error
    return [_load(origin) for origin in origins]


def the_code_location(locations: Sequence[CodeLocation], name: str | None = None) -> CodeLocation:
    """The location of that name, or the only location with `build_definitions`. Raises `CannotLoad`."""
    if name is not None:
        for location in locations:
            if name == location.name or (location.deployment is not None and name == location.deployment.location):
                return location
        raise CannotLoad(
            f"There is no code location {name!r}; there are {', '.join(location.name for location in locations)}."
        )
    ours = [location for location in locations if location.deployment is not None]
    if len(ours) == 1:
        return ours[0]
    if not ours:
        names = ", ".join(location.name for location in locations) or "none at all"
        raise CannotLoad(f"No code location uses build_definitions ({names}); make your Definitions with it.")
    names = ", ".join(location.name for location in ours)
    raise CannotLoad(f"Several code locations use build_definitions: {names}; name one.")


def _load(origin: object) -> CodeLocation:
    name = getattr(origin, "location_name", "?")
    target = getattr(origin, "loadable_target_origin", None)
    if isinstance(origin, dagster_storage.GrpcServerCodeLocationOrigin) or target is None:
        raise CannotLoad(
            f"Code location {name} is a running server; databuild loads code itself, name its file or module."
        )
    # The first import of a project may make a column before the project imports the decorators.
    allow_before_sessions()
    try:
        targets = dagster_storage.get_loadable_targets(
            python_file=target.python_file,
            module_name=target.module_name,
            package_name=target.package_name,
            autoload_defs_module_name=target.autoload_defs_module_name,
            working_directory=target.working_directory,
            attribute=target.attribute,
            resolve_lazy_defs=True,
        )
        repositories = [
            repository
            for found in targets
            if (repository := repository_def_from_target_def(found.target_definition)) is not None
        ]
        for repository in repositories:
            repository.get_all_jobs()
    except (Exception, SystemExit) as error:  # User code may raise anything while it is imported.
        raise CannotLoad(f"Code location {name} cannot be loaded: {_first_cause(error)}") from error
    if len(repositories) != 1:
        raise CannotLoad(
            f"Code location {name} has {len(repositories)} Definitions; name one as `attribute` in a workspace.yaml."
        )
    return CodeLocation(name, repositories[0], deployment_of_repository(repositories[0]), target.attribute)


def _first_cause(error: BaseException) -> str:
    """The error of the user's code, below the layers that Dagster puts around it."""
    while error.__cause__ is not None and type(error).__module__.startswith("dagster"):
        error = error.__cause__
    said = error.msg if isinstance(error, SyntaxError) else error
    text = f"{type(error).__name__}: {one_line(said, most=None)}{_place_of(error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        text += f". Install {error.name}, or run the command in the folder that has it."
    return text


def _place_of(error: BaseException) -> str:
    """The file and the line of the project at which an error was raised; empty if no line of it was running."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_shown(error.filename)}, line {error.lineno})"
    lines = ((frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(error.__traceback__))
    ours = [
        (file, number) for file, number in lines if not (file.startswith(_NOT_OF_PROJECTS) or _INSTALLED.search(file))
    ]
    return f" ({_shown(ours[-1][0])}, line {ours[-1][1]})" if ours else ""


def _shown(file: str) -> str:
    return os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
