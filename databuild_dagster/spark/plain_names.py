"""Links with plain names to files on a disk that Spark would not open under their own.

Hadoop's file system of a disk takes `10:15.parquet` for a url. Sail takes the wildcards of a path for a pattern, escaped or not, and
may read another file for it; it opens no name with a control character. A link is beside the copies of objects, and is removed like
them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from databuild_dagster.warehouse import disk, local_copies
from databuild_dagster.warehouse.errors import ListedFileLost
from databuild_dagster.warehouse.storage import protocol_of

#: A colon in the name of a file, and in no folder's.
_COLON = re.compile(r":[^/]*\Z")
_WILDCARD_OR_CONTROL = re.compile(r"[{}\[\]*?\\\x00-\x1f\x7f]")
#: Of a name, what Spark may take for a compression.
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9]+)*\Z")


def plain_names(paths: Sequence[str], *, escapes: bool) -> list[str]:
    """The paths, with a link in place of each that Spark would not open; urls are left as they are.

    `escapes` means that the session knows an escaped wildcard, as Spark on a JVM does. Raises `ListedFileLost`, `DiskTrouble`.
    """
    return [_link(path) if _is_odd(path, escapes=escapes) else path for path in paths]


def _is_odd(path: str, *, escapes: bool) -> bool:
    found = _COLON.search(path) is not None or (not escapes and _WILDCARD_OR_CONTROL.search(path) is not None)
    return found and protocol_of(path) is None


def _link(path: str) -> str:
    """The path of the link, which is made if it is not there yet."""
    if not os.path.exists(path):
        raise ListedFileLost(path=path, why="it is not there")
    suffix = _SUFFIX.search(os.path.basename(path))
    assert suffix is not None, "it matches an empty text"
    link = local_copies.copy_path(f"names/{sha256(path.encode()).hexdigest()[:32]}/part-00000{suffix[0]}")
    disk.make_dirs(os.path.dirname(link))
    with disk.explained(link, "written"):
        with suppress(FileExistsError):
            os.symlink(path, link)
        # It is in use.
        os.utime(os.path.dirname(link))
    return link
