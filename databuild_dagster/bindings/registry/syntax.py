"""A syntax tree becomes a text that formatting, comments, docstrings, names of locals and versions of Python do not change (rule 4.7).

`ast.dump` is not used: its text changes between versions. `FIELDS` names the fields of each node that have a meaning. A local of a
function gets a number in the order of appearance. Arguments keep their names, because inputs bind by them, and so does a local whose
name is in a string of the function: pandas, DuckDB and others find such a local by its name.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple

#: The fields of each node that have a meaning, in the order of evaluation where it matters; nodes with a method below are left out.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "Module": ("body",),
    "Return": ("value",),
    "Delete": ("targets",),
    "Assign": ("targets", "value"),
    "AugAssign": ("target", "op", "value"),
    "For": ("target", "iter", "body", "orelse"),
    "AsyncFor": ("target", "iter", "body", "orelse"),
    "While": ("test", "body", "orelse"),
    "If": ("test", "body", "orelse"),
    "With": ("items", "body"),
    "AsyncWith": ("items", "body"),
    "withitem": ("context_expr", "optional_vars"),
    "Match": ("subject", "cases"),
    "match_case": ("pattern", "guard", "body"),
    "MatchValue": ("value",),
    "MatchSingleton": ("value",),
    "MatchSequence": ("patterns",),
    "MatchClass": ("cls", "patterns", "kwd_attrs", "kwd_patterns"),
    "MatchOr": ("patterns",),
    "Raise": ("exc", "cause"),
    "Try": ("body", "handlers", "orelse", "finalbody"),
    "TryStar": ("body", "handlers", "orelse", "finalbody"),
    "Assert": ("test", "msg"),
    "Expr": ("value",),
    "Pass": (),
    "Break": (),
    "Continue": (),
    "BoolOp": ("op", "values"),
    "NamedExpr": ("target", "value"),
    "BinOp": ("left", "op", "right"),
    "UnaryOp": ("op", "operand"),
    "IfExp": ("test", "body", "orelse"),
    "Dict": ("keys", "values"),
    "Await": ("value",),
    "Yield": ("value",),
    "YieldFrom": ("value",),
    "Call": ("func", "args", "keywords"),
    "keyword": ("arg", "value"),
    "Subscript": ("value", "slice"),
    "Starred": ("value",),
    "List": ("elts",),
    "Tuple": ("elts",),
    "Slice": ("lower", "upper", "step"),
    "TypeAlias": ("name", "value"),
    "TypeVar": ("name", "bound", "default_value"),
    "ParamSpec": ("name", "default_value"),
    "TypeVarTuple": ("name", "default_value"),
}
_OPERATORS: Final = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WORD: Final = re.compile(r"[^\W\d]\w*")
#: Among the attributes of a tree: it makes a set, whose order differs between processes.
SETS: Final = "{set}"
#: Letters of a constant that is written as it is.
_LONG: Final = 1000

Def = ast.FunctionDef | ast.AsyncFunctionDef


class UnknownSyntax(Exception):
    """A node of a newer Python."""


class Reference(NamedTuple):
    """A name from outside of a tree, with the attributes that follow it: `helpers.clean`."""

    #: "name" for a global or a builtin, "closure" for a variable of an enclosing function, "import" for a module or a name of it,
    #: "from" for an import of a name alone.
    kind: str
    name: str
    attributes: tuple[str, ...] = ()


class Tree(NamedTuple):
    """The text of a tree, and what it needs from outside."""

    text: str
    #: In the order of appearance; True where all uses are annotations.
    references: dict[Reference, bool]
    #: Attributes of values that are known at run time alone.
    attributes: frozenset[str]


class _Scope:
    def __init__(self, kind: str, parent: _Scope | None) -> None:
        self.kind = kind
        self.parent = parent
        #: Names to their text; "" for a local that has not appeared.
        self.names: dict[str, str] = {}
        #: Names of `global` and `nonlocal`, to the word.
        self.declared: dict[str, str] = {}
        #: Names that imports of the scope bind, to the dotted names of modules and attributes.
        self.imported: dict[str, list[str]] = {}


def tree_of(nodes: Iterable[ast.AST], closure: Iterable[str] = ()) -> Tree:
    """The tree of statements or expressions, with variables of enclosing functions. Raises `UnknownSyntax`."""
    nodes = list(nodes)
    writer = _Writer(closure, _words(nodes))
    for node in nodes:
        writer.write(node)
    return writer.tree()


def tree_of_function(node: Def | ast.Lambda, closure: Iterable[str], words: Iterable[str] = ()) -> Tree:
    """The tree of a function without its decorators and defaults.

    `closure` are its variables of enclosing functions, `words` are of texts that it finds elsewhere. Raises `UnknownSyntax`.
    """
    writer = _Writer(closure, _words([node]).union(words))
    writer.function(node, is_alone=True)
    return writer.tree()


def body_of(node: Def | ast.ClassDef | ast.Module) -> list[ast.stmt]:
    """The statements of a body without its docstring."""
    body = node.body
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:] or [ast.Pass()]
    return body


def _words(nodes: Iterable[ast.AST]) -> set[str]:
    """Words of the strings, docstrings left out."""
    found: set[str] = set()
    left: list[ast.AST] = list(nodes)
    while left:
        node = left.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            docstring_free = body_of(node)
            left += (child for child in ast.iter_child_nodes(node) if child not in node.body)
            left += docstring_free
            continue
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                found.update(words_of(node.value))
            continue
        left += ast.iter_child_nodes(node)
    return found


def words_of(text: str) -> list[str]:
    """The words of a text, each of which may be the name of a local."""
    return _WORD.findall(text)


def constant_text(value: object) -> str:
    """The text of a constant of the source, with its type: 1, 1.0 and True differ. A long one is hashed."""
    if isinstance(value, str | bytes) and len(value) > _LONG:
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return f"{type(value).__name__}:{len(value)}:{hashlib.sha256(raw).hexdigest()}"
    text = hex(value) if type(value) is int else repr(value)
    return f"{type(value).__name__}:{len(text)}:{text}"


class _Writer:
    def __init__(self, closure: Iterable[str], words: set[str]) -> None:
        self.out: list[str] = []
        self.references: dict[Reference, bool] = {}
        self.attributes: set[str] = set()
        self._words = words
        self._n_locals = 0
        self._is_annotation = False
        self._scope: _Scope | None = None
        self._closure = dict.fromkeys(closure, "")

    def tree(self) -> Tree:
        return Tree("".join(self.out), self.references, frozenset(self.attributes))

    def write(self, value: Any) -> None:
        if isinstance(value, ast.AST):
            name = type(value).__name__
            method: Callable[[Any], None] | None = getattr(self, f"_write_{name.lower()}", None)
            if method is not None:
                method(value)
            elif name in FIELDS:
                self.out.append(f"({name}")
                for field in FIELDS[name]:
                    self.write(getattr(value, field, None))
                self.out.append(")")
            elif isinstance(value, _OPERATORS):
                self.out.append(f"({name})")
            else:
                raise UnknownSyntax(name)
        elif isinstance(value, list):
            self.out.append("[")
            for item in value:
                self.write(item)
            self.out.append("]")
        else:
            self.out.append(constant_text(value))

    # Names.

    def _text_of(self, name: str) -> str | None:
        """The text of a local; None for a name from outside."""
        scope, is_first = self._scope, True
        while scope is not None:
            declared = scope.declared.get(name)
            if declared == "global":
                return None
            # The name of a `nonlocal` is of an enclosing function.
            if declared is None and name in scope.names and (scope.kind != "class" or is_first):
                return self._numbered(scope.names, name)
            scope, is_first = scope.parent, False
        return None

    def _numbered(self, names: dict[str, str], name: str) -> str:
        if not names[name]:
            names[name] = f"%{self._n_locals}"
            self._n_locals += 1
        return names[name]

    def _name(self, name: str) -> None:
        local = self._text_of(name)
        if local is not None:
            self.out.append(f"(local {local})")
        elif name in self._closure:
            self.out.append(f"(closure {self._numbered(self._closure, name)})")
        else:
            self.out.append(f"(name {name})")

    def _refer(self, name: str, attributes: tuple[str, ...]) -> None:
        if self._text_of(name) is not None:
            modules = self._imported(name)
            for module in modules:
                self._note(Reference("import", module, attributes))
            if not modules:
                self.attributes.update(attributes)
        else:
            self._note(Reference("closure" if name in self._closure else "name", name, attributes))

    def _note(self, reference: Reference) -> None:
        self.references[reference] = self.references.get(reference, True) and self._is_annotation

    def _imported(self, name: str) -> list[str]:
        scope = self._scope
        while scope is not None:
            if name in scope.names:
                return scope.imported.get(name, [])
            scope = scope.parent
        return []

    def _write_name(self, node: ast.Name) -> None:
        self._refer(node.id, ())
        self._name(node.id)

    def _write_attribute(self, node: ast.Attribute) -> None:
        names = [node.attr]
        base: ast.expr = node.value
        while isinstance(base, ast.Attribute):
            names.append(base.attr)
            base = base.value
        names.reverse()
        for first, second in pairwise(names):
            self.attributes.add(f"{first}.{second}")
        self.out.append("(Attribute")
        if isinstance(base, ast.Name):
            self._refer(base.id, tuple(names))
            self._name(base.id)
        else:
            self.attributes.update(names)
            self.write(base)
        self.out.append(f" {'.'.join(names)})")

    # Values.

    def _write_constant(self, node: ast.Constant) -> None:
        self.out.append(constant_text(node.value))

    def _write_joinedstr(self, node: ast.JoinedStr) -> None:
        pieces = list(_pieces(node))
        if all(isinstance(piece, str) for piece in pieces):
            self.out.append(constant_text("".join(map(str, pieces))))
            return
        self.out.append("(JoinedStr")
        for piece in pieces:
            if isinstance(piece, str):
                self.out.append(constant_text(piece))
            else:
                self.out.append(f"(FormattedValue {piece.conversion}")
                self.write(piece.value)
                # An empty specification formats like none.
                spec = piece.format_spec
                self.write(spec if isinstance(spec, ast.JoinedStr) and list(_pieces(spec)) else None)
                self.out.append(")")
        self.out.append(")")

    # Statements.

    def _write_annassign(self, node: ast.AnnAssign) -> None:
        self.out.append(f"(AnnAssign {node.simple}")
        self.write(node.target)
        self._annotation(node.annotation)
        self.write(node.value)
        self.out.append(")")

    def _write_global(self, node: ast.Global) -> None:
        self.out.append(f"(Global {' '.join(node.names)})")
        for name in node.names:
            self._refer(name, ())

    def _write_nonlocal(self, node: ast.Nonlocal) -> None:
        self.out.append("(Nonlocal")
        for name in node.names:
            self._name(name)
        self.out.append(")")

    def _write_import(self, node: ast.Import) -> None:
        self.out.append("(Import")
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self._bound_import(bound, alias.name if alias.asname else bound)
            self.out.append(f" {alias.name} {bool(alias.asname)}")
            self._name(bound)
        self.out.append(")")

    def _write_importfrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        self.out.append(f"(ImportFrom {module}")
        for alias in node.names:
            bound = alias.asname or alias.name
            self._bound_import(bound, f"{module}:{alias.name}")
            self.out.append(f" {alias.name}")
            if alias.name != "*":
                self._name(bound)
        self.out.append(")")

    def _bound_import(self, name: str, module: str) -> None:
        if self._scope is not None:
            self._scope.imported.setdefault(name, []).append(module)
            if self._scope.kind == "class":
                # The methods find it as an attribute of the class.
                self._note(Reference("import", module))
        if ":" in module:
            self._note(Reference("from", module))

    def _write_excepthandler(self, node: ast.ExceptHandler) -> None:
        self.out.append("(ExceptHandler")
        self.write(node.type)
        self._optional_name(node.name)
        self.write(node.body)
        self.out.append(")")

    def _write_matchas(self, node: ast.MatchAs) -> None:
        self.out.append("(MatchAs")
        self.write(node.pattern)
        self._optional_name(node.name)
        self.out.append(")")

    def _write_matchstar(self, node: ast.MatchStar) -> None:
        self.out.append("(MatchStar")
        self._optional_name(node.name)
        self.out.append(")")

    def _write_matchmapping(self, node: ast.MatchMapping) -> None:
        self.out.append("(MatchMapping")
        self.write(node.keys)
        self.write(node.patterns)
        self._optional_name(node.rest)
        self.out.append(")")

    def _optional_name(self, name: str | None) -> None:
        if name is None:
            self.out.append("-")
        else:
            self._name(name)

    # Scopes.

    def _write_functiondef(self, node: ast.FunctionDef) -> None:
        self.function(node)

    def _write_asyncfunctiondef(self, node: ast.AsyncFunctionDef) -> None:
        self.function(node)

    def _write_lambda(self, node: ast.Lambda) -> None:
        self.function(node)

    def function(self, node: Def | ast.Lambda, *, is_alone: bool = False) -> None:
        args = node.args
        self.out.append(f"({type(node).__name__} {getattr(node, 'name', '')}")
        params = getattr(node, "type_params", [])
        if not is_alone:
            self.write(getattr(node, "decorator_list", []))
            self.write(args.defaults)
            self.write(args.kw_defaults)
        with self._within("function"):
            assert self._scope is not None
            # Type parameters are known to the annotations.
            self._scope.names.update((param.name, f"={param.name}") for param in params)
            if params:
                self.write(params)
            for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
                found = getattr(args, kind)
                self.out.append(f"[{kind}")
                for arg in found if isinstance(found, list) else [found] if found else []:
                    self.out.append(f" {arg.arg}")
                    self._annotation(arg.annotation)
                self.out.append("]")
            if not isinstance(node, ast.Lambda):
                self._annotation(node.returns)
            arguments = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
            self._scope.names.update((arg.arg, f"={arg.arg}") for arg in arguments)
            body: list[Any] = [node.body] if isinstance(node, ast.Lambda) else body_of(node)
            self._bind(body)
            self.write(body)
        self.out.append(")")

    def _annotation(self, node: ast.expr | None) -> None:
        before, self._is_annotation = self._is_annotation, True
        self.write(node)
        self._is_annotation = before

    def _write_classdef(self, node: ast.ClassDef) -> None:
        self.out.append(f"(ClassDef {node.name}")
        self.write(node.decorator_list)
        params = getattr(node, "type_params", [])
        with self._within("type parameters"):
            assert self._scope is not None
            self._scope.names.update((param.name, f"={param.name}") for param in params)
            if params:
                self.write(params)
            self.write(node.bases)
            self.write(node.keywords)
            with self._within("class"):
                body = body_of(node)
                binds = _binds(body)
                # Names of a class are its attributes.
                self._scope.names.update((name, f"={name}") for name in (*binds.locals, *binds.kept))
                self._scope.declared.update(binds.outer)
                self.write(body)
        self.out.append(")")

    def _write_compare(self, node: ast.Compare) -> None:
        # Whether a set has a value depends on no order.
        before = self.attributes
        only_asked = all(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        self.out.append("(Compare")
        self.write(node.left)
        self.write(node.ops)
        self.attributes = set()
        self.write(node.comparators)
        is_set = only_asked and all(isinstance(one, ast.Set) for one in node.comparators)
        self.attributes = before | (self.attributes - {SETS} if is_set else self.attributes)
        self.out.append(")")

    def _write_set(self, node: ast.Set) -> None:
        self.attributes.add(SETS)
        self.out.append("(Set")
        self.write(node.elts)
        self.out.append(")")

    def _write_listcomp(self, node: ast.ListComp) -> None:
        self._comprehension(node, [node.elt])

    def _write_setcomp(self, node: ast.SetComp) -> None:
        self.attributes.add(SETS)
        self._comprehension(node, [node.elt])

    def _write_generatorexp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node, [node.elt])

    def _write_dictcomp(self, node: ast.DictComp) -> None:
        self._comprehension(node, [node.key, node.value])

    def _comprehension(self, node: Any, results: list[ast.expr]) -> None:
        self.out.append(f"({type(node).__name__}")
        # The first iterable is evaluated outside.
        self.write(node.generators[0].iter)
        with self._within("function"):
            assert self._scope is not None
            for generator in node.generators:
                for name in _binds([generator.target]).locals:
                    self._scope.names[name] = f"={name}" if name in self._words else ""
            for place, generator in enumerate(node.generators):
                self.out.append(f"(for {generator.is_async}")
                self.write(generator.target)
                if place:
                    self.write(generator.iter)
                self.write(generator.ifs)
                self.out.append(")")
            for result in results:
                self.write(result)
        self.out.append(")")

    def _bind(self, body: Sequence[ast.AST]) -> None:
        assert self._scope is not None
        binds = _binds(body)
        for name in binds.locals:
            if name not in binds.outer:
                self._scope.names.setdefault(name, f"={name}" if name in self._words else "")
        for name in binds.kept:
            self._scope.names[name] = f"={name}"
        self._scope.declared.update(binds.outer)

    @contextmanager
    def _within(self, kind: str) -> Iterator[None]:
        before, self._scope = self._scope, _Scope(kind, self._scope)
        yield
        self._scope = before


class _Binds(NamedTuple):
    """The names that statements bind in their scope."""

    locals: dict[str, None]
    #: Functions and classes, whose names are also their own.
    kept: dict[str, None]
    #: Names of `global` and `nonlocal`.
    outer: dict[str, str]


def _binds(nodes: Iterable[ast.AST]) -> _Binds:
    binds = _Binds({}, {}, {})
    left: list[tuple[ast.AST, bool]] = [(node, False) for node in reversed(list(nodes))]
    while left:
        node, is_inner = left.pop()
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()) if not is_inner:
                binds.locals[node.id] = None
            case ast.NamedExpr():
                # Also of a comprehension, the name is the function's.
                binds.locals[node.target.id] = None
                children = [node.value]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                if not isinstance(node, ast.Lambda):
                    binds.kept[node.name] = None
                children = [
                    *node.args.defaults,
                    *filter(None, node.args.kw_defaults),
                    *getattr(node, "decorator_list", ()),
                ]
            case ast.ClassDef():
                binds.kept[node.name] = None
                children = [*node.decorator_list, *node.bases]
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    bound = alias.asname or alias.name
                    binds.locals[bound if isinstance(node, ast.ImportFrom) else bound.partition(".")[0]] = None
            case ast.Global() | ast.Nonlocal():
                binds.outer.update(
                    (name, "global" if isinstance(node, ast.Global) else "nonlocal") for name in node.names
                )
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
                binds.locals[node.name] = None
            case ast.MatchMapping() if node.rest:
                binds.locals[node.rest] = None
        inner = is_inner or isinstance(node, _COMPREHENSIONS)
        left += ((child, inner) for child in reversed(list(children)))
    return binds


def _pieces(node: ast.JoinedStr) -> Iterator[str | ast.FormattedValue]:
    """The pieces of an f-string; versions of Python differ in empty texts and in texts side by side."""
    text = ""
    left: list[ast.expr] = list(reversed(node.values))
    while left:
        value = left.pop()
        if isinstance(value, ast.JoinedStr):
            left += reversed(value.values)
        elif isinstance(value, ast.Constant):
            text += str(value.value)
        elif isinstance(value, ast.FormattedValue):
            if text:
                yield text
            text = ""
            yield value
        else:
            raise UnknownSyntax(type(value).__name__)
    if text:
        yield text
