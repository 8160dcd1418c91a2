"""A second file format, as small as it can be: what `FileFormat` asks for is enough to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import orc

from databuild_dagster.warehouse.errors import UnreadableFile
from databuild_dagster.warehouse.formats import FileFacts


class Orc:
    name = "orc"
    suffix = ".orc"
    spark_options: Mapping[str, str] = {"compression": "zlib"}

    def describe(self, file: str | BinaryIO, path: str) -> FileFacts:
        opened = self._open(file, path)
        return FileFacts(opened.nrows, opened.schema)

    def rows_in(self, file: BinaryIO, path: str) -> int:
        return int(self._open(file, path).nrows)

    def tail(self, read_last: Callable[[int], bytes], expected: int) -> bytes:
        return read_last(1 << 30)

    def read(self, path: str) -> pa.Table:
        return self._open(path, path).read()

    def write(self, table: pa.Table, path: str) -> None:
        orc.write_table(table, path)

    def _open(self, file: Any, path: str) -> Any:
        try:
            return orc.ORCFile(file)
        except (OSError, pa.ArrowException) as error:
            raise UnreadableFile(path=path, why=str(error).splitlines()[0]) from error
