"""The operation types of a code location, by the setting `operations=`, by installed packages, and the provided types."""

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import Setting, imported
from databuild_dagster.features.operations.manager import DistributedOperation
from databuild_dagster.features.operations.provided import PROVIDED
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


def _operation(place: str, name: str) -> DistributedOperation[Any]:
    """Raises `InvalidAsset` for a name that is not found or is no operation."""
    module_name, _, own = name.rpartition(".")
    found = getattr(imported(module_name), own, None) if module_name else None
    if found is None:
        raise InvalidAsset(
            f"{place} names the operation {name!r}, which cannot be imported; write it as my_project.quality.RowCount."
        )
    made = found() if isinstance(found, type) else found
    if not isinstance(made, DistributedOperation):
        raise InvalidAsset(f"{place} names the operation {name!r}, which is no DistributedOperation.")
    return made


def _of_files(names: Iterable[str], place: str) -> list[DistributedOperation[Any]]:
    return [_operation(place, name) for name in names]


#: The types of a code location: given ones, those of installed packages, provided ones.
OPERATIONS: Final = Setting[Operations](
    name="operations",
    default=known_operations,
    checked=lambda operations, place: known_operations(operations),
    in_yaml=Sequence[str],
    yaml_default=(),
    description=(
        "Operations over whole datasets, besides those that databuild and installed packages have: "
        "my_project.quality.RowCount, a class that is made without arguments, or an object."
    ),
    from_yaml=_of_files,
)
SETTINGS: Final = (OPERATIONS,)
