"""The page docs/reference/api.md: every public name with its signature and its docstring, in the order in which readers ask.

Signatures are taken from the source, where annotations are written as people read them. A public name that no section
has, and one without a docstring, stop the making of the page.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import databuild_dagster
from databuild_dagster.model.errors import DatabuildError

#: Heading to its public names. Every name of the package is in one of them.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Declare assets": (
        "databuild_asset",
        "databuild_multi_asset",
        "databuild_boundary",
        "BuildContext",
        "ByFile",
        "ByKey",
        "Iceberg",
        "Delta",
        "EMPTY",
        "DepMiss",
        "Transient",
        "InvalidAsset",
    ),
    "Make definitions": (
        "build_definitions",
        "SharedLocation",
        "DatabuildComponent",
        "DatabuildTranslator",
        "DatabuildSpark",
        "DatabuildRunCoordinator",
        "build_sla_checks",
        "build_table_checks",
        "WebhookAlert",
        "CommandAlert",
    ),
    "Build and ask, in a script or a notebook": (
        "build",
        "BuildResult",
        "BuildInterrupted",
        "BuildFailed",
        "BuildTimedOut",
        "NotDeterministic",
        "want",
        "plan",
        "explain",
        "status",
        "Status",
        "taint",
        "Answer",
    ),
    "Record wants": ("open_wants", "Wants", "want_schedule", "want_sensor"),
    "Read data": ("read", "table"),
    "Look partitions up": (
        "PartitionRef",
        "get_canonical_partition",
        "get_canonical_partition_uuid",
        "get_latest_partition_status",
        "get_partition_by_uuid",
        "get_wants_for_partition",
        "get_builds_for_partition",
        "get_active_builds_for_partition",
        "get_build_request_for_available_partition",
        "check_build_coordination",
        "available_lots",
        "derive_partition_uuid",
    ),
    "Run operations": (
        "operation_manager",
        "DistributedOperationManager",
        "DistributedOperation",
        "JobContext",
        "OperationContext",
        "Completion",
        "RetryJob",
        "ValidateArg",
        "BuildIndexArg",
        "CompactArg",
    ),
    "Test": ("NotBuilt",),
}
#: Further modules whose names users import, each below the section of that heading.
MODULES = {
    "Declarative automation": "databuild_dagster.automation",
    "Constraints of validate": "databuild_dagster.constraints",
    "Helpers of tests": "databuild_dagster.testing",
}

_HEAD = """# Python

Made by `make docs` from the docstrings; do not edit. `help(databuild_dagster.read)` shows the same in Python.

Every name of the first sections is imported from `databuild_dagster`. The names of a module are imported from that
module.
"""
_ERRORS = """
## Errors

Every refusal is a `DatabuildError`: one sentence, and a hint that says what to do. `{…}` stands for the names of the
case. With `--json` a command prints the name of the class as `type`. The classes are in
`databuild_dagster.model.errors` and in the modules that the table names.

| error | module | sentence | hint |
|---|---|---|---|
"""


#: Classes whose objects the package makes: their constructors are not for users.
MADE_FOR_USERS = (
    "BuildContext",
    "JobContext",
    "OperationContext",
    "Completion",
    "DistributedOperationManager",
    "NotBuilt",
    "BuildInterrupted",
)


#: The modules with the keywords that features add, and with those of a code location.
_OPTIONS = tuple(
    Path(databuild_dagster.__file__).parent / name
    for name in ("features/settings.py", "bindings/building/deployment.py")
)


class NotDocumented(Exception):
    """A public name is without a section or without a docstring; the message has it."""


def api_page() -> str:
    """The text of the page. Raises `NotDocumented`."""
    listed = [name for names in SECTIONS.values() for name in names]
    if missing := sorted({*databuild_dagster.__all__} ^ {*listed}):
        raise NotDocumented(f"{', '.join(missing)}: write each public name once in SECTIONS of tools/api_reference.py.")
    parts = [_HEAD]
    for heading, names in SECTIONS.items():
        parts.append(f"\n## {heading}\n")
        parts += [_entry(name, getattr(databuild_dagster, name)) for name in names]
    for heading, path in MODULES.items():
        module = importlib.import_module(path)
        parts.append(f"\n## {heading}: `{path}`\n\n{_text(module, path)}\n")
        parts += [_entry(name, value) for name, value in _public(module)]
    parts += [_ERRORS, *_errors()]
    return "".join(parts)


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or sorted(vars(module)):
        value = getattr(module, name)
        is_own = getattr(value, "__module__", None) == module.__name__ or hasattr(module, "__all__")
        if not name.startswith("_") and is_own and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return _class(name, value)
    if not inspect.isfunction(value):
        # A constant: the comment is the docstring of its class.
        return f"\n### {name}\n\n{_text(type(value), name)}\n"
    return f"\n### {name}\n\n```py\n{_signature(name, value)}\n```\n\n{_text(value, name)}\n"


def _class(name: str, value: type) -> str:
    parts = [f"\n### {name}\n"]
    init = vars(value).get("__init__")
    is_written = (
        inspect.isfunction(init) and init.__module__.startswith("databuild_dagster") and _node(init) is not None
    )
    if is_written and name not in MADE_FOR_USERS:
        assert inspect.isfunction(init)
        parts.append(f"\n```py\n{_signature(name, init, skip_self=True)}\n```\n")
    parts.append(f"\n{_text(value, name)}\n")
    members = [*_fields(value), *_methods(value)]
    if members:
        parts.append("\n" + "\n".join(members) + "\n")
    return "".join(parts)


def _fields(value: type) -> Iterator[str]:
    """The annotated attributes of a class, each with the comment above it."""
    node, lines = _node(value), _lines(value)
    if node is None:
        return
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name) or field.target.id[0] == "_":
            continue
        above, place = [], field.lineno - 2
        while place >= 0 and (found := lines[place].strip()).startswith("#:"):
            above.insert(0, found.removeprefix("#:").strip())
            place -= 1
        yield _item(f"`{field.target.id}: {_type_of(field.annotation)}`", " ".join(above) or _described(field))


def _type_of(annotation: ast.expr) -> str:
    """The annotation, without what `Annotated` adds to it."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
            return ast.unparse(first)
    return ast.unparse(annotation)


