"""The partition keys of a dataset and of its parts, remembered between the answers of a web server.

A year of five minutes has 105,120 keys, whose texts take a third of a second, and a page is open all day. So they are kept while
the same keys exist and questions come; a million keys take 100 MB.
"""

import time
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from databuild_dagster.bindings.registry.plain_keys import last_window
from databuild_dagster.bindings.registry.selections import OpenInstance, existing_refs
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import partition_key_of

#: Keys that Dagster alone knows are asked for again after so long.
ASK_SECONDS: Final = 60
#: Keys for which no question came are forgotten after so long, and the oldest of so many datasets and parts.
FORGET_SECONDS: Final = 600.0
MAX_REMEMBERED: Final = 100

T = TypeVar("T")


def keys_of(dataset: DatasetSpec, instance: OpenInstance, now: float) -> tuple[str | None, ...]:
    """Every partition key that exists then, in the order of the definition; None for a dataset without partitions."""
    return remembered(
        dataset, instance, now, "", lambda: tuple(partition_key_of(ref) for ref in existing_refs(dataset, instance))
    )


def remembered(dataset: DatasetSpec, instance: OpenInstance, now: float, part: str, compute: Callable[[], T]) -> T:
    """A value that follows from the keys that exist then, by the name of a part of the dataset."""
    last = None if dataset.partitions is None else last_window(dataset.partitions, now)
    version: Hashable = ("asked", int(now // ASK_SECONDS)) if last is None else last
    found: T = _memory.get((dataset, instance, part), version, compute)
    return found


class _Value(NamedTuple):
    version: Hashable
    asked_at: float
    value: Any


class _Memory:
    def __init__(self) -> None:
        self._lock = Lock()
        #: The value asked for most recently is the last.
        self._values: dict[Hashable, _Value] = {}

    def get(self, name: Hashable, version: Hashable, compute: Callable[[], Any]) -> Any:
        with self._lock:
            self._forget()
            found = self._values.get(name)
        value = found.value if found is not None and found.version == version else compute()
        with self._lock:
            self._values.pop(name, None)
            self._values[name] = _Value(version, time.monotonic(), value)
        return value

    def _forget(self) -> None:
        since, n_too_many = time.monotonic() - FORGET_SECONDS, len(self._values) - MAX_REMEMBERED
        for place, (name, value) in enumerate(list(self._values.items())):
            if value.asked_at < since or place < n_too_many:
                del self._values[name]

    def __len__(self) -> int:
        return len(self._values)


_memory = _Memory()
