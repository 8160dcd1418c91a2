"""Dagster's own database is locked by another process for longer than Dagster waits, or its server is away."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.cli.main import _report
from tests.support.project import Project


@pytest.fixture
def _impatient() -> Iterator[None]:
    """Dagster waits five seconds for each write; the error is the same without the wait."""

    def do_not_wait(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA busy_timeout = 0")

    event.listen(Engine, "connect", do_not_wait)
    yield
    event.remove(Engine, "connect", do_not_wait)


@pytest.mark.usefixtures("_impatient")
def test_a_locked_database_of_dagster_is_named_with_what_to_do(project: Project, monkeypatch, capsys) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(project.home))
    with (
        open_instance(project.home) as instance,
        closing(sqlite3.connect(project.home / "history" / "runs.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError) as raised:
            instance.run_storage.set_cursor_values({"a": "b"})

    code = _report(raised.value, as_json=True)

    assert (code, json.loads(capsys.readouterr().out)["error"]) == (
        2,
        {
            "type": "DagsterStorageUnusable",
            "message": f"Dagster's own files in {project.home} cannot be used: database is locked.",
            "hint": "Another process has locked them. Nothing is lost: run the command again when that process has ended.",
        },
    )


def test_a_server_of_dagsters_database_that_is_away_is_named_without_its_password(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("dagster_postgres.utils.time", SimpleNamespace(sleep=lambda seconds: None))
    url = "postgresql://dagster:of-the-server@127.0.0.1:1/dagster"
    (tmp_path / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: '{url}'}}}}")
    with pytest.raises(DagsterPostgresException) as raised:
        open_instance(tmp_path)

    code = _report(raised.value, as_json=True)

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["type"]) == (75, "DagsterStorageUnusable")
    assert error["message"].startswith("Dagster's own database cannot be used: connection failed: connection to")
    assert error["hint"].startswith("Nothing is lost: check that the server runs")
    assert "of-the-server" not in str(error)


def test_the_error_of_an_assets_own_database_is_not_named_as_dagsters(capsys) -> None:
    with pytest.raises(psycopg2.OperationalError) as raised:
        psycopg2.connect("postgresql://shop:of-the-server@127.0.0.1:1/shop")

    code = _report(raised.value, as_json=True)

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["type"]) == (1, "OperationalError")
    assert "Dagster" not in str(error)
    assert "of-the-server" not in str(error)
