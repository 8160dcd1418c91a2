"""What definitions read while they load, noted so that a later command knows without Dagster that it would load the same.

An audit hook sees opened files, listed folders and executed modules. Their stats are noted, with a digest of the environment and
of the day. No note is written after a load with an input that has no stat: a socket, a process, a database, a clock, a file that
only native code opens (decision 0066). The next command loads again then.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import os
import re
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from glob import has_magic
from itertools import dropwhile, pairwise
from pathlib import Path
from types import CodeType
from typing import Any, Final

import msgspec

from databuild_dagster.model.logs import logger

#: The note of the last load, in the Dagster home.
NAME: Final = "loaded.json"
#: More than the largest projects; each command asks for the stat of each path.
MAX_PATHS: Final = 20_000
#: Audit events of inputs without a stat.
_UNSEEN_EVENTS: Final = re.compile(
    r"os\.(exec|fork|forkpty|posix_spawn|system)|pty\.spawn|socket\.(bind|connect|get\w+|send\w+)|sqlite3\.connect|subprocess\.Popen"
)
#: Names in code of the project that read what no audit event shows: clocks, chance, arguments, whether a file exists, and readers
#: and clients in native code.
_UNSEEN_NAMES: Final = re.compile(
    "now|utcnow|today|yesterday|tomorrow|time|time_ns|localtime|gmtime|monotonic|random|uuid[14]|urandom|token_hex|argv|"
    "l?exists|is_?(file|dir|link|symlink|mount)|which|samefile|l?stat|access|getmtime|getsize|readlink|duckdb|polars|psycopg2?|connect|create_engine|"
    r"DagsterInstance|read_(?!text|bytes)\w+|Parquet(File|Dataset)|DeltaTable|pyarrow\.dataset|\w+FileSystem|open_input_\w+"
)
#: The clock of a file system may be behind by so much.
_COARSE_NS: Final = 20_000_000
#: Variables that a shell or a terminal sets, and no definitions read.
_OF_SHELLS: Final = re.compile(r"SHLVL|PWD|OLDPWD|_|TERM|COLUMNS|LINES|WINDOWID|SSH_.*")
#: Names in a folder, such as a home in the project's folder, that commands make and remove.
_OWN_NAMES: Final = ("__pycache__", "databuild.db", NAME)
_INSTALLED: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")
#: Of installed code only the files are looked at.
_TRUSTED: Final = (
    "<",
    str(Path(__file__).parents[2]) + os.sep,
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")),
)

#: The script of the command has two names once `multiprocessing` is imported.
_OF_COMMAND: Final = ("__main__", "__mp_main__")

_Cached: Final = type(cache(lambda: None))

_log = logger(__name__)

#: Modification, change, size and inode of a file; of a folder also a digest of its names; None if nothing is there.
Stat = tuple[int, int, int, int, str] | None


class LoadNote(msgspec.Struct, frozen=True, kw_only=True):
    """A load that a command may rely on while all of this is the same."""

    surroundings: str
    stats: dict[str, Stat]
    #: The last event of the log that the work of the loading command saw, and its fingerprint.
    seq: int
    fingerprint: str | None


def read_note(home: Path, *named: object) -> LoadNote | None:
    """The note of the last load if the same definitions would load now; `named` are the options that name the definitions."""
    try:
        note = msgspec.json.decode((home / NAME).read_bytes(), type=LoadNote)
    except (OSError, UnicodeError, msgspec.DecodeError):
        return None
    if note.surroundings != _surroundings(named):
        return None
    changed = next((path for path, stat in note.stats.items() if not _is_same(path, stat)), None)
    if changed is not None:
        _log.debug("databuild: loading definitions, because %s changed", changed)
    return note if changed is None else None


class LoadWatch:
    """Watches a load within a `with` block. The process must not have imported modules of the project before."""

    def __init__(self, home: Path, *named: object) -> None:
        self._home, self._surroundings = home, _surroundings(named)
        self._paths: set[str] = set()
        self._codes: list[CodeType] = []
        self._doubts: set[str] = set()
        self._stats: dict[str, Stat] = {}
        #: Functions behind a cache that has answered nothing.
        self._uncalled: list[Callable[..., Any]] = []

    def __enter__(self) -> LoadWatch:
        self._began_ns = time.time_ns() - _COARSE_NS
        self._doubts.update(path for path in _module_files() if _is_of_project(path))
        if not _hooked:
            _hooked.append(True)
            sys.addaudithook(_hear)
        _watching.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _watching.remove(self)
        executed = {code.co_filename for code in self._codes if not code.co_filename.startswith("<")}
        files = self._paths | executed | _module_files()
        of_project = (
            module for module in [*sys.modules.values()] if _is_of_project(str(getattr(module, "__file__", "<")))
        )
        for value in (value for module in of_project for value in [*vars(module).values()]):
            if isinstance(value, _Cached) and not value.cache_info().misses:
                self._uncalled.append(value.__wrapped__)
        # Byte code stands for its source.
        files = {os.path.abspath(path) for path in files if "__pycache__" not in path and path != os.devnull}
        folders = {os.path.dirname(path) for path in files if os.path.exists(path)}
        searched = {os.path.abspath(entry) for entry in sys.path}
        noted = files | folders | searched | {str(self._home.absolute() / "dagster.yaml")}
        self._stats = {path: stat_of(path) for path in sorted(noted)[: MAX_PATHS + 1]}

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event. Raises nothing, because that would end what is audited."""
        match event:
            case "exec" if isinstance(args[0], CodeType):
                self._codes.append(args[0])
            case "import" if isinstance(args[1], str):
                self._paths.add(args[1])
            case "open" | "os.listdir" | "os.scandir":
                if isinstance(path := "." if args[0] is None else args[0], str | bytes | os.PathLike):
                    self._paths.add(os.path.abspath(os.fsdecode(path)))
            case "glob.glob" | "pathlib.Path.glob" | "pathlib.Path.rglob" if _asks_for_a_name(event, args):
                self._doubts.add(event)
            case _ if _UNSEEN_EVENTS.fullmatch(event):
                self._doubts.add(event)

    def write(
        self, bodies: Iterable[Callable[..., Any]], seq: int, fingerprint: str | None, called: Iterable[str] = ()
    ) -> None:
        """Write the note, or remove an earlier note if this load is in doubt.

        `bodies` are functions that no load calls, `called` the names of functions that Dagster calls.
        """
        changed = [path for path, stat in self._stats.items() if stat and not stat[4] and stat[1] >= self._began_ns]
        modules = [code for code in self._codes if code.co_name == "<module>" and _is_of_project(code.co_filename)]
        not_run = {
            id(code) for body in (*bodies, *self._uncalled) if (code := getattr(inspect.unwrap(body), "__code__", None))
        }
        names = sorted(filter(_UNSEEN_NAMES.fullmatch, _names_of(modules, not_run, called)))
        doubts = [*sorted(self._doubts), *changed, *names]
        path = self._home / NAME
        # The build has ended well, also where the disk is full or a path is no UTF-8.
        with suppress(OSError, UnicodeError):
            if doubts or len(self._stats) > MAX_PATHS:
                _log.debug(
                    "databuild: the next command loads definitions again, because of %s", doubts[:1] or MAX_PATHS
                )
                path.unlink(missing_ok=True)
                return
            note = LoadNote(surroundings=self._surroundings, stats=self._stats, seq=seq, fingerprint=fingerprint)
            temporary = path.with_name(f"{NAME}.{os.getpid()}")
            temporary.write_bytes(msgspec.json.encode(note))
            temporary.replace(path)


