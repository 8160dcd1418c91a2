"""`databuild init`: the templates of this package become a project in an empty folder.

Nothing is written before it is known that all of it may be, and what a failing disk leaves half made is removed.
"""

import keyword
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import count, emit

#: In the templates, the name of the project's package.
_PACKAGE = "PACKAGE"
#: Templates are no code of ours: no tool takes them for it.
_SUFFIX = ".txt"
#: What a folder may hold and is empty all the same: it says nothing about the project.
_IGNORED = frozenset({".git", ".venv", ".dagster_home"})
#: Folders of the project itself.
_TAKEN = frozenset({"tests"})


class CannotInit(Exception):
    """The project cannot be made there; the message says why."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option("--name", help="The name of the project's package. Default: the folder's name.")
@common
def init(folder: Path, name: str | None, as_json: bool) -> None:
    """Create a project in FOLDER, by default the current folder.

    A .git or .venv may be there. The project has three assets, their tests, and a README that says what to do next.
    """
    root = Path(os.path.abspath(os.path.expanduser(folder)))
    package = _given_name(name) if name is not None else _name_of(root)
    contents = dict(_rendered(files("databuild_dagster.cli") / "templates" / "project", package))
    _check_empty(root)
    _write(root, contents)
    following = [f"cd {shlex.quote(str(folder))}"] if root != Path.cwd() else []
    following += ["pip install -e .", "databuild build monthly_revenue@2024-01-01"]
    if as_json:
        emit({"folder": str(root), "package": package, "files": sorted(contents), "next": following})
        return
    click.echo(f"Started {package} in {root}: {count(len(contents), 'file')}. Next:")
    click.echo("")
    for command in following:
        click.echo(f"    {command}")
    click.echo("")
    click.echo("Its README.md has the next steps.")


def _given_name(name: str) -> str:
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise CannotInit(f"--name {name!r} cannot be imported; give letters, digits and underscores, a letter first.")
    if name in _TAKEN:
        raise CannotInit(f"--name {name!r} is a folder of the project already; give another one.")
    if _is_something_else(name):
        raise CannotInit(f"--name {name!r} is a package that is installed here; give another one.")
    return name


def _name_of(root: Path) -> str:
    """The folder's name, as something that can be imported, and is not something else when it is."""
    name = re.sub(r"\W+", "_", root.name, flags=re.ASCII).strip("_").lower()
    if not name or not name.isidentifier() or keyword.iskeyword(name):
        name = f"project_{name}".rstrip("_")
    return f"{name}_project" if name in _TAKEN or _is_something_else(name) else name


def _is_something_else(name: str) -> bool:
    # A folder that happens to stand in the working directory could be imported too, and has no origin.
    found = find_spec(name)
    return found is not None and found.origin is not None


def _rendered(folder: Traversable, package: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Every file of the project, by its path in it."""
    for child in folder.iterdir():
        if child.is_dir():
            yield from _rendered(child, package, f"{path}{child.name.replace(_PACKAGE, package)}/")
        elif child.name.endswith(_SUFFIX):
            name = child.name.removesuffix(_SUFFIX).replace("dot-", ".")
            yield f"{path}{name}", child.read_text(encoding="utf-8").replace(_PACKAGE, package)


def _check_empty(root: Path) -> None:
    if not root.exists():
        return
    if not root.is_dir():
        raise CannotInit(f"{root} is a file; name a folder that is empty or not there yet.")
    try:
        there = sorted(path.name for path in root.iterdir() if path.name not in _IGNORED)
    except OSError as error:
        raise CannotInit(f"{root} cannot be read: {error.strerror}; name another folder.") from error
    if there:
        raise CannotInit(f"{root} is not empty, {there[0]} is there; name a folder that is empty or not there yet.")


def _write(root: Path, contents: dict[str, str]) -> None:
    was_there = root.exists()
    try:
        for path, text in contents.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        for made in {root / path.split("/")[0] for path in contents} if was_there else {root}:
            _remove(made)
        raise CannotInit(f"{root} cannot be written: {error.strerror}; nothing was left there.") from error


def _remove(path: Path) -> None:
    # What could not be made cannot be removed either.
    with suppress(OSError):
        path.unlink() if path.is_file() else shutil.rmtree(path)
