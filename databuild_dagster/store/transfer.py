"""The log as a file of lines, to move it between databases: out of SQLite into PostgreSQL, and back (rule 3.12).

The first line says what the file is, a line follows for each event, and the last line has their number and digest, so that
a file that was cut or changed is refused. Paths of manifests are whole in the file: a SQLite store keeps paths inside its home
relative to it, and PostgreSQL has no home (rule 3.10). An event is copied as it is stored, not as its type: a newer shape
would make a different log.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any, BinaryIO, Final

import msgspec

from databuild_dagster.store import log
from databuild_dagster.store.errors import ExportDamaged, ExportRefused, StoreNotEmpty
from databuild_dagster.store.format import LOG_VERSION
from databuild_dagster.store.places import WITH_PATHS
from databuild_dagster.store.rebuild import recompute, scratch_store
from databuild_dagster.store.store import Store

#: Events read from the log at once.
_PAGE: Final = 1000
#: Bytes of a line. An event has kilobytes, and the event of a large manifest megabytes.
MAX_LINE: Final = 256 * 2**20
#: Bytes of the first line, which has a single number.
_MAX_BEGIN: Final = 1000

_Event = tuple[int, float, str, Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)], str, str, str]
_decode_event = msgspec.json.Decoder(_Event, strict=True).decode
_encode = msgspec.json.encode


class _Begin(msgspec.Struct):
    """The first line."""

    databuild_log: int


class _End(msgspec.Struct):
    """The last line."""

    events: int
    sha256: str


def export_log(store: Store, path: str) -> int:
    """Write a consistent copy of the log into a new file and return the number of its events. Raises `ExportRefused`."""
    temporary = f"{path}.{secrets.token_hex(4)}"
    try:
        if os.path.lexists(path):
            raise FileExistsError(0, "it exists already")
        with open(temporary, "xb") as file:
            n_events = _write(store, file)
            file.flush()
            os.fsync(file.fileno())
        # Not `replace`: a file that came meanwhile is kept.
        os.link(temporary, path)
    except OSError as error:
        raise ExportRefused(path=path, why=error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    return n_events


def _write(store: Store, file: BinaryIO) -> int:
    digest, n_events, seq = hashlib.sha256(), 0, 0
    file.write(_encode(_Begin(LOG_VERSION)) + b"\n")
    with store.reading() as connection:
        while page := log.page_after(connection, seq, _PAGE):
            for row in page:
                line = _encode(_with_paths(row, store.places.whole)) + b"\n"
                digest.update(line)
                file.write(line)
            n_events, seq = n_events + len(page), page[-1][0]
    file.write(_encode(_End(n_events, digest.hexdigest())) + b"\n")
    return n_events


def import_log(store: Store, path: str) -> int:
    """Put the events of a file into an empty store, with the tables that follow from them, or change nothing.

    Returns the number of events. Raises `StoreNotEmpty`, `ExportDamaged`, and `IllegalMove` for events that cannot follow
    each other.
    """
    try:
        # A pipe would wait for a writer, and is gone after the first of two readings; a device may have no end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ExportDamaged(path=path, why="it is a pipe, a device or a folder, and no file")
        with open(path, "rb") as file:
            # Whole before anything is written: the digest is in the last line.
            for _ in _read(file, path):
                pass
    except OSError as error:
        raise ExportDamaged(path=path, why=error.strerror or str(error)) from error
    with scratch_store() as scratch, store.writing() as work:
        if (head := log.head(work.connection)) != log.BEFORE_ALL:
            raise StoreNotEmpty(url=store.database.place, n=head.seq)
        store.database.take_time(work.connection)
        with open(path, "rb") as file:
            rows = (_with_paths(row, store.places.recorded) for row in _read(file, path))
            work.connection.executemany(log.APPEND, rows)
        return recompute(store, work, scratch)


def _read(file: BinaryIO, path: str) -> Iterator[_Event]:
    """The events of a file, which is known to be whole after the last event. Raises `ExportDamaged`."""
    _check_begin(file.readline(_MAX_BEGIN), path)
    lines, digest, n_events = _lines(file, path), hashlib.sha256(), 0
    for line in lines:
        try:
            row = _decode_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            _check_end(line, next(lines, None), _End(n_events, digest.hexdigest()), path)
            return
        digest.update(line)
        n_events += 1
        if row[0] != n_events:
            raise ExportDamaged(path=path, why=f"line {n_events + 1} has event {row[0]} in place of {n_events}")
        yield row
    raise ExportDamaged(path=path, why=f"it ends after {n_events} events, without its last line")


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise ExportDamaged(
                path=path, why=f"it has a line of more than {MAX_LINE:,} bytes, and no event has so many"
            )
        yield line


def _check_begin(line: bytes, path: str) -> None:
    try:
        found = msgspec.json.decode(line, type=_Begin).databuild_log
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ExportDamaged(path=path, why="its first line is not that of `databuild log export`") from None
    if found > LOG_VERSION:
        why = f"a newer databuild_dagster wrote it (log {found}; this one knows {LOG_VERSION})"
        raise ExportDamaged(path=path, why=why)


def _check_end(line: bytes, after: bytes | None, found: _End, path: str) -> None:
    """Check the first line that is no event, which has to be the last line."""
    try:
        end = msgspec.json.decode(line, type=_End)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ExportDamaged(path=path, why=f"line {found.events + 2} is no event") from None
    if end != found or after is not None:
        raise ExportDamaged(path=path, why="its last line does not fit the lines before it")


def _with_paths(row: _Event, translated: Callable[[str], str | None]) -> _Event:
    """The row of an event with each path of a manifest translated; its payload stays as it is if no path changes."""
    seq, at, name, version, command_id, actor, payload = row
    if name not in WITH_PATHS:
        return row
    try:
        content = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return row  # Damaged; the fold says so.
    changed = [_translate(manifest, translated) for manifest in _manifests(content)]
    return (seq, at, name, version, command_id, actor, _encode(content).decode()) if any(changed) else row


def _translate(manifest: dict[str, Any], translated: Callable[[str], str | None]) -> bool:
    before = manifest.get("uri")
    if not isinstance(before, str) or (after := translated(before)) == before:
        return False
    manifest["uri"] = after
    return True


def _manifests(content: Any) -> Iterator[dict[str, Any]]:
    """Every object by the name of `manifest`, in any version of an event."""
    if isinstance(content, list):
        content = dict(enumerate(content))
    for name, value in content.items() if isinstance(content, dict) else ():
        if name == "manifest" and isinstance(value, dict):
            yield value
        else:
            yield from _manifests(value)
