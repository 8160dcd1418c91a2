"""The keys of operations in the meta storage (rule 9.2).

    distOp.<dataset>.runOps                     the running operations, as (type, object, instance)
    distOp.<dataset>.coordinator                the lease of the process that completes them
    distOp.<dataset>.<type>.nextInstanceId
    <root>.arg  .state  .partitions             root is distOp.<dataset>.<type>[.<object>].<instance>
    <root>.<partition>.executor                 the lease of its executor: the fence token
    <root>.<partition>.progress                 the saved progress of a resumable job
    <root>.<partition>.state                    absent, or the end of the job
    <root>.<partition>.trouble                  its failed attempt, and the time of the next attempt
    <root>.trouble                              the same of its completion
    distOpHistory.<…as the root>                the end of the operation
    distOpUnclean.<…as the root>.<partition>    a job of an ended operation whose work has to be cleaned up
    distOpStart.<…as the root>.<ordinal>        an operation on a different dataset that its completion asked to start

Parts are escaped, and a search by prefix ends with the separator, so that instance 1 never matches 10.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import PartitionRef

SEPARATOR = "."
ROOT = "distOp"
HISTORY = "distOpHistory"
UNCLEAN = "distOpUnclean"
#: Next to `UNCLEAN`, so that a single search finds both.
FOLLOW_UP = "distOpStart"
#: The part of an unpartitioned dataset's only partition; no escaped text is equal to it.
_NO_KEY = "%"


def escape(part: str) -> str:
    """A part of a key without separators in it."""
    return part.replace("%", "%25").replace(SEPARATOR, "%2E") or _NO_KEY


def unescape(part: str) -> str:
    return "" if part == _NO_KEY else unquote(part, errors="strict")


class OperationId(NamedTuple):
    """An operation: the nth of its type on a dataset, with its object where a type may run several times at once."""

    dataset: str
    type: str
    object: str | None
    instance: int

    def __str__(self) -> str:
        """The id in keys and messages."""
        return _text_of(self)

    @classmethod
    def parse(cls, text: str) -> OperationId:
        """Raises `NotFound` for a text that is not an id."""
        parts = text.split(SEPARATOR)
        if len(parts) in (3, 4) and all(parts) and parts[-1].isascii() and parts[-1].isdecimal():
            with suppress(ValueError):
                names = [unescape(part) for part in parts[:-1]]
                found = cls(names[0], names[1], names[2] if len(names) == 3 else None, int(parts[-1]))
                if str(found) == text:
                    return found
        raise NotFound(kind="operation", name=text)

    @property
    def root(self) -> str:
        return f"{ROOT}{SEPARATOR}{self}"

    @property
    def under(self) -> str:
        """The prefix of all its keys."""
        return self.root + SEPARATOR

    @property
    def arg(self) -> str:
        return self.under + "arg"

    @property
    def state(self) -> str:
        return self.under + "state"

    @property
    def partitions(self) -> str:
        return self.under + "partitions"

    @property
    def trouble(self) -> str:
        return self.under + "trouble"

    @property
    def history(self) -> str:
        return f"{HISTORY}{SEPARATOR}{self}"

    def follow_up(self, ordinal: int) -> str:
        return f"{FOLLOW_UP}{SEPARATOR}{self}{SEPARATOR}{ordinal:06}"

    def job(self, partition: str) -> JobKeys:
        escaped = escape(partition)
        under = f"{self.under}{escaped}{SEPARATOR}"
        unclean = f"{UNCLEAN}{SEPARATOR}{self}{SEPARATOR}{escaped}"
        return JobKeys(under + "executor", under + "state", under + "progress", under + "trouble", unclean)

    def ref(self, partition: str) -> PartitionRef:
        return PartitionRef(self.dataset, partition or None)


@lru_cache(maxsize=1024)
def _text_of(id: OperationId) -> str:
    parts = [escape(id.dataset), escape(id.type)]
    if id.object is not None:
        escaped = escape(id.object)
        # An object that is a number would look like an instance, and share a prefix with its keys.
        is_number = escaped.isascii() and escaped.isdecimal()
        parts.append(f"%{ord(escaped[0]):02X}{escaped[1:]}" if is_number else escaped)
    return SEPARATOR.join([*parts, str(id.instance)])


class JobKeys(NamedTuple):
    """The keys of a partition's job."""

    executor: str
    state: str
    progress: str
    trouble: str
    unclean: str


class DatasetKeys(NamedTuple):
    """The keys of all operations on a dataset."""

    run_ops: str
    coordinator: str
    #: The prefix of all of them.
    under: str

    @classmethod
    def of(cls, dataset: str) -> DatasetKeys:
        under = f"{ROOT}{SEPARATOR}{escape(dataset)}{SEPARATOR}"
        return cls(under + "runOps", under + "coordinator", under)


def next_instance_id(dataset: str, type_name: str) -> str:
    return f"{DatasetKeys.of(dataset).under}{escape(type_name)}{SEPARATOR}nextInstanceId"
