"""The keys of operations in the meta storage (SPEC 9.2).

    distOp.<dataset>.runOps                     the operations that run, as (type, object, instance)
    distOp.<dataset>.coordinator                who completes them
    distOp.<dataset>.<type>.nextInstanceId
    <root>.arg  .state  .partitions             root is distOp.<dataset>.<type>[.<object>].<instance>
    <root>.<partition>.executor                 who has the job: the fence token
    <root>.<partition>.progress                 what a resumable job has saved
    <root>.<partition>.state                    absent, or how it ended
    <root>.<partition>.trouble                  why it is tried again, and when
    <root>.trouble                              the same of its completion
    distOpHistory.<…as the root>                how it ended
    distOpUnclean.<…as the root>.<partition>    a job of an ended operation that is to be cleaned up after

Parts are escaped, and a search by prefix ends with the separator, so that instance 1 never matches 10.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import PartitionRef

SEPARATOR = "."
ROOT = "distOp"
HISTORY = "distOpHistory"
UNCLEAN = "distOpUnclean"
#: What stands for an unpartitioned dataset's one partition; no escaped text looks so.
_NO_KEY = "%"


def escape(part: str) -> str:
    """A part of a key without separators in it."""
    return part.replace("%", "%25").replace(SEPARATOR, "%2E") or _NO_KEY


def unescape(part: str) -> str:
    return "" if part == _NO_KEY else unquote(part, errors="strict")


class OperationId(NamedTuple):
    """One operation: the nth of its type on a dataset, and what it is about where a type may run several times at once."""

    dataset: str
    type: str
    object: str | None
    instance: int

    def __str__(self) -> str:
        """Within keys; also for people."""
        return _text_of(self)

    @classmethod
    def parse(cls, text: str) -> OperationId:
        """Raises `NotFound` for what is no id."""
        parts = text.split(SEPARATOR)
        if len(parts) not in (3, 4) or not all(parts) or not (parts[-1].isascii() and parts[-1].isdecimal()):
            raise NotFound(kind="operation", name=text)
        try:
            names = [unescape(part) for part in parts[:-1]]
        except ValueError:
            raise NotFound(kind="operation", name=text) from None
        found = cls(names[0], names[1], names[2] if len(names) == 3 else None, int(parts[-1]))
        if str(found) != text:
            raise NotFound(kind="operation", name=text)
        return found

    @property
    def root(self) -> str:
        return f"{ROOT}{SEPARATOR}{self}"

    @property
    def under(self) -> str:
        """With what all its keys begin."""
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

    def job(self, partition: str) -> JobKeys:
        under = f"{self.under}{escape(partition)}{SEPARATOR}"
        unclean = f"{UNCLEAN}{SEPARATOR}{self}{SEPARATOR}{escape(partition)}"
        return JobKeys(under + "executor", under + "state", under + "progress", under + "trouble", unclean)

    def ref(self, partition: str) -> PartitionRef:
        return PartitionRef(self.dataset, partition or None)


@lru_cache(maxsize=1024)
def _text_of(id: OperationId) -> str:
    parts = [escape(id.dataset), escape(id.type)]
    if id.object is not None:
        escaped = escape(id.object)
        # An object that is a number would look like an instance, whose keys then began as another's.
        is_number = escaped.isascii() and escaped.isdecimal()
        parts.append(f"%{ord(escaped[0]):02X}{escaped[1:]}" if is_number else escaped)
    return SEPARATOR.join([*parts, str(id.instance)])


class JobKeys(NamedTuple):
    """Of one partition's job."""

    executor: str
    state: str
    progress: str
    trouble: str
    unclean: str


class DatasetKeys(NamedTuple):
    """Of all operations on a dataset."""

    run_ops: str
    coordinator: str
    #: With what all of them begin.
    under: str

    @classmethod
    def of(cls, dataset: str) -> DatasetKeys:
        under = f"{ROOT}{SEPARATOR}{escape(dataset)}{SEPARATOR}"
        return cls(under + "runOps", under + "coordinator", under)


def next_instance_id(dataset: str, type_name: str) -> str:
    return f"{DatasetKeys.of(dataset).under}{escape(type_name)}{SEPARATOR}nextInstanceId"
