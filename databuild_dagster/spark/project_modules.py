"""Send a project's own modules to Spark's Python workers with the functions that use them.

Spark pickles a Python function for its workers. A function of an importable module is sent as a name, and the workers of a server
or a cluster have no folder of the project: they lack the module. So the code of such modules is sent itself; what is installed
for this Python is sent as a name as before, because the workers have the same installed. A JVM of this process starts its workers
in this process's environment, so there it is enough to name the folders (`workers_import_path`). (decision 0043)"""

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Final

_PACKAGE: Final = __name__.partition(".")[0]
_VARIABLE: Final = "PYTHONPATH"

#: The names that `sys.modules` had when it was last looked at.
_seen: set[str] = set()


def send_project_modules() -> None:
    """Let PySpark send the code of the project's modules that are imported by now.

    What such a module holds and a function uses is pickled with it: a lock or an open connection there cannot be.
    """
    from pyspark import cloudpickle

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for name in sys.modules.keys() - _seen:
        _seen.add(name)
        module = sys.modules.get(name)
        if isinstance(module, ModuleType) and name != "__main__" and _is_of_project(module):
            register(module)


@contextmanager
def workers_import_path() -> Iterator[None]:
    """Inside the block, new processes import from the folders that this process imports the project from."""
    before = os.environ.get(_VARIABLE)
    ours = [os.path.abspath(entry) for entry in sys.path if not _is_installed(os.path.abspath(entry))]
    os.environ[_VARIABLE] = os.pathsep.join(dict.fromkeys([*ours, *filter(None, (before or "").split(os.pathsep))]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _is_of_project(module: ModuleType) -> bool:
    """Whether the module's source is neither installed nor a part of Python or of this package."""
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py") or module.__name__.partition(".")[0] == _PACKAGE:
        return False
    return not _is_installed(os.path.abspath(file))


def _is_installed(path: str) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in _installed_folders())


@lru_cache
def _installed_folders() -> tuple[str, ...]:
    """Where Python and what pip installs are, written as found and without links."""
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages", "lib-dynload")}
    zipped = [entry for entry in sys.path if entry.endswith(".zip")]
    return tuple({*found, *(os.path.realpath(folder) for folder in found), *zipped})
