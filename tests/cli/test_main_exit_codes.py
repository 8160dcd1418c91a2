"""The exit code of every command for every kind of failure, as docs/reference/command-line.md has them (rules 15)."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from databuild_dagster.cli.main import cli
from tests.fuzz.commands import leaves
from tests.support.feature_commands import is_there, of_command
from tests.support.free_port import free_port
from tests.support.project import Done, Project

DAY = "orders@2024-01-29"
#: Every command but `dev`, which becomes another process, with arguments that are well formed.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "init": ("new",),
    "migrate-project": (".",),
    "status": (),
    "health": (),
    "build": (DAY,),
    "want create": (DAY,),
    "want list": (),
    "want show": ("x",),
    "want cancel": ("x",),
    "plan": (DAY,),
    "plan --if-tainted": (DAY,),
    "plan --if-new-code": ("orders",),
    "plan --if-missing": (DAY,),
    "explain": (DAY,),
    "partitions": ("orders",),
    "show": (DAY,),
    "history": (DAY,),
    "read": (DAY,),
    "show --full": (DAY,),
    "diff": (DAY,),
    "taint": (DAY, "--reason", "x"),
    "taint --list": (),
    "untaint": ("x",),
    "revert": (DAY, "--to", "x"),
    "revert --event": ("1",),
    "relocate": ("orders",),
    "env create": ("branch",),
    "env list": (),
    "env show": ("branch",),
    "env diff": ("branch",),
    "env refresh": ("branch",),
    "env promote": ("branch",),
    "env attach": ("branch",),
    "env drop": ("branch",),
    "status --outages": (),
    "pause --needs": ("spark", "--reason", "x"),
    "resume --needs": ("spark",),
    "retry": (DAY,),
    "pause": (DAY, "--reason", "x"),
    "resume": (DAY,),
    "adopt": ("orders", "--files", "/nowhere/{key}.parquet"),
    "gc": (),
    "erase": ("orders", "--where", "amount > 1"),
    "admin publish": ("orders",),
    "admin tick": (),
    "log events": (),
    "log check": (),
    "log rebuild": (),
    "log migrate": (),
    "log export --database": ("copy.db",),
    "log export": ("log.jsonl",),
    "log import": ("notes.txt",),
    "log events --machines": (),
    "log take-over": (),
    "lot list": (),
    "lot gaps": ("orders",),
    "lot arrive": ("orders", "2024-01-29", "x.parquet"),
    "lot arrive --landed": (),
    "lot list --subscriptions": (),
    "operation run compact": ("orders", "--no-wait"),
    "operation run build_index": ("orders", "--no-wait"),
    "operation run validate": ("orders", "--not-null", "day", "--no-wait"),
    "operation run TYPE": ("orders", "--no-wait"),
    "operation list": (),
    "operation show": ("x",),
    "operation show --watch": ("x",),
    "operation cancel": ("x",),
    "history --job-runs": (),
    "show --job-run": ("x",),
    "want cancel --job-runs": ("x",),
    "history --requests": (),
    "metrics": (),
    "status --locations": (),
    "status --forget": ("x", "--yes"),
    "show --manifest": (DAY,),
    "show --manifest-schema": (),
    "spark": (),
    "spark --stop": (),
}
#: They use neither a home nor the store.
NEED_NO_HOME = {"init", "migrate-project", "log events --machines", "show --manifest-schema"}
#: They use the folder of the home alone, and neither its settings nor the store.
NEED_NO_STORE = NEED_NO_HOME | {"spark", "spark --stop"}


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> str:
    """The url of a store that a newer version has written."""
    assert shared_project.call("admin", "tick").code == 0
    path = tmp_path_factory.mktemp("newer") / "databuild.db"
    with closing(sqlite3.connect(shared_project.home / "databuild.db")) as store:
        store.execute("VACUUM INTO ?", (str(path),))
    with closing(sqlite3.connect(path)) as copy, copy:
        copy.execute("UPDATE databuild_meta SET value = '99' WHERE key = 'log_version'")
    return f"sqlite:///{path}"


@pytest.fixture
def bad_home(tmp_path: Path) -> str:
    """A home whose settings nothing can read."""
    (tmp_path / "dagster.yaml").write_text("since: 2024-02-30\n")
    return str(tmp_path)


@pytest.fixture
def project(known_project: Project) -> Iterator[Project]:
    yield known_project
    shutil.rmtree(known_project.folder / "new", ignore_errors=True)


def assert_code(done: Done, code: int) -> None:
    assert done.code == code, done
    assert "Traceback" not in done.out + done.err
    assert "Run it again with --debug" not in done.out + done.err
    if code == 2:
        assert sum(line.startswith("Error: ") for line in done.err.splitlines()) == 1, done.err


def test_every_command_is_in_the_table() -> None:
    there = {command for command in ARGUMENTS if is_there(command.split())}

    assert {" ".join(path) for path, _ in leaves(cli)} - {"dev", "dev --no-daemon"} == there


@pytest.mark.parametrize("command", [of_command(command.split(), command) for command in ARGUMENTS])
def test_a_command_ends_with_the_documented_exit_code(
    project: Project, newer: str, bad_home: str, command: str
) -> None:
    words = (*command.split(), *ARGUMENTS[command])
    with_home = 0 if command in NEED_NO_HOME else 2
    with_store = 0 if command in NEED_NO_STORE else 2

    assert_code(project.call(*words, "--help"), 0)
    assert_code(project.call(*words, "--no-such-option"), 2)
    assert_code(project.call(*words, "\udcff"), 2)
    assert_code(project.call(*words, DAGSTER_HOME="/nowhere/at/all"), with_home)
    shutil.rmtree(project.folder / "new", ignore_errors=True)
    assert_code(project.call(*words, DAGSTER_HOME=bad_home), with_store)
    shutil.rmtree(project.folder / "new", ignore_errors=True)
    assert_code(project.call(*words, DATABUILD_DB_URL=newer), with_store)


def test_a_database_that_stays_away_has_an_exit_code_of_its_own(project: Project) -> None:
    """A job of Kubernetes tells it from a failure and from a refusal."""
    url = f"postgresql://127.0.0.1:{free_port()}/shop?connect_timeout=1"

    away = project.call("status", "--json", DATABUILD_DB_URL=url)

    assert away.code == 75, away
    assert away.json["error"]["type"] == "StoreAway"
