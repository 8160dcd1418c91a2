"""A function becomes a digest of its code and of the code of its project that it reaches (rule 4.7).

The function's source is followed by name: functions, classes and constants of the project, through modules, closures, decorators,
defaults, bases. Code of libraries is named, not followed. A source counts only if it compiles to the code that is loaded. Code that
cannot be followed makes the digest unknown, with a reason. The module imports no Dagster, so that any Python can check its digests.
"""

from __future__ import annotations

import ast
import builtins
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
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from databuild_dagster.bindings.registry.syntax import (
    Def,
    Reference,
    Tree,
    UnknownSyntax,
    constant_text,
    tree_of,
    tree_of_function,
)

#: The rules of this module and of `syntax`. Digests of different rules are not compared.
RULES: Final = "tree-1"
#: Parts that are named in a registration, and reasons.
MAX_PARTS: Final = 100
MAX_REASONS: Final = 5
#: Files in memory.
MAX_SOURCES: Final = 200
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
#: Names whose values differ between builds of the same code, and between places.
_CHANCE: Final = _names(
    "now utcnow today time time_ns monotonic perf_counter random randint choice shuffle uuid1 uuid4 urandom "
    "token_hex getpid default_rng"
)
_PLACE: Final = _names(
    "__file__ environ getenv getcwd cwd home expanduser gethostname getuser node argv gettempdir mkdtemp"
)

_INSTALLED: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")
_OWN: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STDLIB: Final = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))
#: Packages whose decorators declare an asset: the registration has what they say.
_DECLARING: Final = ("databuild_dagster", "dagster")
#: In place of a value that is not known.
_ANY: Final = object()
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

    def code_of(self, function: Callable[..., Any], settings: Mapping[str, Any] | None = None) -> Code:
        """The code of a function, with `settings` of its declaration that decide what it returns."""
        function = inspect.unwrap(function)
        path = getattr(getattr(function, "__code__", None), "co_filename", "")
        top = (getattr(function, "__module__", None) or "").partition(".")[0]
        self._package = top if _INSTALLED.search(path) else ""
        self._parts = self._parts_by_package.setdefault(self._package, {})
        found = _Values(self).of(function)
        declared = _Values(self).of(dict(settings or {}))
        while self._left:
            self._left.pop()()
        return self._code([found, declared])

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
            targets: list[_Part] = part.targets
            text = part.text
            if part.value is not None and self._is_by_value(part):
                text, targets = f"value {part.value.text}", part.value.parts
                unknown.update(dict.fromkeys(part.value.unknown))
            else:
                unknown.update(dict.fromkeys(f"{reason} in {part.label}" for reason in part.unknown))
            own = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            whole.update(f"\n{own} {' '.join(str(place(target)) for target in targets)}".encode())
            _name_part(parts, part.label, own[:12])
        if unknown:
            return Code(None, tuple(unknown)[:MAX_REASONS], parts)
        return Code(f"{RULES}:{whole.hexdigest()[:32]}", (), parts)

    def _is_by_value(self, part: _Part) -> bool:
        """A constant of plain values counts by its value, unless chance or a place decides the value.

        A file beside the module is found by its place; its text is the same in every place.
        """
        reached = list(_reach(part))
        if any(one.uses & _CHANCE for one in reached):
            return False
        return any(one.uses & _READS for one in reached) or not any(one.uses & _PLACE for one in reached)

    # Sources.

    def source_of(self, path: str | None, name: str = "") -> _Source | None:
        """The source of a file, None if there is none."""
        if path is None:
            return None
        try:
            found = None if path.startswith("<") else os.stat(path)
        except OSError:
            return None
        return _source(path, name, found and (found.st_mtime_ns, found.st_size, found.st_ino))

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
    #: Of a constant with plain values.
    value: _Value | None = None


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
    except Exception as error:  # Objects of the project may raise anything when they are looked at.
        part.unknown.append(f"it cannot be read ({type(error).__name__}: {error})")


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
    def stars(self) -> list[str]:
        """Modules of which every name is imported."""
        return [
            _module_of(node)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        ]

    @cached_property
    def _codes(self) -> dict[str, list[CodeType]]:
        found: defaultdict[str, list[CodeType]] = defaultdict(list)
        left = [compile(self.tree, self.path, "exec", dont_inherit=True)]
        while left:
            inner = [const for const in left.pop().co_consts if isinstance(const, CodeType)]
            for code in inner:
                found[code.co_qualname].append(code)
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
        return found

    def node_of(self, code: CodeType) -> Def | ast.Lambda | None:
        """The function whose compilation equals loaded code."""
        same = [found for found in self._codes.get(code.co_qualname, ()) if _is_same_code(found, code)]
        same.sort(key=lambda found: found.co_firstlineno != code.co_firstlineno)
        for found in same:
            nodes = self._functions.get((code.co_name, found.co_firstlineno), [])
            if len(nodes) > 1:
                places = [(line, column) for line, _, column, _ in found.co_positions() if line and column]
                nodes = [node for node in nodes if places and _begins(node, min(places))] or []
            if len(nodes) == 1:
                return nodes[0]
        return None


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


