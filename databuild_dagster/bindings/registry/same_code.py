"""A function becomes a digest of its code and of the code of its project that it reaches (rule 4.7).

The function's source is followed by name: functions, classes and constants of the project, through modules, closures, decorators,
defaults, bases. Code of libraries is named, not followed. A source counts only if it compiles to the code that is loaded. Code that
cannot be followed makes the digest unknown, with a reason. The module imports no Dagster, so that any Python can check its digests.
"""

from __future__ import annotations

import ast
import builtins
import copy
import enum
import hashlib
import importlib.util
import inspect
import linecache
import os
import re
import sys
import sysconfig
from abc import ABCMeta
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial, partialmethod, wraps
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any, Final, NamedTuple

from databuild_dagster.bindings.registry.syntax import (
    SETS,
    Def,
    Reference,
    Tree,
    UnknownSyntax,
    constant_text,
    tree_of,
    tree_of_function,
    words_of,
)

#: The rules of this module and of `syntax`. Digests of different rules are not compared.
RULES: Final = "tree-1"
#: Parts that are named in a registration, and reasons.
MAX_PARTS: Final = 100
MAX_REASONS: Final = 5
#: Files in memory.
MAX_SOURCES: Final = 200
#: Modules whose changes are in memory.
MAX_MODULES: Final = 20_000
#: Values inside a value.
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 50


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Builtins, and names of libraries, that make code or find names at run time.
_BUILTINS_AT_RUN_TIME: Final = ("eval", "exec", "compile", "globals", "locals", "vars", "__import__")
_AT_RUN_TIME: Final = _names(
    "import_module exec_module load_module find_loader __subclasses__ __globals__ __code__ __dict__ __doc__ "
    "__builtins__ _getframe currentframe CDLL WinDLL LoadLibrary dlopen cffi load_library"
)
#: Names that read a file.
_READS: Final = _names(
    "open read_text read_bytes read_csv read_parquet read_json read_excel read_feather read_orc read_table read_fwf "
    "read_pickle read_xml read_html read_ipc read_avro read_delta read_dataset read_sas read_stata read_spss "
    "read_hdf scan_csv scan_parquet scan_ipc scan_ndjson read_ndjson loadtxt genfromtxt fromfile memmap get_data "
    "getline getlines open_text open_binary read_binary ParquetFile ParquetDataset"
) | {
    f"{reader}.{way}"
    for reader in ("read", "readStream")
    for way in _names("csv parquet json orc text table format load option options schema jdbc")
}
#: Methods that change what has them.
_CHANGES: Final = _names(
    "add append appendleft clear discard extend extendleft insert pop popitem popleft register remove reverse setdefault sort update "
    "__setitem__ __setattr__"
)
#: Names whose values differ between builds of the same code, and between places.
_CHANCE: Final = _names(
    "now utcnow today time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time "
    "localtime gmtime ctime strftime random randint randrange randbytes getrandbits choice choices sample shuffle uniform gauss normal "
    "normalvariate triangular betavariate expovariate integers standard_normal permutation {hash} uuid1 uuid4 urandom token_hex "
    "token_bytes token_urlsafe randbelow getpid getppid get_ident default_rng RandomState"
)
#: Sets, whose order differs between processes.
_SETS: Final = frozenset(("set", "frozenset", SETS))
#: Texts of values that no order of a set decides; the text of a set is sorted.
_WITHOUT_ORDER: Final = ("builtins.set[", "builtins.frozenset[", "int:", "float:", "bool:", "NoneType:")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]{6}")
#: A builtin whose values differ between processes, among the names of chance.
_HASHES: Final = _names("hash id")
_PLACE: Final = _names(
    "__file__ environ getenv getcwd cwd home expanduser gethostname getuser node argv gettempdir mkdtemp mkstemp mktemp "
    "NamedTemporaryFile TemporaryDirectory"
)

#: Of the flags of a class.
_MADE_IN_PYTHON: Final = 1 << 9
_INSTALLED: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")
_OWN: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STDLIB: Final = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))
#: Packages whose decorators declare an asset: the registration has what they say.
_DECLARING: Final = ("databuild_dagster", "dagster")
#: In place of a value that is not known.
_ANY: Final = object()
#: Types whose state is known of a value of a subclass.
_STATES: Final = (object, dict, list, tuple, set, frozenset, int, float, complex, str, bytes, BaseException)
#: In place of a wrapper that is not known.
_UNKNOWN_WRAPPER: Final = object()
_PLAIN: Final = (int, float, complex, str, bytes, bool, type(None), type(...))
#: Types of the standard library whose values have a text that depends on nothing else.
_BY_TEXT: Final = re.compile(
    r"(datetime\.(date|datetime|time|timedelta|timezone)|decimal\.Decimal|fractions\.Fraction|uuid\.UUID|zoneinfo\.ZoneInfo|"
    r"pathlib(\._local)?\.(Pure)?(Posix|Windows)?Path|builtins\.(range|slice)|ipaddress\.\w+)"
)


class Code(NamedTuple):
    """The code of a function."""

    #: None if it is unknown.
    digest: str | None
    #: Why it is unknown.
    unknown: tuple[str, ...]
    #: The functions, classes and constants that it consists of, each with a digest of its own: `clean in shop/cleaning.py`.
    parts: dict[str, str]


