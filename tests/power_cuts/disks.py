"""The disks that a power cut may leave (after Pillai et al., "All File Systems Are Not Created Equal", 2014).

Names change in order, as with any journal: a disk has a prefix of the changes of names, and at least those that a sync of the
file or of its folder forces. The bytes of a file are the synced ones and any part of the later ones: each write may be there,
lost, or torn between two sectors, in any order.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .calls import Change

SECTOR = 512
NAMES = {"create", "rename", "link", "unlink", "mkdir", "rmdir"}


class Write(NamedTuple):
    """Bytes at an offset; None ends the file there."""

    offset: int
    data: bytes | None


@dataclass
class Inode:
    """The bytes on the disk for sure, and later writes."""

    synced: bytearray = field(default_factory=bytearray)
    later: list[Write] = field(default_factory=list)
    #: The size as processes see it.
    size: int = 0


@dataclass
class Names:
    """Files by path, and folders."""

    files: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def change(self, change: Change, inode: int | None) -> None:
        path, other = change.path, change.other
        match change.what:
            case "create":
                assert inode is not None
                self.files.setdefault(path, inode)
            case "link":
                self.files[other] = self.files[path]
            case "unlink":
                self.files.pop(path, None)
            case "mkdir":
                self.folders.add(path)
            case "rmdir":
                self.folders.discard(path)
            case "rename" if path in self.files:
                self.files[other] = self.files.pop(path)
            case "rename":
                moved = {name: f"{other}{name.removeprefix(path)}" for name in (*self.files, *self.folders)}
                inside = {name for name in moved if name == path or name.startswith(f"{path}/")}
                self.files = {moved[name] if name in inside else name: node for name, node in self.files.items()}
                self.folders = {moved[name] if name in inside else name for name in self.folders}


class Machine:
    """A machine that makes the changes one after the other, and may lose its power after any of them."""

    def __init__(self) -> None:
        self._names = Names()
        self._inodes: list[Inode] = []
        self._on_disk = Names()
        #: Changes of names that a power cut may lose, with the inode that a `create` makes.
        self._pending: list[tuple[Change, int | None]] = []

    def make(self, change: Change) -> None:
        if change.what in NAMES:
            inode = self._new_inode(change) if change.what == "create" else None
            self._names.change(change, inode)
            self._pending.append((change, inode))
            return
        if change.what == "sync" and change.path not in self._names.files:
            self._sync_names(lambda pending: change.path in _folders(pending))
            return
        if (number := self._names.files.get(change.path)) is None:
            # It was unlinked while it was open.
            return
        inode_of = self._inodes[number]
        match change.what:
            case "sync":
                inode_of.synced = _applied(inode_of.synced, inode_of.later)
                inode_of.later.clear()
                self._sync_names(lambda pending: change.path in (pending.path, pending.other))
            case "truncate":
                inode_of.later.append(Write(change.offset, None))
                inode_of.size = change.offset
            case "append" | "write":
                offset = inode_of.size if change.what == "append" else change.offset
                inode_of.later.append(Write(offset, change.data))
                inode_of.size = max(inode_of.size, offset + len(change.data))

    def _new_inode(self, change: Change) -> int | None:
        if change.path in self._names.files:
            return self._names.files[change.path]
        self._inodes.append(Inode())
        return len(self._inodes) - 1

    def _sync_names(self, is_forced: Callable[[Change], bool]) -> None:
        """Up to the last change that is forced: a journal keeps the order."""
        forced = [place for place, (pending, _) in enumerate(self._pending) if is_forced(pending)]
        n = forced[-1] + 1 if forced else 0
        for pending, inode in self._pending[:n]:
            self._on_disk.change(pending, inode)
        del self._pending[:n]

    def cut(self, rng: random.Random, folder: Path) -> None:
        """Write one of the disks that a power cut may leave now."""
        names = Names(dict(self._on_disk.files), set(self._on_disk.folders))
        for pending, inode in self._pending[: rng.choice([0, len(self._pending), rng.randint(0, len(self._pending))])]:
            names.change(pending, inode)
        keep = rng.choice([0.0, 0.5, 0.9, 1.0])
        for name in sorted(names.folders):
            (folder / name).mkdir(parents=True, exist_ok=True)
        contents = {number: self._left(self._inodes[number], rng, keep) for number in sorted(set(names.files.values()))}
        for path, number in names.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(contents[number])

    def _left(self, inode: Inode, rng: random.Random, keep: float) -> bytes:
        kept: list[Write] = []
        for write in inode.later:
            if rng.random() < keep:
                kept.append(write)
            elif write.data is not None and len(write.data) > SECTOR and rng.random() < 0.3:
                sectors = rng.randint(1, len(write.data) // SECTOR) * SECTOR
                kept.append(Write(write.offset, write.data[:sectors]))
        return bytes(_applied(inode.synced, kept))


def _applied(before: bytearray, writes: Sequence[Write]) -> bytearray:
    after = bytearray(before)
    for offset, data in writes:
        if data is None:
            del after[offset:]
            after.extend(bytes(offset - len(after)))
            continue
        after.extend(bytes(max(0, offset - len(after))))
        after[offset : offset + len(data)] = data
    return after


def _folders(change: Change) -> set[str]:
    return {posixpath.dirname(path) for path in (change.path, change.other) if path}
