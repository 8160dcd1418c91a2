"""Which file system a folder lies on: SQLite's locks, and its shared memory, are only right on one machine's own disk."""

from __future__ import annotations

import os
from pathlib import Path

#: Types as Linux names them, whose files several machines see.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.cephfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.mount-s3",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
    }
)

#: What the kernel says of this process.
MOUNTS = Path("/proc/self/mounts")


def network_file_system_of(folder: str, mounts: Path | None = None) -> str | None:
    """The type of the network file system that a folder lies on; None on a disk of this machine, or where none can tell."""
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
        # The last one that is mounted on a place hides those before it.
        if len(point) >= len(found) and (real == point or real.startswith(point.rstrip("/") + "/")):
            found, kind = point, fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def _unescaped(text: str) -> str:
    """The kernel writes blanks in a path as octal numbers."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