class CodeReader:
    """Reads the code of functions. A reader keeps what it has read, so one reader takes the functions of a code location."""

    def __init__(self) -> None:
        #: The package of the function, if it is installed; it is of the project then.
        self._package = ""
        self._parts_by_package: dict[str, dict[Any, _Part]] = {}
        self._parts: dict[Any, _Part] = {}
        self._left: list[Callable[[], None]] = []
        self._n_modules = 0
        #: By the id of a module's names; "" for any name of it.
        self._changed_names: set[tuple[int, str]] = set()
        #: By the id of a value: the value, so that the id stays its own, and the names under which code changes it.
        self._changed_values: dict[int, tuple[Any, list[tuple[int, str]]]] = {}

    def code_of(self, function: Callable[..., Any], settings: Mapping[str, Any] | None = None) -> Code:
        """The code of a function, with `settings` of its declaration that decide what it returns. Raises nothing."""
        try:
            return self._code_of(function, settings)
        except (Exception, SystemExit) as error:  # Objects of the project may raise anything when they are looked at.
            self._left.clear()
            self._parts.clear()
            return Code(None, (f"it cannot be read ({type(error).__name__})",), {})

    def _code_of(self, function: Callable[..., Any], settings: Mapping[str, Any] | None) -> Code:
        inner = inspect.unwrap(function)
        path = getattr(getattr(inner, "__code__", None), "co_filename", "")
        top = str(getattr(inner, "__module__", None) or "").partition(".")[0]
        self._package = top if _INSTALLED.search(path) else ""
        self._parts = self._parts_by_package.setdefault(self._package, {})
        found = _Values(self).of(function)
        declared = _Values(self).of(dict(settings or {}))
        while self._left:
            self._left.pop()()
        return self._code([found, declared])

    # What the code of a value is.

    def unwrapped(self, value: Any) -> Any:
        """What the code of a value is: the value, the function that decorators have wrapped, or `_UNKNOWN_WRAPPER`."""
        chain = _wrapped_by(value)
        inner = chain[-1]
        if len(chain) == 1 or not isinstance(inner, FunctionType) or _dispatched(value) is not None:
            return value
        if isinstance(value, FunctionType) and self.is_of_project(value.__code__.co_filename, value.__module__ or ""):
            # A wrapper of the project has its function in its closure.
            held = [cell.cell_contents for cell in value.__closure__ or () if _has_value(cell)]
            if not _Values(self).of(held).unknown:
                return value
        if not self.is_of_project(inner.__code__.co_filename, inner.__module__ or ""):
            return _UNKNOWN_WRAPPER
        source = self.source_of(inner.__code__.co_filename, inner.__module__ or "")
        node = source.node_of(inner.__code__) if source else None
        if node is None:
            return inner  # It is unknown.
        found = _wrapped_by(_value_at(inner))
        is_of_name = found[-1] is not inner or any(one is value for one in found)
        n_decorators = len(
            [one for one in getattr(node, "decorator_list", ()) if not _declares(one, inner.__globals__)]
        )
        return inner if is_of_name and len(chain) - 1 <= n_decorators else _UNKNOWN_WRAPPER

    def is_changed(self, value: Any, name: str, names: Mapping[str, Any]) -> bool:
        """Whether code other than the statements of its module may change a value of a name."""
        if self._n_modules != len(sys.modules):
            self._n_modules = len(sys.modules)
            self._find_changes()
        own = id(names)
        if not self._changed_names.isdisjoint(((own, name), (own, ""))):
            return True
        _, places = self._changed_values.get(id(value), (None, ()))
        return any(place != (own, name) for place in places)

    def _find_changes(self) -> None:
        """Find what the loaded modules of the project change."""
        self._changed_names.clear()
        self._changed_values.clear()
        loaded: list[tuple[str, Any]] = list(sys.modules.items())
        for module_name, module in loaded:
            if not isinstance(module, ModuleType):
                continue
            path = vars(module).get("__file__")
            if not isinstance(path, str) or not self.is_of_project(path, module_name):
                continue
            own = id(vars(module))
            for root, first, is_in_function in _changes_of(path, module.__name__, _stat_of(path)):
                if is_in_function:
                    self._changed_names.add((own, root))
                found = vars(module).get(root)
                if isinstance(found, ModuleType):
                    self._changed_names.add((id(vars(found)), first))
                elif type(found) not in _PLAIN:
                    self._changed_values.setdefault(id(found), (found, []))[1].append((own, root))

    # The graph of parts.

    def part(self, key: Any, label: str, fill: Callable[[_Part], None]) -> _Part:
        """The part with a key, which is filled later: parts may reach each other in a ring."""
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = _Part(label)
            self._left.append(partial(_filled, part, fill))
        return part

    def _code(self, roots: list[_Value]) -> Code:
        places: dict[int, int] = {}
        left: list[_Part] = []

        def place(part: _Part) -> int:
            """The place in the order of first appearance, which two processes have alike."""
            if id(part) not in places:
                places[id(part)] = len(places)
                left.append(part)
            return places[id(part)]

        whole = hashlib.sha256()
        texts = [root.text + "".join(f"#{place(part)}" for part in root.parts) for root in roots]
        whole.update("\n".join(texts).encode("utf-8", "surrogatepass"))
        unknown: dict[str, None] = dict.fromkeys(reason for root in roots for reason in root.unknown)
        parts: dict[str, str] = {}
        for part in left:  # It grows.
            if part.read is None:
                part.read = self._read(part)
            own, targets, reasons = part.read
            unknown.update(dict.fromkeys(f"{reason} in {part.label}" for reason in reasons))
            whole.update(f"\n{own} {' '.join(str(place(target)) for target in targets)}".encode())
            _name_part(parts, part.label, own[:12])
        if unknown:
            return Code(None, tuple(unknown)[:MAX_REASONS], parts)
        return Code(f"{RULES}:{whole.hexdigest()[:32]}", (), parts)

    def _read(self, part: _Part) -> tuple[str, list[_Part], list[str]]:
        """The digest of a part's own text, the parts that it needs, and why it is unknown."""
        text, targets, unknown, value = part.text, part.targets, part.unknown, part.value
        if value is not None:
            is_steady = _is_steady(part)
            if is_steady and not value.unknown:
                text, targets, unknown = f"value {value.text}", value.parts, []
            else:
                # Values that are not known count by their expressions, and what is known of them counts too.
                if is_steady:
                    text, targets = f"{text}\nvalue {value.text}", [*targets, *value.parts]
                if part.is_changed is not None and part.is_changed():
                    unknown = [*unknown, "its value is changed by other code"]
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), targets, unknown

    # Sources.

    def source_of(self, path: str | None, name: str = "") -> _Source | None:
        """The source of a file, None if there is none."""
        return None if path is None else _source(path, name, _stat_of(path))

    def source_of_module(self, module: ModuleType | None) -> _Source | None:
        return self.source_of(getattr(module, "__file__", None), module.__name__ if module else "")

    def is_of_project(self, path: str | None, module: str = "") -> bool:
        """Whether a file is of the project: it is not installed, or is installed in the package of an asset."""
        if path is None:
            return False
        if path.startswith("<"):
            return bool(linecache.getlines(path))
        path = os.path.abspath(path)
        if path.startswith(_OWN):
            return False
        if _INSTALLED.search(path):
            return bool(self._package) and module.partition(".")[0] == self._package
        return not path.startswith(_STDLIB) and not os.path.realpath(path).startswith(_STDLIB)


