"""SQLite on a disk that several machines see is refused: its locks hold on one machine alone (rule 3.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.store.backends import sqlite
from databuild_dagster.store.backends.sqlite import network_file_system_of
from databuild_dagster.store.errors import NetworkFileSystem
from databuild_dagster.store.store import open_store

DATABASES = ("sqlite",)

MOUNTS = """\
overlay / overlay rw 0 0
server:/export /mnt/team nfs4 rw,vers=4.2 0 0
/dev/sda1 /mnt/team/scratch ext4 rw 0 0
//office/files /mnt/my\\040files cifs rw 0 0
tmpfs /mnt/my\\040files/quick tmpfs rw 0 0
bucket /data fuse.s3fs rw 0 0
overlay /data overlay rw 0 0
"""


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mounts"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me", None),
        ("/mnt/team", "nfs4"),
        ("/mnt/team/home", "nfs4"),
        ("/mnt/teamwork", None),
        ("/mnt/team/scratch/x", None),
        ("/mnt/my files/a", "cifs"),
        ("/mnt/my files/quick", None),
        ("/data/x", None),
    ],
)
def test_the_innermost_mount_and_the_last_on_a_place_decide(mounts, folder, kind):
    assert network_file_system_of(folder, mounts) == kind


def test_where_no_kernel_tells_nothing_is_refused(tmp_path):
    assert network_file_system_of("/home", tmp_path / "none") is None


def test_a_build_state_on_a_network_file_system_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    """Rule 3.3"""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/export {tmp_path} nfs rw 0 0\n")
    monkeypatch.setattr(sqlite, "MOUNTS", mounts)

    with pytest.raises(NetworkFileSystem, match=r"network file system \(nfs\).*PostgreSQL"):
        open_store(f"sqlite:///{tmp_path}/home/databuild.db")

    assert list((tmp_path / "home").iterdir()) == []
