"""`databuild log check --deep --contents` names each damaged file and the command that repairs it (rule 10.2)."""

import os
import shlex
import signal
import tempfile
from pathlib import Path

import pytest

from databuild_dagster.data.contents import JOURNAL_NAME
from tests.support.damage import DAMAGES
from tests.support.project import Project

DAYS = ("orders@2024-01-29", "orders@2024-01-30")
#: A build compares its columns with those of the instance that was made last.
NEWEST = DAYS[-1]

#: A hook of the interpreter that kills the process.
DIES = """
import os, pathlib, signal, sys, threading

journal = pathlib.Path({journal!r})

def hook(event, arguments):
    if event == "open" and str(arguments[0]) == {last!r}:
        while not (journal.exists() and b"manifest" in journal.read_bytes()):
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
"""


def file_of(project: Project, ref: str) -> Path:
    """The one data file that readers of a ref see."""
    return Path(project.ask("show", ref)["canonical"]["files"][0])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.feature("clean")
def test_a_damaged_file_is_named_with_a_command_that_repairs_it(project: Project, damage: str) -> None:
    project.build(*DAYS)
    DAMAGES[damage](file_of(project, NEWEST))

    found = project.call("log", "check", "--deep", "--contents", "--json")

    (fault,) = found.json["contents"]["faults"]
    violation = next(violation for violation in found.json["violations"] if violation["invariant"] == "I7")
    assert (found.code, fault["ref"], violation["entity"]) == (1, NEWEST, NEWEST)
    assert fault["file"] in violation["detail"]
    assert fault["repair"] in violation["detail"]
    _, command, _ = fault["repair"].split("`")
    assert project.call(*shlex.split(command)[1:]).code == 0, command
    project.ask("gc", "--keep", "0", "--older-than", "none", "--yes")
    clean = project.ask("log", "check", "--deep", "--contents")
    assert (clean["ok"], clean["contents"]["files"], clean["contents"]["faults"]) == (True, 2, [])
    assert project.ask("read", NEWEST) == [{"day": "2024-01-30", "amount": amount} for amount in (1.5, 2.5)]


def test_a_swapped_file_of_the_same_size_is_found_and_the_sentence_counts_files(project: Project) -> None:
    project.build(*DAYS)
    first, second = (file_of(project, ref) for ref in DAYS)
    assert first.stat().st_size == second.stat().st_size
    first.write_bytes(second.read_bytes())

    by_size = project.call("log", "check", "--deep")
    by_contents = project.call("log", "check", "--deep", "--contents")

    assert (by_size.code, by_size.out) == (0, "Nothing is wrong.\n")
    fault, summary = by_contents.out.splitlines()
    assert by_contents.code == 1
    assert fault.startswith(f"I7  {DAYS[0]}: {first} of instance ")
    assert fault.endswith(f"`databuild build --rebuild {DAYS[0]}` builds it again.")
    n_bytes = 2 * first.stat().st_size
    assert summary == f"Compared the contents of 2 files of 2 instances, {n_bytes:,} bytes."


@pytest.mark.long("only a process can be killed")
def test_a_check_that_is_killed_continues_and_leaves_nothing_behind(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a process can be killed: it kills itself at the last file, once it has recorded the first instance."""
    journal, temporary, hook = project.home / JOURNAL_NAME, tmp_path / "temporary", tmp_path / "hook"
    days = ("orders@2024-01-29", "orders@2024-01-30", "orders@2024-01-31")
    project.build(*days)
    temporary.mkdir()
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(DIES.format(journal=str(journal), last=str(file_of(project, days[-1]))))
    path = os.pathsep.join([str(hook), *filter(None, [project.environment.get("PYTHONPATH")])])

    killed = project.run("log", "check", "--deep", "--contents", TMPDIR=str(temporary), PYTHONPATH=path)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    found = project.ask("log", "check", "--deep", "--contents")

    assert killed.code == -signal.SIGKILL
    assert (found["ok"], found["contents"]["files"], found["contents"]["instances"]) == (True, 3, 3)
    assert found["contents"]["earlier"] >= 1
    assert not journal.exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--contents",), "--contents needs --deep."),
        (("--deep", "--from-start"), "--from-start needs --contents."),
    ],
)
def test_an_option_that_needs_another_one_is_refused_without_it(
    known_project: Project, arguments: tuple[str, ...], message: str
) -> None:
    refused = known_project.call("log", "check", *arguments)

    assert (refused.code, message in refused.err) == (2, True)