@dataclass
class _Part:
    """A function, class or constant."""

    label: str
    text: str = ""
    #: Parts that it needs, in the order of appearance.
    targets: list[_Part] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    #: Names of readers, clocks and places.
    uses: set[str] = field(default_factory=set)
    #: Of what has a value when the module is loaded. A steady value that is known counts, in place of the text.
    value: _Value | None = None
    #: Whether code that is not in the text may change the value.
    is_changed: Callable[[], bool] | None = None
    #: The digest of its own text, the parts that it needs, and why it is unknown, when all are filled.
    read: tuple[str, list[_Part], list[str]] | None = None


class _Value(NamedTuple):
    """The text of a value, and parts in it."""

    text: str
    parts: list[_Part]
    unknown: list[str]


def _filled(part: _Part, fill: Callable[[_Part], None]) -> None:
    try:
        fill(part)
    except UnknownSyntax as error:
        part.unknown.append(f"the syntax {error} is not known")
    except (Exception, SystemExit) as error:  # Objects of the project may raise anything when they are looked at.
        part.unknown.append(f"it cannot be read ({type(error).__name__}: {error})")


def _is_steady(part: _Part) -> bool:
    """Whether each process has the same value: neither chance, a place nor the order of a set decides it.

    A file beside the module is found by its place; its text is the same in every place.
    """
    uses = set[str]().union(*(one.uses for one in _reach(part)))
    text = part.value.text if part.value else ""
    if uses & _CHANCE or _ADDRESS.search(text):
        return False
    if uses & _SETS and not text.startswith(_WITHOUT_ORDER):
        return False
    return bool(uses & _READS) or not uses & _PLACE


def _reach(part: _Part) -> Iterator[_Part]:
    seen, left = {id(part)}, [part]
    while left:
        found = left.pop()
        yield found
        for target in found.targets:
            if id(target) not in seen:
                seen.add(id(target))
                left.append(target)


def _name_part(parts: dict[str, str], label: str, own: str) -> None:
    """Several parts of one name, such as lambdas of a line, and parts above the bound have a digest together."""
    if label not in parts and len(parts) >= MAX_PARTS:
        label = "other functions"
    before = parts.get(label)
    parts[label] = own if before is None else hashlib.sha256(f"{before} {own}".encode()).hexdigest()[:12]


