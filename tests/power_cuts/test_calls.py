"""Changes of files out of what strace prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from .calls import Change, Unknown, changes

LINES = r"""
7 openat(AT_FDCWD</at>, "/at/a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</at/a>
7 write(3</at/a>, "h\303\251\n\"q\"\0\1", 9) = 9
7 write(3</at/a>, "more", 4 <unfinished ...>
8 mkdir("/at/folder", 0777) = 0
7 <... write resumed>) = 3
7 lseek(3</at/a>, 2, SEEK_SET) = 2
7 write(3</at/a>, "x", 1) = 1
7 fsync(3</at/a>) = 0
7 openat(AT_FDCWD</at>, "b", O_WRONLY|O_CREAT|O_APPEND, 0666) = 4</at/b>
7 write(4</at/b>, "line", 4) = 4
7 pwrite64(5</at/folder/db>, "page", 4, 4096) = 4
7 ftruncate(5</at/folder/db>, 12) = 0
7 rename("/at/a", "/at/folder/a") = 0
7 unlinkat(6</at/folder>, "a", 0) = 0
7 unlink("/elsewhere") = 0
7 unlink("/at/missing") = -1 ENOENT (No such file or directory)
7 +++ exited with 0 +++
"""


def test_each_change_below_the_folder_is_read_in_the_order_of_its_end(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text(LINES)

    found = list(changes(trace, Path("/at")))

    assert found == [
        Change("create", "a"),
        Change("truncate", "a"),
        Change("write", "a", data=b'h\xc3\xa9\n"q"\x00\x01'),
        Change("mkdir", "folder"),
        Change("write", "a", offset=9, data=b"mor"),
        Change("write", "a", offset=2, data=b"x"),
        Change("sync", "a"),
        Change("create", "b"),
        Change("append", "b", data=b"line"),
        Change("write", "folder/db", offset=4096, data=b"page"),
        Change("truncate", "folder/db", offset=12),
        Change("rename", "a", "folder/a"),
        Change("unlink", "folder/a"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        '7 rename("/elsewhere", "/at/a") = 0',
        "7 sendfile(3</at/a>, 4</at/b>, NULL, 12) = 12",
        '7 write(3</at/a>, "too long"..., 90000) = 90000',
    ],
)
def test_a_call_that_cannot_be_repeated_is_refused(tmp_path, line):
    trace = tmp_path / "trace"
    trace.write_text(line)

    with pytest.raises(Unknown):
        list(changes(trace, Path("/at")))
