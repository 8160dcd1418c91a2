"""The file system of a folder: SQLite's locks and shared memory hold on a disk of the machine only."""

from __future__ import annotations

import os
from pathlib import Path

_FUSE = ("ceph", "cephfs", "gcsfuse", "glusterfs", "goofys", "juicefs", "mount-s3", "rclone", "s3fs", "sshfs")
_SHARES = ("9p", "afs", "cifs", "nfs", "nfs4", "smb3", "smbfs")
_CLUSTERS = ("beegfs", "ceph", "gfs2", "glusterfs", "gpfs", "lustre", "ocfs2")
#: Linux's names of the types whose files several machines see.
NETWORK_FILE_SYSTEMS = frozenset((*_SHARES, *_CLUSTERS, *(f"fuse.{name}" for name in _FUSE)))

#: The mounts of this process, by the kernel.
MOUNTS = Path("/proc/self/mounts")


def network_file_system_of(folder: str, mounts: Path | None = None) -> str | None:
    """The type of a folder's network file system; None on a disk of this machine, or where the mounts cannot be read."""
    try:
        listed = (mounts or MOUNTS).read_text(errors="surrogateescape")
    except OSError:
        return None
    real = os.path.realpath(folder)
    found, kind = "", None
    for line in listed.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        # The last mount on a place hides those before it.
        if len(point) >= len(found) and (real == point or real.startswith(point.rstrip("/") + "/")):
            found, kind = point, fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def _unescaped(text: str) -> str:
    """A path without the octal numbers that the kernel writes for blanks."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
