"""Changes of files, as `strace` recorded them, in the order in which the kernel finished them."""

from __future__ import annotations

import codecs
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: System calls that change files, their names, or what of them is on the disk.
TRACED = (
    "openat,creat,lseek,write,pwrite64,writev,pwritev,ftruncate,truncate,fallocate,rename,renameat,renameat2,link,linkat,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync,sync_file_range,copy_file_range,sendfile"
)
_CALL = re.compile(r"^(?P<name>\w+)\((?P<args>.*)\) += (?P<ret>-?\d+)", re.DOTALL)
_UNFINISHED = re.compile(r"^(?P<begin>\w+\(.*) <unfinished \.\.\.>$", re.DOTALL)
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(?P<end>.*)$", re.DOTALL)
_FD = re.compile(r"(?P<fd>\d+|AT_FDCWD)<(?P<path>[^>]*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\.\.\.)?', re.DOTALL)


class Change(NamedTuple):
    """One change. Paths are relative to the recorded folder."""

    #: create, write, append, truncate, rename, link, unlink, mkdir, rmdir, sync.
    what: str
    path: str
    #: The second path of `rename` and `link`.
    other: str = ""
    offset: int = 0
    data: bytes = b""


class Unknown(Exception):
    """A system call that this module cannot repeat."""


def traced(
    arguments: Sequence[str], trace: Path, *, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command and its children under strace (Debian's package)."""
    options = ["-f", "-y", "-s", "100000000", "-e", f"trace={TRACED}", "-e", "signal=none", "-o", str(trace)]
    return subprocess.run(["strace", *options, *arguments], cwd=cwd, env=env, text=True, capture_output=True)


def changes(trace: Path, folder: Path) -> Iterator[Change]:
    """The changes below a folder. Raises `Unknown`."""
    return _Reader(folder).read(trace)


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._prefix = f"{folder}/"
        #: The position of a descriptor in a file; None if it appends.
        self._positions: dict[tuple[int, str], int | None] = {}

    def read(self, trace: Path) -> Iterator[Change]:
        begun: dict[str, str] = {}
        for line in trace.read_text(errors="surrogateescape").split("\n"):
            pid, _, rest = line.partition(" ")
            rest = rest.strip()
            if unfinished := _UNFINISHED.match(rest):
                begun[pid] = unfinished["begin"]
                continue
            if resumed := _RESUMED.match(rest):
                rest = begun.pop(pid) + resumed["end"]
            call = _CALL.match(rest)
            if call is not None and int(call["ret"]) >= 0 and self._prefix in rest:
                yield from self._changes(call["name"], call["args"], int(call["ret"]))

    def _changes(self, name: str, args: str, ret: int) -> Iterator[Change]:
        if name in _OF_DESCRIPTORS:
            yield from self._of_descriptor(name, args, ret)
            return
        path, *others = [self._below(named) for named in _named(args)]
        if name in ("rename", "renameat", "renameat2", "link", "linkat"):
            if path is None or others[0] is None:
                raise Unknown(f"{name}({args}): a name from outside")
            yield Change("rename" if name.startswith("rename") else "link", path, others[0])
        elif path is None:
            return
        elif name in ("openat", "creat"):
            if "O_CREAT" in args or name == "creat":
                yield Change("create", path)
            if "O_TRUNC" in args or name == "creat":
                yield Change("truncate", path)
            self._positions[ret, path] = None if "O_APPEND" in args else 0
        elif name in ("unlink", "unlinkat", "rmdir"):
            yield Change("rmdir" if name == "rmdir" or "AT_REMOVEDIR" in args else "unlink", path)
        elif name in ("mkdir", "mkdirat"):
            yield Change("mkdir", path)
        else:
            raise Unknown(f"{name}({args})")

    def _of_descriptor(self, name: str, args: str, ret: int) -> Iterator[Change]:
        descriptor = _FD.match(args)
        assert descriptor is not None, args
        path = self._below(descriptor["path"])
        if path is None:
            return
        key = int(descriptor["fd"]), path
        if name == "lseek":
            if self._positions.get(key, 0) is not None:
                self._positions[key] = ret
        elif name in ("fsync", "fdatasync"):
            yield Change("sync", path)
        elif name == "ftruncate":
            yield Change("truncate", path, offset=int(args.rsplit(",", 1)[1]))
        elif name == "pwrite64":
            yield Change("write", path, offset=int(args.rsplit(",", 1)[1]), data=_data(args)[:ret])
        elif name == "write":
            yield self._at_position(key, _data(args)[:ret])
        elif name == "fallocate" and args.split(", ")[1] == "0":
            _, _, offset, length = args.split(", ")
            yield Change("write", path, offset=int(offset) + int(length))
        else:
            raise Unknown(f"{name}({args})")

    def _at_position(self, key: tuple[int, str], data: bytes) -> Change:
        position = self._positions.get(key, 0)
        if position is None:
            return Change("append", key[1], data=data)
        self._positions[key] = position + len(data)
        return Change("write", key[1], offset=position, data=data)

    def _below(self, path: str) -> str | None:
        return path.removeprefix(self._prefix) if path.startswith(self._prefix) else None


#: Calls whose first argument is an open file.
_OF_DESCRIPTORS = frozenset(
    [
        "lseek",
        "write",
        "pwrite64",
        "writev",
        "pwritev",
        "ftruncate",
        "fallocate",
        "fsync",
        "fdatasync",
        "sync_file_range",
        "copy_file_range",
        "sendfile",
    ]
)


def _named(args: str) -> list[str]:
    """The paths that a call names, each below its descriptor's folder unless it is absolute."""
    found = []
    for string in _STRING.finditer(args):
        name = _bytes(string[1]).decode(errors="surrogateescape")
        folders = [match["path"] for match in _FD.finditer(args[: string.start()])]
        found.append(name if name.startswith("/") or not folders else f"{folders[-1]}/{name}")
    return found


def _data(args: str) -> bytes:
    string = _STRING.search(args)
    assert string is not None, args
    if string[2]:
        raise Unknown(f"data that strace cut: {args[:80]}")
    return _bytes(string[1])


def _bytes(text: str) -> bytes:
    """What strace escaped as C does."""
    found: bytes = codecs.escape_decode(text.encode(errors="surrogateescape"))[0]
    return found
