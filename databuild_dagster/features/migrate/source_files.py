"""The Python files of a path, read and parsed. A file that cannot be read is a row of the answer, and the rest is read.

Links to folders are not followed, so that no loop exists. Folders of other people's code are left out.
"""

import ast
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from tokenize import detect_encoding
from typing import Final

from databuild_dagster.model.errors import DatabuildError

#: More Python files are no project, but a machine.
MAX_FILES: Final = 10_000
#: No person wrote a larger file.
MAX_BYTES: Final = 4 * 1024 * 1024
_SUFFIX: Final = ".py"
#: Folders of installed packages, of tools and of results. Folders whose name begins with a dot are left out too.
_SKIPPED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv", "env"})
#: The file that marks a folder as a virtual environment of any name.
_OF_ENVIRONMENT: Final = "pyvenv.cfg"


class NoSource(DatabuildError):
    """There is no Python source to read at {path}: {why}."""

    hint = "Give a Python file, or the folder of a project or a package."


@dataclass(frozen=True)
class SourceFile:
    """A parsed file."""

    #: As the report names it: relative to the path that was given.
    path: str
    tree: ast.Module
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Unreadable:
    """A file that is left out of the report."""

    path: str
    #: 0 if the reason concerns the whole file.
    line: int
    why: str


def read_source(path: Path) -> tuple[list[SourceFile], list[Unreadable]]:
    """Every Python file of a file or folder, by path. Raises `NoSource`."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise NoSource(path=path, why=_reason(error)) from error
    unreadable: list[Unreadable] = []
    if is_folder:
        found = sorted(_python_files(path, unreadable))
    elif path.suffix != _SUFFIX:
        raise NoSource(path=path, why=f"its name does not end with {_SUFFIX}")
    else:
        found = [path]
    if not found and not unreadable:
        raise NoSource(path=path, why=f"the folder has no {_SUFFIX} file")
    base = path if is_folder else path.parent
    files = []
    for file in found:
        match _parsed(file, file.relative_to(base).as_posix()):
            case SourceFile() as source:
                files.append(source)
            case Unreadable() as problem:
                unreadable.append(problem)
    return files, sorted(unreadable, key=lambda problem: problem.path)


def _python_files(root: Path, unreadable: list[Unreadable]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        unreadable.append(Unreadable(Path(error.filename or root).relative_to(root).as_posix(), 0, _reason(error)))

    n_files = 0
    for folder, folders, names in os.walk(root, onerror=note):
        here = Path(folder)
        folders[:] = [
            name
            for name in folders
            if name not in _SKIPPED and not name.startswith(".") and not (here / name / _OF_ENVIRONMENT).exists()
        ]
        for name in names:
            if name.endswith(_SUFFIX):
                n_files += 1
                if n_files > MAX_FILES:
                    raise NoSource(path=root, why=f"the folder has more than {MAX_FILES:,} Python files")
                yield here / name


def _parsed(file: Path, name: str) -> SourceFile | Unreadable:
    try:
        data = _bytes_of(file)
        encoding, _ = detect_encoding(BytesIO(data).readline)
        # Line breaks become one character each, as the parser counts them.
        text = TextIOWrapper(BytesIO(data), encoding).read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
        return SourceFile(name, tree, tuple(text.split("\n")))
    except SyntaxError as error:
        return Unreadable(name, error.lineno or 0, f"{error.msg[:1].lower()}{error.msg[1:]}")
    except (OSError, ValueError) as error:
        return Unreadable(name, 0, _reason(error))
    except (RecursionError, MemoryError):
        return Unreadable(name, 0, "its expressions are nested too deeply")


def _bytes_of(file: Path) -> bytes:
    # A pipe would never end.
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file")
    if found.st_size > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    return file.read_bytes()


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is no text in {error.encoding}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)