def _begins(node: Def | ast.Lambda, place: tuple[int, int]) -> bool:
    """Whether the first instruction of a body is inside a lambda, and not inside a lambda beside it."""
    return (node.lineno, node.col_offset) < place <= (node.end_lineno or 0, node.end_col_offset or 0)


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
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
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
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                found.update(dict.fromkeys(_root_of(node)))
            case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
                found.update(dict.fromkeys(_root_of(called)))
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
                found[node.name] = None
        left += children
    return iter(found)


def _root_of(node: ast.AST) -> list[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return [node.id] if isinstance(node, ast.Name) else []


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
            elif name in _CHANCE or name in _PLACE:
                self._part.uses.add(name)

    def _follow(self, reference: Reference, *, is_annotation: bool) -> None:
        kind, name, attributes = reference
        if kind == "closure":
            if name in self._place.closure:
                self._value(self._place.closure[name], attributes)
            else:
                self._part.unknown.append(f"the variable {name} has no value when the module is loaded")
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
            self._builtin(name)
        elif not is_annotation:
            self._part.unknown.append(f"the name {name} has no value when the module is loaded")

    def _builtin(self, name: str) -> None:
        self._part.text += "builtin"
        if name in _BUILTINS_AT_RUN_TIME:
            self._part.unknown.append(f"{name} finds code or names at run time")
        else:
            self._uses([name])

    def _is_code(self, value: Any) -> bool:
        """Whether a value is a function, class or module: these are found by value, all others by their statements."""
        value = _unwrapped(value)
        if isinstance(value, FunctionType):
            return self._reader.is_of_project(value.__code__.co_filename, value.__module__ or "")
        if isinstance(value, type) and self._reader.is_of_project(_file_of(value), value.__module__):
            # A class that a call makes, such as a `namedtuple`, has a statement like a constant.
            source = self._reader.source_of_module(sys.modules.get(value.__module__))
            return _class_in(source, value.__qualname__) is not None
        return isinstance(value, type | ModuleType)

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
            value = _Values(self._reader).of(place.names[name])
            if not value.unknown:
                part.value = value

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
        value = _unwrapped(value)
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        match value:
            case list() | tuple() if kind in (list, tuple):
                return f"{name}[{' '.join(map(self._text, value))}]"
            case set() | frozenset() if kind in (set, frozenset):
                n_parts = len(self._parts)
                texts = sorted(map(self._text, value))
                return (
                    self._is_unknown("functions in a set have no order")
                    if len(self._parts) > n_parts
                    else f"{name}{texts}"
                )
            case dict() if kind is dict:
                return f"{name}[{' '.join(f'{self._text(key)}={self._text(item)}' for key, item in value.items())}]"
            case enum.Enum():
                return f"{self._class(kind)}.{value.name}"
            case FunctionType():
                return self._function(value)
            case MethodType():
                return f"method {self._text(value.__func__)} {self._text(value.__self__)}"
            case BuiltinFunctionType() if value.__self__ is None or isinstance(value.__self__, ModuleType):
                return f"library {value.__module__}.{value.__qualname__}"
            case partial():
                return f"partial {self._text(value.func)} {self._text(value.args)} {self._text(value.keywords)}"
            case re.Pattern():
                return f"pattern {constant_text(value.pattern)} {value.flags}"
            case type():
                return self._class(value)
        if _BY_TEXT.fullmatch(name):
            return f"{name} {value!r}"
        if self._reader.is_of_project(_file_of(kind), kind.__module__):
            return f"object {self._class(kind)} {self._text(_state_of(value))}"
        return self._is_unknown(f"a value is a {name}")

    def _class(self, cls: type) -> str:
        if not self._reader.is_of_project(_file_of(cls), cls.__module__):
            return f"library {cls.__module__}.{cls.__qualname__}"
        reader = self._reader
        source = reader.source_of_module(sys.modules.get(cls.__module__))
        node = _class_in(source, cls.__qualname__)
        if node is None or source is None:
            return self._is_unknown(f"the class {cls.__qualname__} has no source")

        def fill(part: _Part) -> None:
            part.text = f"class {cls.__qualname__}"
            names = vars(sys.modules[cls.__module__])
            follower = _Follower(reader, part, _Place(names, source))
            follower.take(tree_of([node]))
            _check_members(cls, node, source, part, follower)

        return self._at(reader.part(("class", cls), f"{cls.__qualname__} in {source.place}", fill))

    def _function(self, function: FunctionType) -> str:
        code = function.__code__
        module = function.__module__ or ""
        if not self._reader.is_of_project(code.co_filename, module):
            if code.co_filename.startswith("<") and self._reader.is_of_project(_file_of(function), module):
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
            is_inner = "<locals>" in function.__qualname__
            follower = _Follower(reader, part, _Place(function.__globals__, source, closure))
            for decorator in getattr(node, "decorator_list", ()):
                if not _declares(decorator, function.__globals__):
                    follower.take(tree_of([decorator]))
            follower.take(tree_of_function(node, code.co_freevars, is_inner=is_inner))
            if is_inner:
                follower.take_value(function.__defaults__)
                follower.take_value(function.__kwdefaults__)

        name = function.__qualname__.rpartition("<locals>.")[2]
        return self._at(reader.part(("function", function), f"{name}{where}", fill))


def _unwrapped(value: Any) -> Any:
    if isinstance(value, type | ModuleType):
        return value
    try:
        wrapped = inspect.unwrap(value)
    except Exception:  # Objects may answer to every attribute.
        return value
    return wrapped if isinstance(wrapped, FunctionType) else value


def _has_value(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _file_of(value: type | FunctionType) -> str | None:
    return getattr(sys.modules.get(value.__module__ or ""), "__file__", None)


def _state_of(value: Any) -> dict[str, Any]:
    slots = (slot for cls in type(value).__mro__ for slot in _slots_of(cls))
    found = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
    found |= getattr(value, "__dict__", {})
    items = list(value.items()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else None
    plain = next((kind.__repr__(value) for kind in (int, float, str, bytes) if isinstance(value, kind)), None)
    return {"items": items, "plain": plain, **dict(sorted(found.items()))}


def _slots_of(cls: type) -> Iterable[str]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _class_in(source: _Source | None, name: str) -> ast.ClassDef | None:
    body: list[ast.stmt] = source.tree.body if source else []
    node = None
    for part in name.split("."):
        found = [
            inner
            for statement in body
            for inner in ([statement] if isinstance(statement, ast.ClassDef) else _inside(statement))
            if inner.name == part
        ]
        node = found[-1] if found else None
        if node is None:
            return None
        body = node.body
    return node


def _inside(statement: ast.stmt) -> list[ast.ClassDef]:
    if not isinstance(statement, ast.If | ast.Try | ast.With):
        return []
    return [node for node in ast.walk(statement) if isinstance(node, ast.ClassDef)]


def _check_members(cls: type, node: ast.ClassDef, source: _Source, part: _Part, follower: _Follower) -> None:
    """Compare the members of a class with its source, and take members that other code has put there."""
    is_steady = not part.uses & (_CHANCE | _PLACE)
    for name, member in vars(cls).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        inner = inner.fget if isinstance(inner, property) else _unwrapped(inner)
        if isinstance(inner, FunctionType):
            if inner.__code__.co_filename != source.path:
                # Decorators and metaclasses of libraries add methods, which differ between versions.
                if not name.startswith("__") and type(cls) in (type, ABCMeta, enum.EnumMeta):
                    part.text += f"\nmember {name}"
                    follower.take_value(inner)
                continue
            found = source.node_of(inner.__code__)
            if found is None:
                part.unknown.append("the source is not the code that is loaded")
            elif not node.lineno <= found.lineno <= (node.end_lineno or 0):
                part.text += f"\nmember {name}"
                follower.take_value(inner)
        elif is_steady and type(member) in _PLAIN and not name.startswith("__"):
            part.text += f"\n{name}={constant_text(member)}"


def _declares(decorator: ast.expr, names: Mapping[str, Any]) -> bool:
    """Whether a decorator only declares an asset."""
    root = names.get(next(iter(_root_of(decorator)), ""))
    module = root.__name__ if isinstance(root, ModuleType) else getattr(root, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _DECLARING
