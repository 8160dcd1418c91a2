"""stdout and stderr that take nothing: an exit code, one sentence where it can be read, and no traceback (rules 15)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from databuild_dagster.cli.main import run, shown_warning
from databuild_dagster.cli.process import guard_streams
from databuild_dagster.spark import session

REFUSED = ("show", "orders@")


@pytest.fixture
def full():
    """Takes nothing, as the file of a full disk."""
    return open("/dev/full", "w")


@pytest.fixture
def unread():
    """A pipe that has no reader any more."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def code_of(monkeypatch, arguments, **streams) -> int:
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    guard_streams()
    return run(list(arguments))


@pytest.fixture
def err(tmp_path) -> Path:
    return tmp_path / "stderr"


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["words", "json"])
@pytest.mark.parametrize(
    "command", [("log", "events", "--machines"), ("show", "--manifest-schema"), ("--help",)], ids=" ".join
)
def test_a_full_stdout_is_one_sentence_on_stderr_and_exit_code_1(monkeypatch, full, err, command, as_json):
    code = code_of(monkeypatch, (*command, *as_json), stdout=full, stderr=err.open("w"))

    assert code == 1
    assert err.read_text() == (
        "Error: stdout cannot be written: No space left on device. "
        "Write it elsewhere; the command may have done its work.\n"
    )


def test_an_error_as_json_on_a_full_stdout_is_one_sentence_on_stderr(monkeypatch, full, err):
    code = code_of(monkeypatch, (*REFUSED, "--json"), stdout=full, stderr=err.open("w"))

    assert code == 1
    assert err.read_text().startswith("Error: stdout cannot be written")
    assert len(err.read_text().splitlines()) == 1


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["words", "json"])
def test_a_reader_that_has_seen_enough_of_stdout_is_no_failure(monkeypatch, unread, err, as_json):
    code = code_of(monkeypatch, ("log", "events", "--machines", *as_json), stdout=unread, stderr=err.open("w"))

    assert code == 0
    assert err.read_text() == ""


@pytest.mark.parametrize("trouble", ["full", "unread"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(monkeypatch, request, tmp_path, trouble):
    stderr = request.getfixturevalue(trouble)

    code = code_of(monkeypatch, REFUSED, stdout=(tmp_path / "stdout").open("w"), stderr=stderr)

    assert code == 2


@pytest.mark.long("a process has closed descriptors")
def test_closed_streams_change_neither_the_exit_code_nor_a_file(tmp_path):
    """A process of its own, for its descriptors: the database would get the number of a closed stream."""
    (tmp_path / "workspace.yaml").touch()
    command = f"exec {sys.executable} -m databuild_dagster want list"

    done = subprocess.run(
        ["bash", "-c", f"{command} 0<&- 1>&- 2>&-"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"},
        check=False,
    )

    assert done.returncode == 0
    assert (tmp_path / ".dagster_home" / "databuild.db").read_bytes().startswith(b"SQLite format 3\0")


@pytest.mark.long("a signal ends the process")
def test_a_crash_in_native_code_names_the_calls_of_its_thread():
    """A process of its own: a signal ends it. The command is the crash itself."""
    module = "databuild_dagster.cli.main"
    program = f"import importlib, signal; main = importlib.import_module({module!r}); main.run = signal.raise_signal; main.main(11)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "databuild_dagster/cli/main.py" in done.stderr


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (Path(session.__file__), "Warning: it is older\n"),
        (Path(pytest.__file__), f"{pytest.__file__}:1: UserWarning: it is older\n"),
    ],
    ids=["of the package", "of another"],
)
def test_a_warning_of_the_package_shows_no_line_of_code(file, shown):
    assert shown_warning("it is older", UserWarning, str(file), 1, "") == shown
