"""What is asked of a file format.

A format turns a table into a file, a file into a table, and a file into the facts that a manifest lists. Spark brings a
writer and a reader of its own, so it needs only the format's name and options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class FileFacts(NamedTuple):
    """What a file says of itself without its rows being read."""

    rows: int
    #: With whatever metadata the writer has left there.
    schema: pa.Schema
    #: Another one as soon as the file holds something else, as far as that can be told without reading it all.
    fingerprint: str


class FileFormat(Protocol):
    """One way to keep a table in a file. `path` is where the file is said to lie, for messages."""

    @property
    def name(self) -> str:
        """As manifests have it, and Spark: `frame.write.format(name)`."""

    @property
    def suffix(self) -> str:
        """How the names of its files end, whoever writes them."""

    @property
    def spark_options(self) -> Mapping[str, str]:
        """What Spark is told when it writes or reads it."""

    def describe(self, file: str | BinaryIO, path: str) -> FileFacts:
        """Raises `UnreadableFile`."""

    def read(self, path: str, columns: Sequence[str] | None) -> pa.Table:
        """The rows; all columns, or some. Raises `UnreadableFile`, `ListedFileLost`."""

    def write(self, table: pa.Table, path: str) -> None:
        """One file with the rows. Raises `DiskTrouble`."""