class _Source:
    """A module's file: its tree, the names that it binds, and the code that it compiles to."""

    def __init__(self, path: str, text: str, name: str) -> None:
        self.path = path
        self.tree = ast.parse(text)
        parts = path.replace("\\", "/").split("/")
        depth = 1 if name in ("", "__main__") else name.count(".") + 1 + (parts[-1] == "__init__.py")
        #: The path in the project.
        self.place = "/".join(parts[-depth:])

    @cached_property
    def bindings(self) -> dict[str, list[ast.stmt]]:
        """The statements of the module that bind or change each name, in their order."""
        found: defaultdict[str, list[ast.stmt]] = defaultdict(list)
        for statement in self.tree.body:
            if not _is_passed_over(statement):
                for name in _changed_by(statement):
                    found[name].append(statement)
        return found

    @cached_property
    def changes(self) -> set[tuple[str, str, bool]]:
        """Names whose values code changes, each with its first attribute or "", and whether a function does it."""
        found: set[tuple[str, str, bool]] = set()
        left: list[tuple[ast.AST, frozenset[str] | None]] = [(self.tree, None)]
        while left:
            node, own = left.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                own = (own or frozenset()) | _own_names(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and own is not None:
                found |= {(node.id, "", True)} if node.id not in own else set()
            for root, first in _changes_in(node):
                if own is None or root not in own:
                    found.add((root, first, own is not None))
            left += ((child, own) for child in ast.iter_child_nodes(node))
        return found

    @cached_property
    def stars(self) -> list[str]:
        """Modules of which every name is imported."""
        return [
            _module_of(node)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        ]

    @cached_property
    def _codes(self) -> dict[Any, list[CodeType]]:
        """By name, and by name and place."""
        found: defaultdict[Any, list[CodeType]] = defaultdict(list)
        left = [compile(self.tree, self.path, "exec", dont_inherit=True)]
        while left:
            inner = [const for const in left.pop().co_consts if isinstance(const, CodeType)]
            for code in inner:
                found[code.co_qualname].append(code)
                found[code.co_qualname, _place_of(code)].append(code)
            left += inner
        return found

    @cached_property
    def _functions(self) -> dict[tuple[str, int], list[Def | ast.Lambda]]:
        found: defaultdict[tuple[str, int], list[Def | ast.Lambda]] = defaultdict(list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Lambda):
                found["<lambda>", node.lineno].append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.decorator_list[0] if node.decorator_list else node
                found[node.name, first.lineno].append(node)
        for nodes in found.values():
            nodes.sort(key=_begin_of)
        return found

    def node_of(self, code: CodeType) -> Def | ast.Lambda | None:
        """The function whose compilation equals loaded code."""
        for key in ((code.co_qualname, _place_of(code)), code.co_qualname):
            same = [found for found in self._codes.get(key, ()) if _is_same_code(found, code)]
            same.sort(key=lambda found: found.co_firstlineno != code.co_firstlineno)
            for found in same:
                nodes = self._functions.get((code.co_name, found.co_firstlineno), [])
                # The first instruction of a body is inside a lambda, after all that begin before it on the line.
                n = bisect_left(nodes, _place_of(found), key=_begin_of) if len(nodes) > 1 else len(nodes)
                around = (
                    node for node in reversed(nodes[max(0, n - MAX_DEPTH) : n]) if _is_around(node, _place_of(found))
                )
                if (node := next(around, None)) is not None:
                    return node
        return None


def _stat_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = None if path.startswith("<") else os.stat(path)
    except OSError:
        return None  # A cell of a notebook has a file that is not written.
    return found and (found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=MAX_SOURCES)
def _source(path: str, name: str, stat: object) -> _Source | None:
    """A changed file, whose `stat` differs, is read again; then the loaded code is not its."""
    try:
        if stat is None:
            text = "".join(linecache.getlines(path))
        else:
            with open(path, "rb") as file:
                text = importlib.util.decode_source(file.read())
        return _Source(path, text, name) if text or stat else None
    except (OSError, SyntaxError, UnicodeError, ValueError):
        return None


@lru_cache(maxsize=MAX_MODULES)
def _changes_of(path: str, name: str, stat: object) -> Set[tuple[str, str, bool]]:
    """What the code of a file changes. All modules of a project are asked, and their trees would fill the memory."""
    source = _source(path, name, stat)
    return source.changes if source else frozenset()


def _place_of(code: CodeType) -> tuple[int, int]:
    """The first place of a code's instructions."""
    return min(((line, column) for line, _, column, _ in code.co_positions() if line and column), default=(0, 0))


def _begin_of(node: Def | ast.Lambda) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_around(node: Def | ast.Lambda, place: tuple[int, int]) -> bool:
    return not isinstance(node, ast.Lambda) or place <= (node.end_lineno or 0, node.end_col_offset or 0)


def _is_same_code(first: CodeType, second: CodeType) -> bool:
    fields = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags", "co_argcount")
    others = ("co_kwonlyargcount", "co_posonlyargcount", "co_name")
    if any(getattr(first, name) != getattr(second, name) for name in (*fields, *others)):
        return False
    if len(first.co_consts) != len(second.co_consts):
        return False
    for one, other in zip(first.co_consts, second.co_consts, strict=True):
        if isinstance(one, CodeType):
            if not isinstance(other, CodeType) or not _is_same_code(one, other):
                return False
        elif type(one) is not type(other):
            return False
        elif repr(one) != repr(other) and not (isinstance(one, frozenset | tuple) and one == other):
            # Two processes print a set in two orders; 0.0 and -0.0 are equal, and print differently.
            return False
    return True


def _is_passed_over(statement: ast.stmt) -> bool:
    """Whether an import does not execute a statement: `if __name__ == "__main__"`."""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and ast.unparse(statement.test) == "__name__ == '__main__'"
    )


def _changed_by(statement: ast.stmt) -> Iterator[str]:
    """Names of the module that a statement binds, or whose values it may change."""
    found: dict[str, None] = {}
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found[node.name] = None
                children = ()
            case ast.Lambda():
                children = ()
            case ast.Import() | ast.ImportFrom():
                found.update(dict.fromkeys(alias.asname or alias.name.partition(".")[0] for alias in node.names))
            case ast.Name(ctx=ast.Store() | ast.Del()):
                found[node.id] = None
            case ast.Expr(value=ast.Call() as call):
                named = [*call.args, *(keyword.value for keyword in call.keywords)]
                found.update(dict.fromkeys(root for one in (call.func, *named) for root in _root_of(one)[:1]))
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
                found[node.name] = None
        found.update((root, None) for root, _ in _changes_in(node))
        left += children
    return iter(found)


