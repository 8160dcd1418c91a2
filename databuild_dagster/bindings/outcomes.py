"""What an asset's function may answer besides a frame: nothing on purpose, not yet, or not this time."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from databuild_dagster.model.refs import PartitionRef

_ByName = Mapping[str, PartitionRef | str | Iterable[PartitionRef | str]]


class Empty(Enum):
    """The type of `EMPTY`; an enum with one member, so that a type checker can tell it apart."""

    #: There is no data for this partition, and that is right.
    EMPTY = "empty"


#: Returned instead of a frame: the partition is live and has no rows.
EMPTY: Final = Empty.EMPTY


class DepMiss(Exception):
    """Raised by an asset's function that needs refs which are not live: once they are, it is called again.

    `DepMiss(ref, …)` says it of all that this call builds. Where a call builds several things that do not miss
    the same, a mapping says it one by one: from the partition key in a batched asset, from the output's name
    in a multi-asset that is not batched.
    """

    def __init__(self, *refs: PartitionRef | str | Iterable[PartitionRef | str] | _ByName) -> None:
        self.by_name: dict[str, tuple[str, ...]] = {}
        if len(refs) == 1 and isinstance(refs[0], Mapping):
            self.by_name = {str(name): _texts([needed]) for name, needed in refs[0].items()}
        self.refs = tuple(dict.fromkeys(ref for found in self.by_name.values() for ref in found)) or _texts(
            each for each in refs if not isinstance(each, Mapping)
        )
        if not self.refs or not all(self.by_name.values()):
            raise ValueError("DepMiss needs the refs that are missing, for example DepMiss('sales@2013-01-01').")
        super().__init__(f"Missing: {', '.join(self.refs)}.")


def _texts(refs: Iterable[Any]) -> tuple[str, ...]:
    """Refs, or collections of them, in order and each once. Raises `InvalidRef`."""
    flat = [each for ref in refs for each in ([ref] if isinstance(ref, (str, PartitionRef)) else ref)]
    return tuple(dict.fromkeys(str(PartitionRef.parse(str(ref))) for ref in flat))


class Transient(Exception):
    """Raised by an asset's function when trying again may help: a service was down, a connection broke."""


class BadResult(Exception):
    """An asset's function answered something that is no result; the message says what to return."""
