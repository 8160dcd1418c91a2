"""What an asset's function may answer besides a frame: nothing on purpose, not yet, or not this time."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from dagster import AssetKey

from databuild_dagster.model.refs import AnyRef, PartitionRef, Ref, parse_ref

_ByName = Mapping[str, AnyRef | Iterable[AnyRef]]


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

    def __init__(self, *refs: AnyRef | Iterable[AnyRef] | _ByName) -> None:
        mappings = [each for each in refs if isinstance(each, Mapping)]
        if mappings and len(refs) > 1:
            raise TypeError("DepMiss takes refs, or one mapping to refs, not both.")
        self.by_name = {str(name): texts_of([needed]) for each in mappings for name, needed in each.items()}
        self.refs = texts_of(self.by_name.values() if mappings else refs)
        if not self.refs or not all(self.by_name.values()):
            raise ValueError("DepMiss needs the refs that are missing, for example DepMiss('sales@2013-01-01').")
        super().__init__(f"Missing: {', '.join(self.refs)}.")


def texts_of(refs: Iterable[Any]) -> tuple[Ref, ...]:
    """Refs, or collections of them, in order and each once. Raises `InvalidRef`, and TypeError for what is no ref."""
    texts: dict[Ref, None] = {}
    for given in refs:
        several = isinstance(given, Collection | Iterator) and not isinstance(given, (str, AssetKey))
        for each in given if several else [given]:
            if not isinstance(each, (str, PartitionRef)):
                raise TypeError(f"{each!r} is no ref; write a PartitionRef, or a text such as 'sales@2013-01-01'.")
            texts[parse_ref(each)] = None
    return tuple(texts)


class Transient(Exception):
    """Raised by an asset's function when trying again may help: a service was down, a connection broke."""


class BadResult(Exception):
    """An asset's function answered something that is no result; the message says what to return."""