def _changes_in(node: ast.AST) -> list[tuple[str, str]]:
    """The name, with the first attribute or "", whose value a node changes by itself."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            found = _root_of(node)
        case ast.Call(func=ast.Attribute(attr=name)) if name in _CHANGES:
            found = _root_of(node.func)
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[first, *_]):
            found = [*_root_of(first), ""]
        case _:
            return []
    # `conf.COLUMNS.append` may change `COLUMNS` of a module; `columns.append` names no attribute.
    return [(found[0], found[1] if len(found) > 1 else "")] if found else []


def _root_of(node: ast.AST) -> list[str]:
    """The name on which attributes, items and calls are looked up, and the attributes."""
    names = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _own_names(function: Def | ast.Lambda) -> set[str]:
    """Arguments and locals of a function, with those of the functions in it."""
    names = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    shared: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.Global):
            shared.update(node.names)
    return names - shared


def _module_of(node: ast.ImportFrom) -> str:
    return "." * node.level + (node.module or "")


class _Place(NamedTuple):
    """Where code finds its names."""

    names: Mapping[str, Any]
    source: _Source | None
    #: Variables of enclosing functions.
    closure: Mapping[str, Any] = {}

    @property
    def package(self) -> str:
        return str(self.names.get("__package__") or str(self.names.get("__name__", "")).rpartition(".")[0])


class _Follower:
    """Fills a part: its text, and the parts that it needs."""

    def __init__(self, reader: CodeReader, part: _Part, place: _Place) -> None:
        self._reader = reader
        self._part = part
        self._place = place

    def take(self, tree: Tree) -> None:
        self._part.text += tree.text
        self._uses(tree.attributes)
        for reference, is_annotation in tree.references.items():
            # The name of a variable of an enclosing function does not count.
            name = "" if reference.kind == "closure" else reference.name
            self._part.text += f"\n{reference.kind} {name} {'.'.join(reference.attributes)} "
            self._follow(reference, is_annotation=is_annotation)

    def take_part(self, key: Any, nodes: Iterable[ast.AST], value: Any, *, is_inner: bool = False) -> None:
        """A value that is a part of its own, with the syntax that made it; a function that has run made one of an inner function."""

        def fill(part: _Part) -> None:
            part.value = _Values(self._reader).of(value)
            if is_inner:
                part.unknown += part.value.unknown
            else:
                _Follower(self._reader, part, self._place).take(tree_of(nodes))

        self._part.text += "\npart"
        self._part.targets.append(self._reader.part(key, self._part.label, fill))

    def take_value(self, value: Any) -> None:
        found = _Values(self._reader).of(value)
        self._part.text += f"\n{found.text}"
        self._part.targets += found.parts
        self._part.unknown += found.unknown

    def _uses(self, names: Iterable[str]) -> None:
        for name in names:
            if name in _AT_RUN_TIME:
                self._part.unknown.append(f"{name} finds code or names at run time")
            elif name in _READS:
                self._part.unknown.append(f"{name} reads a file")
                self._part.uses.add(name)
            elif name in _CHANCE or name in _PLACE or name in _SETS:
                self._part.uses.add(name)

    def _follow(self, reference: Reference, *, is_annotation: bool) -> None:
        kind, name, attributes = reference
        if kind == "closure":
            if name in self._place.closure:
                self._value(self._place.closure[name], attributes)
            else:
                self._part.unknown.append(f"the variable {name} has no value when the module is loaded")
        elif kind == "from":
            if not isinstance(self._imported_from(name), ModuleType):
                self._import(name, attributes)
        elif kind == "import":
            self._import(name, attributes)
        else:
            self._name(self._place, name, attributes, is_annotation=is_annotation)

    def _name(self, place: _Place, name: str, attributes: tuple[str, ...], *, is_annotation: bool = False) -> None:
        if name in place.names:
            statements = place.source.bindings.get(name, []) if place.source else []
            if statements and all(isinstance(one, ast.Import | ast.ImportFrom) for one in statements):
                self._imported(place, name, statements, attributes)
            elif name.startswith("__") and name.endswith("__") and not statements:
                self._uses([name])
            elif self._is_code(place.names[name]):
                self._value(place.names[name], attributes)
            elif statements:
                self._part.targets.append(self._constant(place, name, statements))
                self._uses(attributes)
            else:
                self._starred(place, name, attributes)
        elif hasattr(builtins, name):
            self._builtin(name, is_annotation=is_annotation)
        elif not is_annotation:
            self._part.unknown.append(f"the name {name} has no value when the module is loaded")

    def _builtin(self, name: str, *, is_annotation: bool) -> None:
        self._part.text += "builtin"
        if name in _BUILTINS_AT_RUN_TIME:
            self._part.unknown.append(f"{name} finds code or names at run time")
        elif name in _HASHES:
            self._part.uses.add("{hash}")
        elif not is_annotation:
            self._uses([name])

    def _is_code(self, value: Any) -> bool:
        """Whether a value is a function, class or module, which is found by value; any other value is found by its statements."""
        value = self._reader.unwrapped(value)
        if isinstance(value, FunctionType):
            return self._reader.is_of_project(value.__code__.co_filename, value.__module__ or "")
        if isinstance(value, type) and self._reader.is_of_project(_file_of(value), value.__module__):
            # A class that a call makes, such as a `namedtuple`, has a statement like a constant.
            source = self._reader.source_of_module(sys.modules.get(value.__module__))
            return bool(_classes_in(source, value.__qualname__))
        return isinstance(value, type | ModuleType) and not _is_made(value)

    def _imported(self, place: _Place, name: str, statements: list[ast.stmt], attributes: tuple[str, ...]) -> None:
        for statement in statements:
            assert isinstance(statement, ast.Import | ast.ImportFrom)
            for alias in statement.names:
                if (alias.asname or alias.name.partition(".")[0]) != name:
                    continue
                if isinstance(statement, ast.ImportFrom):
                    self._import(f"{_module_of(statement)}:{alias.name}", attributes, place, place.names[name])
                else:
                    self._import(alias.name if alias.asname else name, attributes, place)

    def _import(self, text: str, attributes: tuple[str, ...], place: _Place | None = None, value: Any = _ANY) -> None:
        """A module, or `module:name` with the value that the importing module has."""
        package = (place or self._place).package
        module_name, colon, name = text.partition(":")
        try:
            module_name = (
                importlib.util.resolve_name(module_name, package) if module_name.startswith(".") else module_name
            )
        except ImportError:
            self._part.unknown.append(f"the import of {module_name} is not known")
            return
        module = sys.modules.get(module_name)
        if module is None and not self._may_be_of_project(module_name):
            self._library(f"{module_name}{colon}{name}", (*filter(None, [name]), *attributes))
        elif module is None:
            self._part.unknown.append(f"{module_name} is not imported when the module is loaded")
        elif not self._is_module_of_project(module):
            self._library(f"{module_name}{colon}{name}", (*filter(None, [name]), *attributes))
        elif value is not _ANY and vars(module).get(name, value) is not value:
            # Put in the place of what was imported.
            self._value(value, attributes)
        else:
            self._module(module, (*filter(None, [name]), *attributes))

    def _imported_from(self, text: str) -> Any:
        """The value of `module:name`, None if there is none."""
        module_name, _, name = text.partition(":")
        if module_name.startswith("."):
            try:
                module_name = importlib.util.resolve_name(module_name, self._place.package)
            except ImportError:
                return None
        module = sys.modules.get(module_name)
        return getattr(module, "__dict__", {}).get(name, sys.modules.get(f"{module_name}.{name}"))

    def _library(self, text: str, names: Iterable[str]) -> None:
        self._part.text += f"library {text}"
        self._uses(names)

    def _may_be_of_project(self, module_name: str) -> bool:
        """Of a module that nothing has imported yet."""
        top = module_name.partition(".")[0]
        if top in sys.modules:
            return self._is_module_of_project(sys.modules[top])
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return False
        return spec is not None and self._reader.is_of_project(spec.origin, top)

    def _is_module_of_project(self, module: ModuleType) -> bool:
        path = getattr(module, "__file__", None)
        if path is None:
            # A package without __init__.py.
            path = next((os.path.join(folder, "__init__.py") for folder in getattr(module, "__path__", ())), None)
        return self._reader.is_of_project(path, module.__name__)

    def _module(self, module: ModuleType, attributes: tuple[str, ...]) -> None:
        if not self._is_module_of_project(module):
            self._library(module.__name__, attributes)
            return
        path = getattr(module, "__file__", None)
        if path is not None and not path.endswith((".py", ".pyw")) and not path.startswith("<"):
            self._part.unknown.append(f"{module.__name__} is an extension in native code")
        elif not attributes:
            self._part.unknown.append(f"the module {module.__name__} is used as a value")
        elif attributes[0] in vars(module):
            place = _Place(vars(module), self._reader.source_of_module(module))
            self._name(place, attributes[0], attributes[1:])
        elif (inner := sys.modules.get(f"{module.__name__}.{attributes[0]}")) is not None:
            self._module(inner, attributes[1:])
        else:
            self._part.unknown.append(f"{module.__name__} has no name {attributes[0]} when it is loaded")

    def _value(self, value: Any, attributes: tuple[str, ...]) -> None:
        if isinstance(value, ModuleType):
            self._module(value, attributes)
        else:
            self.take_value(value)
            if not self._is_code(value):
                self._uses(attributes)

    def _starred(self, place: _Place, name: str, attributes: tuple[str, ...]) -> None:
        """A name without a statement of the module: of an import of every name, or of a notebook."""
        for text in place.source.stars if place.source else ():
            module_name = importlib.util.resolve_name(text, place.package) if text.startswith(".") else text
            module = sys.modules.get(module_name)
            if module is not None and vars(module).get(name, self) is place.names[name]:
                self._import(f"{text}:{name}", attributes, place)
                return
        self._value(place.names[name], attributes)

    def _constant(self, place: _Place, name: str, statements: list[ast.stmt]) -> _Part:
        def fill(part: _Part) -> None:
            _Follower(self._reader, part, place).take(tree_of(statements))
            value = place.names[name]
            part.value = _Values(self._reader).of(value)
            part.is_changed = partial(self._reader.is_changed, value, name, place.names)

        where = f" in {place.source.place}" if place.source else ""
        return self._reader.part(("name", id(place.names), name), f"{name}{where}", fill)


class _Values:
    """Writes a value as a text that equal values of other processes have, too."""

    def __init__(self, reader: CodeReader) -> None:
        self._reader = reader
        self._parts: list[_Part] = []
        self._unknown: list[str] = []
        self._open: set[int] = set()
        self._n = 0

    def of(self, value: Any) -> _Value:
        text = self._text(value)
        return _Value(text, self._parts, self._unknown)

    def _text(self, value: Any) -> str:
        self._n += 1
        if type(value) in _PLAIN:
            return constant_text(value)
        if self._n > MAX_VALUES or len(self._open) > MAX_DEPTH:
            return self._is_unknown("a value is too large to compare")
        if id(value) in self._open:
            return self._is_unknown("a value contains itself")
        self._open.add(id(value))
        text = self._text_of(value)
        self._open.discard(id(value))
        return text

    def _is_unknown(self, why: str) -> str:
        if why not in self._unknown:
            self._unknown.append(why)
        return "?"

    def _at(self, part: _Part) -> str:
        self._parts.append(part)
        return "@"

    def _text_of(self, value: Any) -> str:
        value = self._reader.unwrapped(value)
        kind = type(value)
        name = _name_of(kind)
        match value:
            case _ if value is _UNKNOWN_WRAPPER:
                return self._is_unknown("a function is wrapped by a call")
            case list() | tuple() | deque() if kind in (list, tuple, deque):
                return f"{name}[{' '.join(map(self._text, value))}]"
            case set() | frozenset() if kind in (set, frozenset):
                n_parts = len(self._parts)
                texts = sorted(map(self._text, value))
                return (
                    self._is_unknown("functions in a set have no order")
                    if len(self._parts) > n_parts
                    else f"{name}{texts}"
                )
            case dict() if kind in (dict, OrderedDict, Counter, defaultdict):
                made = self._text(value.default_factory) if isinstance(value, defaultdict) else ""
                return (
                    f"{name}{made}[{' '.join(f'{self._text(key)}={self._text(item)}' for key, item in value.items())}]"
                )
            case SimpleNamespace() if kind is SimpleNamespace:
                return f"{name} {self._text(vars(value))}"
            case FunctionType() if (by_type := _dispatched(value)) is not None:
                return f"singledispatch {self._text(by_type)}"
            case enum.Enum():
                return f"{self._class(kind)}.{value.name}"
            case FunctionType():
                return self._function(value)
            case MethodType():
                return f"method {self._text(value.__func__)} {self._text(value.__self__)}"
            case BuiltinFunctionType() if value.__self__ is None or isinstance(value.__self__, ModuleType):
                return f"library {value.__module__}.{value.__qualname__}"
            case MethodDescriptorType() | WrapperDescriptorType() | BuiltinFunctionType() if isinstance(
                getattr(value, "__objclass__", getattr(value, "__self__", None)), type
            ):
                return f"library {value.__qualname__}"
            case partialmethod():
                return f"partialmethod {self._text(value.func)} {self._text(value.args)} {self._text(value.keywords)}"
            case property():
                return f"property {self._text((value.fget, value.fset, value.fdel))}"
            case classmethod() | staticmethod():
                return f"{name} {self._text(value.__func__)}"
            case cached_property():
                return f"{name} {self._text(value.func)}"
            case partial():
                return f"partial {self._text(value.func)} {self._text(value.args)} {self._text(value.keywords)}"
            case re.Pattern():
                return f"pattern {constant_text(value.pattern)} {value.flags}"
            case type():
                return self._class(value)
        if _BY_TEXT.fullmatch(name):
            return f"{name} {value!r}"
        if self._reader.is_of_project(_file_of(kind), kind.__module__):
            if _native_base_of(kind) not in _STATES:
                return self._is_unknown(f"a value of {kind.__qualname__} has a state in native code")
            return f"object {self._class(kind)} {self._text(_state_of(value))}"
        return self._is_unknown(f"a value is a {name}")

    def _class(self, cls: type) -> str:
        if not self._reader.is_of_project(_file_of(cls), cls.__module__):
            return self._is_unknown("a class is made by a call") if _is_made(cls) else f"library {_name_of(cls)}"
        reader = self._reader
        source = reader.source_of_module(sys.modules.get(cls.__module__))
        nodes = _classes_in(source, cls.__qualname__)
        if not nodes or source is None:
            return self._is_unknown(f"the class {cls.__qualname__} has no source")
        node = _class_of(cls, nodes, source)
        if node is None:
            return self._is_unknown(f"the module has several classes {cls.__qualname__}")

        def fill(part: _Part) -> None:
            part.text = f"class {cls.__qualname__}"
            names = vars(sys.modules[cls.__module__])
            follower = _Follower(reader, part, _Place(names, source))
            follower.take(tree_of([node]))
            self._take_members(cls, node, source, part, follower)

        return self._at(reader.part(("class", cls), f"{cls.__qualname__} in {source.place}", fill))

    def _take_members(self, cls: type, node: ast.ClassDef, source: _Source, part: _Part, follower: _Follower) -> None:
        """Compare the members of a class with its source, and take members that are not plain, or that other code has put there."""
        is_plain = type(cls) in (type, ABCMeta)
        bound = {name for statement in node.body for name in _changed_by(statement)}
        outline = _without_methods(node)
        for name, member in vars(cls).items():
            inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            inner = self._reader.unwrapped(inner.fget if isinstance(inner, property) else inner)
            if isinstance(inner, FunctionType):
                if inner.__code__.co_filename != source.path:
                    # Decorators and metaclasses of libraries add methods, which differ between versions.
                    is_own = self._reader.is_of_project(inner.__code__.co_filename, inner.__module__ or "")
                    if not name.startswith("__" if is_own else "_") and type(cls) in (type, ABCMeta, enum.EnumMeta):
                        part.text += f"\nmember {name}"
                        follower.take_value(inner)
                    continue
                found = source.node_of(inner.__code__)
                if found is None:
                    part.unknown.append("the source is not the code that is loaded")
                elif not node.lineno <= found.lineno <= (node.end_lineno or 0):
                    part.text += f"\nmember {name}"
                    follower.take_value(member)
            elif name.startswith(("__", "_abc_")) or isinstance(member, GetSetDescriptorType | MemberDescriptorType):
                continue
            elif is_plain or type(member) in _PLAIN:
                part.text += f"\nmember {name}"
                # A member that the class does not bind has no syntax: it is known or makes the code unknown.
                follower.take_part(("member", cls, name), [outline], member, is_inner=name not in bound)

    def _function(self, function: FunctionType) -> str:
        code = function.__code__
        module = function.__module__ or ""
        if not self._reader.is_of_project(code.co_filename, module):
            if code.co_filename.startswith("<") and self._reader.is_of_project(_file_of(function), module):
                return self._is_unknown("a function has no source")
            if function.__closure__:
                return self._is_unknown("a function of a library has variables of its own")
            if code.co_filename.startswith("<") and _value_at(function) is not function:
                return self._is_unknown("a function has no source")
            return f"library {module}.{function.__qualname__}"
        reader = self._reader
        source = reader.source_of(code.co_filename, module)
        where = f" in {source.place}" if source else ""

        def fill(part: _Part) -> None:
            node = source.node_of(code) if source else None
            if node is None:
                part.unknown.append("the source is not the code that is loaded")
                return
            closure = {
                name: cell.cell_contents
                for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False)
                if _has_value(cell)
            }
            place = _Place(function.__globals__, source, closure)
            follower = _Follower(reader, part, place)
            for decorator in getattr(node, "decorator_list", ()):
                if not _declares(decorator, function.__globals__):
                    follower.take(tree_of([decorator], code.co_freevars))
            follower.take(tree_of_function(node, code.co_freevars, _words_in(node, place)))
            held = {name: item for name, item in vars(function).items() if name != "__wrapped__"}
            if held:
                follower.take_value(held)
            if function.__defaults__ or function.__kwdefaults__:
                follower.take_part(
                    ("defaults", function),
                    [*node.args.defaults, *filter(None, node.args.kw_defaults)],
                    (function.__defaults__, function.__kwdefaults__),
                    is_inner="<locals>" in code.co_qualname,
                )

        name = code.co_qualname.rpartition("<locals>.")[2]
        return self._at(reader.part(("function", function), f"{name}{where}", fill))


def _wrapped_by(value: Any) -> list[Any]:
    """A value, and what it wraps, to the innermost."""
    chain = [value]
    while not isinstance(chain[-1], type | ModuleType) and len(chain) <= MAX_DEPTH:
        try:
            inner = inspect.getattr_static(chain[-1], "__wrapped__")
            inner = chain[-1].__wrapped__ if not isinstance(inner, FunctionType) else inner
        except Exception:  # Objects may answer to every attribute.
            break
        if any(inner is one for one in chain):
            break
        chain.append(inner)
    return chain


def _value_at(function: FunctionType) -> Any:
    """What has the name of a function, in its module and classes."""
    found: Any = sys.modules.get(function.__module__ or "")
    names: Mapping[str, Any] = getattr(found, "__dict__", {})
    for name in function.__qualname__.split("."):
        found = names.get(name)
        names = vars(found) if isinstance(found, type) else {}
    return found.fget if isinstance(found, property) else found


def _is_made(cls: type | ModuleType) -> bool:
    """Whether a call has made a class of a library, so that its name does not find it."""
    if isinstance(cls, ModuleType) or not cls.__flags__ & _MADE_IN_PYTHON:
        return False
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return "<locals>" in cls.__qualname__ or (found is not cls and "__dataclass_fields__" in vars(cls))


def _has_value(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _file_of(value: type | FunctionType) -> str | None:
    return getattr(sys.modules.get(value.__module__ or ""), "__file__", None)


def _state_of(value: Any) -> dict[str, Any]:
    slots = [slot for cls in type(value).__mro__ for slot in _slots_of(cls)]
    found = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
    found |= getattr(value, "__dict__", {})
    items: Any = None
    match value:
        case dict():
            items = list(dict.items(value))
        case list():
            items = list(list.__iter__(value))
        case tuple():
            items = list(tuple.__iter__(value))
        case set() | frozenset():
            items = frozenset(value)
    plain = next((kind.__repr__(value) for kind in (int, float, complex, str, bytes) if isinstance(value, kind)), None)
    return {"items": items, "plain": plain, **dict(sorted(found.items()))}


def _slots_of(cls: type) -> Iterable[str]:
    slots = vars(cls).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return [
        f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
    ]


def _classes_in(source: _Source | None, name: str) -> list[ast.ClassDef]:
    bodies: list[ast.stmt] = source.tree.body if source else []
    found: list[ast.ClassDef] = []
    for part in name.split("."):
        found = [
            inner
            for statement in bodies
            for inner in ([statement] if isinstance(statement, ast.ClassDef) else _inside(statement))
            if inner.name == part
        ]
        bodies = [statement for node in found for statement in node.body]
    return found


def _class_of(cls: type, nodes: list[ast.ClassDef], source: _Source) -> ast.ClassDef | None:
    """The statement that made a class, of several for one name: it has the methods, and names the bases."""
    if len(nodes) == 1:
        return nodes[0]
    methods = [member for member in vars(cls).values() if isinstance(member, FunctionType)]
    lines = [found.lineno for one in methods if (found := source.node_of(one.__code__))]
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    fitting = [
        node
        for node in nodes
        if all(node.lineno <= line <= (node.end_lineno or 0) for line in lines)
        and [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases] == bases
    ]
    return fitting[0] if len(fitting) == 1 else None


def _without_methods(node: ast.ClassDef) -> ast.ClassDef:
    """What a class does when it is made."""
    outline = copy.copy(node)
    outline.bases, outline.keywords, outline.decorator_list = [], [], []
    outline.body = []
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            statement = copy.copy(statement)
            statement.decorator_list, statement.body = [], [ast.Pass()]
            statement.args, statement.returns = ast.parse("lambda: 0", mode="eval").body.args, None  # type: ignore[attr-defined]
        outline.body.append(statement)
    return outline


def _name_of(kind: type) -> str:
    """The name of a class, in every version of Python."""
    module = "pathlib" if kind.__module__ == "pathlib._local" else kind.__module__
    return f"{module}.{kind.__qualname__}"


def _native_base_of(kind: type) -> type:
    """The first class with a state that Python code has not declared."""
    return next(cls for cls in kind.__mro__ if isinstance(vars(cls).get("__new__"), BuiltinFunctionType))


def _dispatched(value: Any) -> dict[type, Any] | None:
    """The functions by type of a `singledispatch`."""
    if not isinstance(value, FunctionType) or value.__code__.co_qualname != "singledispatch.<locals>.wrapper":
        return None
    return dict(vars(value)["registry"])


def _words_in(node: ast.AST, place: _Place) -> set[str]:
    """Words of the texts that a function finds by name elsewhere."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Name | ast.Attribute):
            continue
        root, *attributes = _root_of(inner) or [""]
        value = place.closure.get(root, place.names.get(root))
        for name in attributes:
            value = vars(value).get(name) if isinstance(value, type | ModuleType) else None
        if isinstance(value, str) and len(value) <= MAX_VALUES:
            found.update(words_of(value))
    return found


def _inside(statement: ast.stmt) -> list[ast.ClassDef]:
    if not isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
        return []
    return [node for node in ast.walk(statement) if isinstance(node, ast.ClassDef)]


def _declares(decorator: ast.expr, names: Mapping[str, Any]) -> bool:
    """Whether a decorator only declares an asset, or names what is wrapped."""
    name, *attributes = _root_of(decorator) or [""]
    root = names.get(name)
    if root is wraps or (isinstance(root, ModuleType) and [vars(root).get(name) for name in attributes] == [wraps]):
        return True
    module = root.__name__ if isinstance(root, ModuleType) else getattr(root, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _DECLARING
