"""The file formats that can be read, and the format that instances are written in.

A format turns a table into a file, a file into a table, and a file into the facts that a manifest lists. Spark has a
writer and a reader of its own, so it needs only the format's name and options. A manifest names the format of its
files: the format written today does not decide how an older instance is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol

from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import ListedFileLost, NotParquet, UnknownFormat

if TYPE_CHECKING:
    import pyarrow as pa

#: Where Spark keeps its own schema in a footer.
SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"


_MARK = b"PAR1"
_END_BYTES = 8
#: The unit of timestamps of 12 bytes, as Hive, Impala and older Sparks write them. Spark reads them so; nanoseconds, which is what Arrow
#: takes them for, end in the year 2262.
INT96_UNIT: Final = "us"


class FileFacts(NamedTuple):
    """The facts of a file that are known without reading its rows."""

    rows: int
    #: With the metadata of its writer.
    schema: pa.Schema


class FileFormat(Protocol):
    """A way to keep a table in a file. `path` names the file in messages."""

    @property
    def name(self) -> str:
        """The name in manifests and in Spark: `frame.write.format(name)`."""

    @property
    def suffix(self) -> str:
        """The end of the names of its files, whichever program writes them."""

    @property
    def spark_options(self) -> Mapping[str, str]:
        """The options of Spark's writer and reader."""

    def describe(self, file: str | BinaryIO, path: str) -> FileFacts:
        """Raises `UnreadableFile`."""

    def rows_in(self, file: BinaryIO, path: str) -> int:
        """The `rows` of `describe`, sooner. Raises `UnreadableFile`."""

    def tail(self, read_last: Callable[[int], bytes], expected: int) -> bytes:
        """The bytes at the end of a file that `describe` needs, and no data before them.

        `read_last` reads so many bytes at the end. `expected` is the tail length of an earlier file, 0 if unknown.
        """

    def read(self, path: str) -> pa.Table:
        """The rows. Raises `UnreadableFile`, `ListedFileLost`."""

    def write(self, table: pa.Table, path: str) -> None:
        """Write the rows to a file. Raises `DiskTrouble`."""


class Parquet:
    """`FileFormat` of Parquet: rows and columns come from the footer. The Spark session's setting decides the codec."""

    name = "parquet"
    suffix = ".parquet"
    spark_options: Mapping[str, str] = {}

    def describe(self, file: str | BinaryIO, path: str) -> FileFacts:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            footer = pq.read_metadata(file)
            schema = footer.schema.to_arrow_schema()
            if any(footer.schema.column(place).physical_type == "INT96" for place in range(footer.num_columns)):
                with pq.ParquetFile(file, metadata=footer, coerce_int96_timestamp_unit=INT96_UNIT) as opened:
                    schema = opened.schema_arrow
        except (OSError, pa.ArrowException) as error:
            raise NotParquet(path=path, why=_first_line(error)) from error
        return FileFacts(footer.num_rows, schema)

    def rows_in(self, file: BinaryIO, path: str) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return int(pq.read_metadata(file).num_rows)
        except (OSError, pa.ArrowException) as error:
            raise NotParquet(path=path, why=_first_line(error)) from error

    def tail(self, read_last: Callable[[int], bytes], expected: int) -> bytes:
        found = read_last(max(expected, _END_BYTES))
        # The end of a file is the length of its footer, and the mark of the format.
        length = int.from_bytes(found[-_END_BYTES:-4], "little") + _END_BYTES
        if length > len(found) and found.endswith(_MARK):
            found = read_last(length)
        return _MARK + found[-length:]

    def read(self, path: str) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # partitioning=None: otherwise `instance=<uuid>` in the path would come as a column.
            return pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit=INT96_UNIT)
        except FileNotFoundError as error:
            # A clean-up may have removed it since the manifest was read.
            raise ListedFileLost(path=path, why="it is not there") from error
        except (OSError, pa.ArrowException) as error:
            raise NotParquet(path=path, why=_first_line(error)) from error

    def write(self, table: pa.Table, path: str) -> None:
        import pyarrow.parquet as pq

        with disk.explained(path, "written"):
            pq.write_table(table, path, compression="snappy")


#: The format of new files, chosen only here.
WRITTEN: FileFormat = Parquet()

#: The formats that can be read, by name.
READABLE: dict[str, FileFormat] = {WRITTEN.name: WRITTEN}


def format_named(name: str) -> FileFormat:
    """The format that a manifest names. Raises `UnknownFormat`."""
    if name not in READABLE:
        raise UnknownFormat(name=name)
    return READABLE[name]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
