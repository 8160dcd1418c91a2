"""What an asset's function may answer besides a frame: nothing on purpose, not yet, or not this time."""

from enum import Enum
from typing import Final

from databuild_dagster.model.refs import PartitionRef


class Empty(Enum):
    """The type of `EMPTY`; an enum with one member, so that a type checker can tell it apart."""

    #: There is no data for this partition, and that is right.
    EMPTY = "empty"


#: Returned instead of a frame: the partition is live and has no rows.
EMPTY: Final = Empty.EMPTY


class DepMiss(Exception):
    """Raised by an asset's function that needs refs which are not live: once they are, it is called again."""

    def __init__(self, *refs: PartitionRef | str) -> None:
        if not refs:
            raise ValueError("DepMiss needs the refs that are missing, for example DepMiss('sales@2013-01-01').")
        self.refs = tuple(dict.fromkeys(str(PartitionRef.parse(str(ref))) for ref in refs))
        super().__init__(f"Missing: {', '.join(self.refs)}.")


class Transient(Exception):
    """Raised by an asset's function when trying again may help: a service was down, a connection broke."""


class BadResult(Exception):
    """An asset's function answered something that is no result; the message says what to return."""