def _described(field: ast.AnnAssign) -> str:
    """The description in a `Field(description=…)` or in an `Annotated[…]` of a component."""
    for node in (found for part in (field.value, field.annotation) if part is not None for found in ast.walk(part)):
        match node:
            case ast.keyword(arg="description", value=ast.Constant(value=str(text))):
                return text
            case ast.Call(func=ast.Name(id="_described"), args=[ast.Constant(value=str(text)), *_]):
                return text
    return ""


def _methods(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        is_attribute = isinstance(member, (property, cached_property))
        function = _getter(member) if is_attribute else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        is_from_outside = any(name in vars(base) for base in value.__mro__[1:] if not _is_ours(base))
        if not _is_ours(function) or is_from_outside:
            continue
        text = f"`{name}`" if is_attribute else f"`{_one_line(_signature(name, function, skip_self=True))}`"
        doc = inspect.getdoc(getattr(value, name)) or ""
        if not doc:
            raise NotDocumented(f"{value.__name__}.{name} has no docstring.")
        yield _item(text, doc)


def _getter(attribute: property | cached_property[Any]) -> Any:
    return attribute.fget if isinstance(attribute, property) else attribute.func


def _is_ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] == databuild_dagster.__name__


def _item(text: str, doc: str) -> str:
    body = textwrap.indent(doc, "  ").strip()
    return f"- {text}" + (f": {body}" if body else "")


def _signature(name: str, function: Callable[..., Any], *, skip_self: bool = False) -> str:
    node = _node(function)
    assert isinstance(node, ast.FunctionDef), f"{name} has no source"
    arguments = node.args
    if skip_self and arguments.args:
        arguments.args = arguments.args[1:]
    one = f"{name}({', '.join(_arguments(arguments))})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and not skip_self else ""
    if skip_self and node.returns is not None and node.name != "__init__":
        returns = f" -> {ast.unparse(node.returns)}"
    if len(one + returns) <= 110:
        return one + returns
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in _arguments(arguments)) + f"){returns}"


def _arguments(arguments: ast.arguments) -> list[str]:
    """Each argument as it is written."""
    found: list[str] = []
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    for argument, default in zip(plain, [*defaults, *arguments.defaults], strict=True):
        found.append(_argument(argument, default))
    if arguments.vararg is not None:
        found.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        found.append("*")
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    found += [_argument(argument, default) for argument, default in by_name]
    if arguments.kwarg is not None:
        found += _keywords(arguments.kwarg) or [f"**{_argument(arguments.kwarg, None)}"]
    return found


def _keywords(argument: ast.arg) -> list[str]:
    """The keywords that `**options: Unpack[Options]` takes, one by one; none for an argument of another type."""
    match argument.annotation:
        case ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=name)):
            classes = {
                node.name: node
                for path in _OPTIONS
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ClassDef)
            }
            return list(_keywords_of(name, classes))
        case _:
            return []


def _keywords_of(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """The fields of a TypedDict, those of its bases first; the arguments that are refused are in no module of options."""
    if name not in classes:
        return
    for base in classes[name].bases:
        yield from _keywords_of(ast.unparse(base), classes)
    for field in classes[name].body:
        if isinstance(field, ast.AnnAssign):
            yield f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)} = ..."


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _one_line(signature: str) -> str:
    return re.sub(r"\(\s+", "(", re.sub(r",?\s+\)", ")", re.sub(r"\n\s*", " ", signature)))


def _lines(value: Any) -> list[str]:
    return textwrap.dedent(inspect.getsource(value)).splitlines()


def _node(value: Any) -> Any:
    """The syntax of a class or function; None for one that was made without source."""
    try:
        return ast.parse("\n".join(_lines(value))).body[0]
    except (OSError, TypeError):
        return None


def _text(value: Any, name: str) -> str:
    doc = inspect.getdoc(value)
    if not doc:
        raise NotDocumented(f"{name} has no docstring.")
    return doc


def _errors() -> Iterator[str]:
    for module in pkgutil.walk_packages(databuild_dagster.__path__, "databuild_dagster."):
        # All of them, so that the table does not depend on what was imported before.
        if not module.name.endswith(("__main__", "pytest_plugin")):
            importlib.import_module(module.name)
    found: dict[str, type[DatabuildError]] = {}
    waiting: list[type[DatabuildError]] = [DatabuildError]
    while waiting:
        for error in waiting.pop().__subclasses__():
            waiting.append(error)
            if error.__module__.startswith("databuild_dagster.") and error.__name__[0] != "_":
                found[error.__name__] = error
    for name, error in sorted(found.items()):
        sentence = " ".join((inspect.getdoc(error) or "").split())
        hint = " ".join(str(getattr(error, "hint", "") or "").split())
        cells = [name, error.__module__.removeprefix("databuild_dagster."), sentence, hint]
        yield (
            "| "
            + " | ".join(cell.replace("|", "\\|") for cell in [f"`{cells[0]}`", f"`{cells[1]}`", *cells[2:]])
            + " |\n"
        )
