"""Searches all that a system wrote for marked secrets: as they are, in base64, and in what Dagster compresses."""

from __future__ import annotations

import sqlite3
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path


def forms_of(mark: str) -> Iterator[bytes]:
    """A mark of letters and digits is the same percent-encoded. Within a text base64 has one of three forms."""
    yield mark.encode()
    for shift in range(3):
        # Its ends depend on the neighbors.
        yield b64encode(b"\0" * shift + mark.encode()).rstrip(b"=")[4:-2]


def leaks(texts: Iterable[tuple[str, bytes]], marks: Iterable[str]) -> list[str]:
    """Mark, place and neighborhood of each secret that is found."""
    forms = [(mark, form) for mark in marks for form in forms_of(mark)]
    return [
        f"{mark} in {place}: {text[max(0, at - 150) : at + 100]!r}"
        for place, text in texts
        for mark, form in forms
        if (at := text.find(form)) >= 0
    ]


def written_below(folder: Path, but: Iterable[str] = ()) -> Iterator[tuple[str, bytes]]:
    """(place, contents) of all files except those of these names; of SQLite also each value, decompressed."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in but:
            continue
        contents = path.read_bytes()
        yield str(path), contents
        if contents.startswith(b"SQLite format 3\0"):
            yield from _compressed_values(path)


def _compressed_values(path: Path) -> Iterator[tuple[str, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield f"{path} {table}", _decompressed(value)


def _decompressed(value: bytes) -> bytes:
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value
