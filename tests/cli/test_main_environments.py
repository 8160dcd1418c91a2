"""An environment that lacks something: a command works without it, or ends with one sentence and exit code 2.

Root may write everywhere, so what cannot be written is a read-only mount of the command's own.
"""

import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from databuild_dagster.store.store import open_store
from tests.support.project import MAX_SECONDS, Done, Project

pytestmark = pytest.mark.long("a process has file systems and variables of its own")

ROOT = Path(__file__).parents[2]
DAY = "orders@2024-01-29"
#: Without a single variable of the user: no home, no path, no locale, and a terminal of 20 columns.
BARE = {
    "COLUMNS": "20",
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0",
    "TMPDIR": "/nowhere",
}


def run_mounted(project: Project, mounts: str, *arguments: str) -> Done:
    """`databuild ARGUMENTS` as a process for which the shell commands of `mounts` have changed the file systems."""
    program = shlex.join([sys.executable, "-m", "databuild_dagster", *arguments])
    own = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    done = subprocess.run(
        [*own, "sh", "-e", "-c", f"{mounts}\nexec {program}"],
        cwd=project.folder,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def read_only(folder: Path) -> str:
    place = shlex.quote(str(folder))
    return f"mount --bind {place} {place}; mount -o remount,ro,bind {place}"


def assert_one_sentence(done: Done, *words: str) -> None:
    lines = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert (done.code, len(lines)) == (2, 1), done
    assert "Traceback" not in done.out + done.err
    assert all(word in lines[0] for word in words), lines


@pytest.mark.parametrize("arguments", [("build", DAY), ("dev", "-p", "0")], ids=lambda arguments: arguments[0])
def test_what_writes_to_a_home_on_a_read_only_file_system_is_one_sentence(
    project: Project, arguments: tuple[str, ...]
) -> None:
    project.run("status")

    done = run_mounted(project, read_only(project.home), *arguments)

    assert_one_sentence(done, f"The Dagster home {project.home} cannot be written: its file system is read-only")
    assert "set DAGSTER_HOME to a directory" in done.err


def test_a_question_that_would_register_definitions_in_a_read_only_log_is_one_sentence(project: Project) -> None:
    project.run("status")

    done = run_mounted(project, read_only(project.home), "plan", DAY)

    assert_one_sentence(done, "The build state in", "Check its permissions")


@pytest.mark.parametrize("is_written", [False, True], ids=["at rest", "beside a writer"])
def test_a_home_without_the_right_to_write_can_be_read(project: Project, is_written: bool) -> None:
    project.run("build", DAY)
    questions = [("show", DAY), ("read", DAY), ("status",), ("explain", DAY), ("log", "check"), ("log", "events")]
    answers = [project.run(*asked, "--json") for asked in questions]

    with open_store(f"sqlite:///{project.home}/databuild.db").writing() if is_written else nullcontext():
        found = [run_mounted(project, read_only(project.home), *asked, "--json") for asked in questions]
    refused = run_mounted(project, read_only(project.home), "want", "create", "orders@2024-01-30")

    assert [(done.code, done.json) for done in found] == [(0, done.json) for done in answers], found
    assert_one_sentence(refused, "cannot be used: Read-only file system", "databuild.db.lock")


def test_a_read_only_home_is_enough_for_a_store_elsewhere(project: Project) -> None:
    project.environment["DATABUILD_DB_URL"] = f"sqlite:///{project.folder}/elsewhere.db"

    done = run_mounted(project, read_only(project.home), "want", "list", "--json")

    assert (done.code, done.json) == (0, []), done


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("dev", "-p", "0"), ".dagster_home cannot be made: Read-only file system; set DAGSTER_HOME"),
        (("init", "new"), "new cannot be written: Read-only file system; nothing was left there."),
    ],
    ids=["dev", "init"],
)
def test_a_project_on_a_read_only_file_system_is_one_sentence(
    project: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    del project.environment["DAGSTER_HOME"]

    assert_one_sentence(run_mounted(project, read_only(project.folder), *arguments), sentence)


def test_dev_without_any_place_for_temporary_files_is_one_sentence(project: Project) -> None:
    """Dagster's error for it is a traceback."""
    # The folder of the test is below /tmp itself, and so may be this clone with its Python.
    kept = shlex.quote(str(project.folder))
    mounts = f"mount --bind {kept} /mnt; {read_only(Path('/tmp'))}; {read_only(Path('/var/tmp'))}"
    mounts += f"; mount --bind /mnt {kept}; cd /proc"

    done = run_mounted(project, mounts, "dev", "-p", "0")

    assert_one_sentence(done, "Temporary files have no place", "/tmp", "Set TMPDIR to a folder")


def test_a_build_needs_no_variable_of_the_user(project: Project) -> None:
    project.environment = {"DAGSTER_HOME": str(project.home)} | BARE

    built, read = project.run("build", DAY), project.run("read", DAY, "--json")

    assert (built.code, read.code) == (0, 0), (built, read)
    assert read.json == [{"day": "2024-01-29", "amount": 1.5}, {"day": "2024-01-29", "amount": 2.5}]


def test_a_name_that_the_locale_cannot_read_is_refused_with_the_setting(project: Project) -> None:
    """The bytes are UTF-8, and Python with this locale takes them for something else."""
    project.environment |= BARE

    assert_one_sentence(
        project.run("init", "café"), "this process reads names as ascii", "Set LC_ALL=C.UTF-8 or PYTHONUTF8=1"
    )
