"""The operation types of a code location: given ones, those of installed packages, and the provided ones."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from databuild_dagster.bindings.building.provided import PROVIDED
from databuild_dagster.engine.operations.manager import DistributedOperation
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.operations.compatibility import check_name

#: The entry point group in which a package lists operations: objects, or classes without arguments.
ENTRY_POINTS: Final = "databuild_dagster.operations"

Operations = tuple[DistributedOperation[Any], ...]


class InvalidOperationType(Exception):
    """An operation that cannot be registered; the message has its name and the reason."""


def known_operations(given: Iterable[DistributedOperation[Any]] = ()) -> Operations:
    """All of them, each type once. Raises `InvalidOperationType`."""
    found: dict[str, tuple[DistributedOperation[Any], str]] = {}
    for operation, source in [
        *((operation, "databuild itself") for operation in PROVIDED),
        *((_loaded(entry), f"the package {_package(entry)}") for entry in entry_points(group=ENTRY_POINTS)),
        *((operation, "build_definitions(operations=…)") for operation in given),
    ]:
        name = _checked(operation, source)
        if name in found:
            raise InvalidOperationType(
                f"{source} gives an operation {name!r}, which {found[name][1]} gives already; give it another type_name."
            )
        found[name] = operation, source
    return tuple(operation for operation, _ in found.values())


def _checked(operation: object, source: str) -> str:
    if not isinstance(operation, DistributedOperation):
        made = f"; make an object of it: {operation.__name__}()" if isinstance(operation, type) else ""
        raise InvalidOperationType(f"{source} gives {operation!r}, which is no DistributedOperation{made}.")
    name = getattr(operation, "type_name", None)
    if not isinstance(name, str):
        raise InvalidOperationType(f"{type(operation).__name__}, of {source}, has no type_name; give it one, a text.")
    try:
        return check_name("its type_name", name)
    except InvalidRequest as error:
        raise InvalidOperationType(f"{type(operation).__name__}, of {source}: {error.message}") from None


def _loaded(entry: EntryPoint) -> Any:
    try:
        found = entry.load()
        return found() if isinstance(found, type) else found
    except Exception as error:  # Code of other packages may raise anything while it is imported.
        raise InvalidOperationType(
            f"The operation {entry.name!r} of the package {_package(entry)} cannot be loaded "
            f"({type(error).__name__}: {' '.join(str(error).split())}); repair or remove that package."
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
