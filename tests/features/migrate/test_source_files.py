"""Bad input: each file that cannot be read is named with the reason, and the rest is read."""

import os
from pathlib import Path

import pytest

from databuild_dagster.features.migrate import source_files
from databuild_dagster.features.migrate.source_files import NoSource, Unreadable, read_source


def test_every_python_file_of_a_project_is_read_and_no_file_of_others(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "shop/b.py",
        ".venv/lib/c.py",
        "node_modules/d.py",
        "__pycache__/e.py",
        "tool/f.py",
        "notes.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "tool" / "pyvenv.cfg").touch()

    files, unreadable = read_source(tmp_path)

    assert [file.path for file in files] == ["a.py", "shop/b.py"]
    assert unreadable == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"x = 1\ndef f(:\n", Unreadable("bad.py", 2, "invalid syntax")),
        (b"\x80\x00\xff" * 10, Unreadable("bad.py", 0, "invalid or missing encoding declaration")),
        (b"# coding: klingon\n", Unreadable("bad.py", 0, "unknown encoding: klingon")),
        (b"x = '\xe9'\n", Unreadable("bad.py", 0, "invalid or missing encoding declaration")),
        (b"x = 1\n" * 10 + b"y = '\xe9'\n", Unreadable("bad.py", 0, "byte 65 is no text in utf-8")),
        (b"x = 1\0\n", Unreadable("bad.py", 0, "source code string cannot contain null bytes")),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_read(
    data: bytes, problem: Unreadable, tmp_path: Path
) -> None:
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "bad.py").write_bytes(data)

    files, unreadable = read_source(tmp_path)

    assert [file.path for file in files] == ["good.py"]
    assert [(found.path, found.line) for found in unreadable] == [(problem.path, problem.line)]
    assert unreadable[0].why.startswith(problem.why)


def test_a_file_in_its_declared_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\r\nname = 'café'\r\n".encode("latin-1"))

    [file], unreadable = read_source(tmp_path / "latin.py")

    assert file.lines[1] == "name = 'café'"
    assert unreadable == []


def test_links_in_rings_pipes_and_large_files_do_not_stop_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "MAX_BYTES", 10)
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "ring.py").symlink_to("ring.py")
    (tmp_path / "large.py").write_text("x = 1\n" * 10)
    os.mkfifo(tmp_path / "pipe.py")

    files, unreadable = read_source(tmp_path)

    assert [file.path for file in files] == ["good.py"]
    assert [(problem.path, problem.why) for problem in unreadable] == [
        ("large.py", "it has more than 10 bytes"),
        ("pipe.py", "it is no regular file"),
        ("ring.py", "too many levels of symbolic links"),
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent", "no such file or directory"),
        ("notes.txt", "its name does not end with .py"),
        ("empty", "the folder has no .py file"),
        ("ring", "too many levels of symbolic links"),
    ],
)
def test_a_path_without_source_is_refused(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "ring").symlink_to("ring")

    with pytest.raises(NoSource) as caught:
        read_source(tmp_path / name)

    assert str(caught.value).startswith(f"There is no Python source to read at {tmp_path / name}: {why}.")


def test_a_folder_of_a_whole_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MAX_FILES", 1)
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()

    with pytest.raises(NoSource, match="more than 1 Python files"):
        read_source(tmp_path)
