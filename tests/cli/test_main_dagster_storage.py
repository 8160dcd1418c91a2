"""Dagster's own database is locked by another process for longer than Dagster waits, or its server is away."""

import json
import sqlite3
from contextlib import closing

import psycopg2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from databuild_dagster.cli.main import _report

from .conftest import Project


def test_a_locked_database_of_dagster_is_named_with_what_to_do(project: Project, monkeypatch, capsys) -> None:
    """Dagster waits five seconds for each write; the error is the same without the wait."""
    monkeypatch.setenv("DAGSTER_HOME", str(project.home))
    runs = project.home / "history" / "runs.db"
    dagsters = create_engine(f"sqlite:///{runs}", connect_args={"timeout": 0})
    with closing(sqlite3.connect(runs, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError) as raised, dagsters.begin() as connection:
            connection.execute(text("DELETE FROM kvs"))
    dagsters.dispose()

    code = _report(raised.value, as_json=True)

    assert (code, json.loads(capsys.readouterr().out)["error"]) == (
        2,
        {
            "type": "DagsterStorageUnusable",
            "message": f"Dagster's own files in {project.home} cannot be used: database is locked.",
            "hint": "Another process has locked them. Nothing is lost: run the command again when that process has ended.",
        },
    )


def test_a_server_of_dagsters_database_that_is_away_is_named_without_its_password(capsys) -> None:
    with pytest.raises(psycopg2.OperationalError) as raised:
        psycopg2.connect("postgresql://dagster:of-the-server@127.0.0.1:1/dagster")

    code = _report(raised.value, as_json=True)

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["type"]) == (2, "DagsterStorageUnusable")
    assert error["message"].startswith("Dagster's own database cannot be used: connection to server at")
    assert error["hint"].startswith("Nothing is lost: check that the server runs")
    assert "of-the-server" not in str(error)


def test_an_error_of_dagsters_files_without_a_code_is_named_too(project: Project, monkeypatch, capsys) -> None:
    """Python's module gives no code to some errors, nor does a wrapper that raises its own."""
    monkeypatch.setenv("DAGSTER_HOME", str(project.home))

    code = _report(sqlite3.OperationalError("could not decode"), as_json=True)

    assert (code, json.loads(capsys.readouterr().out)["error"]["type"]) == (2, "DagsterStorageUnusable")
