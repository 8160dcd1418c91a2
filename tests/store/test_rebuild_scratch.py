"""What a killed `log check` or `log rebuild` left in the temporary folder is removed by the next one."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from databuild_dagster.store.rebuild import SCRATCH_PREFIX, scratch_store


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_by_the_next_store(temporary: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with scratch_store():
            os.write(writer, b"x")
            signal.pause()
        os._exit(0)
    try:
        os.read(reader, 1)
        with scratch_store():
            assert len(list(temporary.iterdir())) == 2, "the other process lives"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    (left,) = temporary.iterdir()

    with scratch_store() as store:
        (folder,) = temporary.iterdir()
        assert folder != left
        assert str(folder) in store.database.url

    assert list(temporary.iterdir()) == []


def test_stores_of_one_process_leave_each_other_and_other_files_alone(temporary: Path) -> None:
    strange = temporary / f"{SCRATCH_PREFIX}file"
    strange.write_text("no folder")

    with scratch_store() as first, scratch_store() as second:
        assert first.database.url != second.database.url
        assert len(list(temporary.iterdir())) == 3

    assert list(temporary.iterdir()) == [strange]