_hooked: list[bool] = []
_watching: list[LoadWatch] = []


def _hear(event: str, args: tuple[Any, ...]) -> None:
    # Another thread may end the watch meanwhile.
    for watch in _watching[-1:]:
        watch.heard(event, args)


def _asks_for_a_name(event: str, args: tuple[Any, ...]) -> bool:
    """Whether a pattern has a part without wildcards, which no folder is listed for, as in `*/_SUCCESS`."""
    parts = Path(os.fsdecode(args[0] if event == "glob.glob" else args[1])).parts
    if event == "glob.glob":
        # It lists the folder that precedes the first wildcard.
        parts = tuple(dropwhile(lambda part: not has_magic(part), parts))
    return not parts or not all(map(has_magic, parts))


def stat_of(path: str) -> Stat:
    """The stat that a note has of a path."""
    try:
        found = os.stat(path)
        listed = [name for name in os.listdir(path) if not name.startswith(_OWN_NAMES)] if os.path.isdir(path) else None
    except OSError:
        return None
    names = "" if listed is None else _digest(sorted(listed))
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, names


def _is_same(path: str, noted: Stat) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return noted is None
    if noted is None:
        return False
    same = noted[:4] == (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
    # A folder with the same names has the same files and folders, which are noted themselves if they were read.
    return same or (bool(noted[4]) and (stat_of(path) or noted)[4] == noted[4])


def _surroundings(named: Sequence[object]) -> str:
    """What a load depends on beside paths. The day stands for the clocks that installed packages may read."""
    environment = sorted(item for item in os.environ.items() if not _OF_SHELLS.fullmatch(item[0]))
    days = time.strftime("%j", time.localtime()), time.strftime("%Y %j", time.gmtime())
    return _digest([sys.version, sys.path, sys.flags, os.getcwd(), os.geteuid(), named, environment, days])


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _module_files() -> set[str]:
    modules = {name: module for name, module in [*sys.modules.items()] if name not in _OF_COMMAND}
    found = (getattr(module, "__file__", None) for module in modules.values())
    return {path for path in found if isinstance(path, str)}


def _is_of_project(path: str) -> bool:
    return not path.startswith(_TRUSTED) and not _INSTALLED.search(path)


def _names_of(modules: Iterable[CodeType], not_run: set[int], called: Iterable[str]) -> set[str]:
    """The names and texts in code that may run while these modules load.

    A function that is defined without a decorator runs only if code that may run has its name, or if it is `called`.
    """
    # Python calls the function of a module for names that the module does not have.
    names = {"__getattr__", *called}
    named: defaultdict[str, list[CodeType]] = defaultdict(list)
    left: list[CodeType] = []
    for module in modules:
        made: CodeType | None = None
        for step, following in pairwise(dis.get_instructions(module)):
            if step.opname in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "EXTENDED_ARG"):
                continue
            is_stored = step.opname.startswith("STORE_")
            # A module that is imported under its own name has that name where it is used.
            is_import = step.opname == "IMPORT_NAME" and following.argval == step.argval
            if made is not None:
                (named[step.argval] if is_stored else left).append(made)
            made = step.argval if isinstance(step.argval, CodeType) else None
            names.update(() if is_stored or is_import else _texts(step.argval))
    while left := left or [code for name in names & named.keys() for code in named.pop(name)]:
        code = left.pop()
        if id(code) not in not_run:
            names.update(code.co_names, _texts(code.co_consts))
            left += [const for const in code.co_consts if isinstance(const, CodeType)]
    return names


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | frozenset):
        for part in value:
            yield from _texts(part)
