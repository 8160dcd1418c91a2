"""`databuild health`, for monitors and for probes that are commands (rule 11.8)."""

from __future__ import annotations

import pytest

from databuild_dagster.data.home import DB_URL_VARIABLE
from tests.support.free_port import free_port
from tests.support.project import Project


def test_a_new_project_is_well(project: Project) -> None:
    done = project.call("health")

    assert done.code == 0, done
    assert "No code location has registered an asset that is built." in done.out
    assert {check["status"] for check in project.ask("health")["checks"]} == {"ok"}


def test_what_a_person_has_to_do_is_exit_code_1_unless_it_is_not_asked_for(project: Project) -> None:
    project.ask("want", "create", "orders@2024-01-30")

    done = project.call("health", "--json")

    assert (done.code, done.json["status"]) == (1, "warning")
    assert [check["check"] for check in done.json["checks"] if check["status"] == "warning"] == ["orchestrators"]
    assert project.call("health", "--check", "log", "--check", "outages").code == 0


@pytest.mark.parametrize(
    ("timeout", "words"),
    [
        ("1s", "has not answered within 1 s"),
        pytest.param("1m", "is away", marks=pytest.mark.long("it waits for the server as each command does")),
    ],
)
def test_a_log_that_is_away_is_exit_code_75_and_no_password_is_shown(
    project: Project, monkeypatch: pytest.MonkeyPatch, timeout: str, words: str
) -> None:
    url = f"postgresql+psycopg://anna:much_secret@127.0.0.1:{free_port()}/shop?connect_timeout=2"
    monkeypatch.setenv(DB_URL_VARIABLE, url)

    done = project.call("health", "--json", "--timeout", timeout)

    assert done.code == 75, done
    assert words in done.json["error"]["message"]
    assert "much_secret" not in done.out + done.err
