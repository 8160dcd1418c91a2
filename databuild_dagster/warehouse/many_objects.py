"""Requests for many objects at once, for an object store whose file system has a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from databuild_dagster.warehouse.errors import DiskTrouble, StorageTrouble
from databuild_dagster.warehouse.in_loop import has_loop, in_loop
from databuild_dagster.warehouse.object_store_errors import OVERLAP_CODES, codes_of, explained, is_there_already
from databuild_dagster.warehouse.threads import R, T, in_threads


class ManyObjects:
    """The requests of `ObjectStore` that are made for many paths; a file system without a loop makes them in threads."""

    _file_system: Any
    create_only: Callable[[str, bytes], bool]
    replace: Callable[[str, bytes], None]
    read_range: Callable[[str, int, int], bytes]
    _reading: Callable[[str], AbstractContextManager[None]]

    def for_each(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Several at once; the first error is raised after those that were started have ended."""
        return in_threads(do, items)

    def create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool]:
        created = []
        for answer in self.try_to_create_each(files):
            if isinstance(answer, Exception):
                raise answer
            created.append(answer)
        return created

    def try_to_create_each(self, files: Sequence[tuple[str, bytes]]) -> list[bool | Exception]:
        if not has_loop(self._file_system):
            return self.for_each(self._try_to_create, files)
        pipe = self._file_system._pipe_file
        answers = in_loop(self._file_system, [partial(pipe, path, contents, mode="create") for path, contents in files])
        created: list[bool | Exception] = []
        overlapped = []
        for place, ((path, _), (_, error)) in enumerate(zip(files, answers, strict=True)):
            if error is None or is_there_already(error):
                created.append(error is None)
                continue
            created.append(explained(error, path, "written"))
            if codes_of(error) & OVERLAP_CODES:
                overlapped.append(place)
        again = self.for_each(self._try_to_create, [files[place] for place in overlapped])
        for place, answer in zip(overlapped, again, strict=True):
            created[place] = answer
        return created

    def _try_to_create(self, file: tuple[str, bytes]) -> bool | Exception:
        try:
            return self.create_only(*file)
        except (DiskTrouble, StorageTrouble) as error:
            return error

    def replace_each(self, files: Sequence[tuple[str, bytes]]) -> None:
        if not has_loop(self._file_system):
            self.for_each(lambda file: self.replace(*file), files)
            return
        pipe = self._file_system._pipe_file
        answers = in_loop(self._file_system, [partial(pipe, path, contents) for path, contents in files])
        for (path, _), answer in zip(files, answers, strict=True):
            if answer.error is not None:
                raise explained(answer.error, path, "written") from answer.error

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        if not has_loop(self._file_system):
            return self.for_each(lambda wanted: self.read_range(*wanted), ranges)
        cat = self._file_system._cat_file
        answers = in_loop(self._file_system, [partial(cat, path, start=start, end=end) for path, start, end in ranges])
        found = []
        for (path, _, _), answer in zip(ranges, answers, strict=True):
            with self._reading(path):
                if answer.error is not None:
                    raise answer.error
                found.append(bytes(answer.value or b""))
        return found
