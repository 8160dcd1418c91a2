"""No secret is in anything that databuild writes: streams, logs, Dagster's files and ours.

Each secret is a marked word. The commands run with it in every place that takes one, and fail in many ways. Then all that was
written is searched for the marks.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import traceback
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import pytest

from databuild_dagster.bindings.authoring.location import load_code_locations, the_code_location
from databuild_dagster.bindings.declare.settings import settings
from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.cli.process import INTERRUPTED
from databuild_dagster.store.errors import StoreUnusable
from tests.support.project import Project
from tests.support.secrets_written import leaks, written_below

#: Files of the user, which name the secrets.
GIVEN = ("definitions.py", "secrets.json", "workspace.yaml")

NAMES = (
    "password query sslpassword passfile hook header plainheader argument token metadata setting secretkey sessiontoken "
    "dsn signature cause composed config runtag"
)
#: Letters and digits, which are searched, and three characters that urls encode.
SECRETS = {name: f"Zq7M{n:02}{name}!/k" for n, name in enumerate(NAMES.split())}
MARKS = [secret.partition("!")[0] for secret in SECRETS.values()]

DEFINITIONS = """
import json
from pathlib import Path

import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame

import databuild_dagster
from databuild_dagster import BuildContext, DatabuildSpark, build_definitions, databuild_asset

S = json.loads((Path(__file__).parent / "secrets.json").read_text())


class Composed(Exception):
    def __init__(self, url):
        super().__init__(url, 1)
        self.url = url

    def __str__(self):
        return f"no answer from {self.url}"


class Api(dg.ConfigurableResource):
    token: str = ""


class Knobs(dg.Config):
    password: str = ""


@databuild_asset
def fine(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["dsn", "signature", "cause", "composed"]))
def failing(context: BuildContext) -> pd.DataFrame:
    match context.partition_key:
        case "dsn":
            raise RuntimeError(f"cannot connect to postgresql://alice:{S['dsn']}@db.internal/sales")
        case "signature":
            raise RuntimeError(f"403 of https://store.example/c?X-Amz-Signature={S['signature']}")
        case "cause":
            try:
                raise ValueError(f"Authorization: Bearer {S['cause']}")
            except ValueError as error:
                raise RuntimeError("no orders") from error
        case "composed":
            raise Composed(f"https://me:{S['composed']}@shop.example")


@databuild_asset
def needs_spark(fine: DataFrame) -> DataFrame:
    return fine


@databuild_asset
def configured(config: Knobs, api: Api) -> pd.DataFrame:
    return pd.DataFrame({"n": [len(config.password)]})


@dg.asset
def plain() -> None:
    raise Composed(f"https://me@shop.example")


defs = build_definitions(
    [fine, failing, needs_spark, configured],
    location="secretive",
    WAREHOUSE
    spark=DatabuildSpark(
        MODE
        url=f"sc://127.0.0.1:1/;use_ssl=false;token={S['token']};x-team={S['metadata']}",
        spark_config={"spark.sql.catalog.x.password": S["setting"]},
    ),
    resources={"api": Api()},
    ALERTS
)
"""
#: A setting of a feature.
ALERTS = """alerts=[
        databuild_dagster.WebhookAlert(
            f"http://127.0.0.1:PORT/services/{S['hook']}",
            {"Authorization": f"Bearer {S['header']}", "X-Team": S["plainheader"]},
        ),
        databuild_dagster.CommandAlert(["false", "-H", f"Authorization: Bearer {S['argument']}"]),
    ],"""


class Chat:
    """A chat service that is down or up."""

    def __init__(self) -> None:
        self.is_down = True
        self.requests: list[str] = []
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                chat.requests.append(f"{self.path} {dict(self.headers)}")
                self.send_response(503 if chat.is_down else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def chat() -> Iterator[Chat]:
    chat = Chat()
    yield chat
    chat.server.shutdown()
    chat.server.server_close()


class Secretive:
    """A project with all the secrets, and what it has written."""

    def __init__(self, project: Project, chat: Chat, caplog: pytest.LogCaptureFixture) -> None:
        self.project = project
        self.chat = chat
        self.caplog = caplog
        self.printed: list[tuple[str, bytes]] = []
        (project.folder / "secrets.json").write_text(json.dumps(SECRETS))
        self.deploy()

    def deploy(self, mode: str = "mode='remote',", warehouse: str = "") -> None:
        alerts = ALERTS if "alerts" in settings() else ""
        text = DEFINITIONS.replace("MODE", mode).replace("WAREHOUSE", warehouse).replace("ALERTS", alerts)
        self.project.define(text.replace("PORT", str(self.chat.server.server_port)))

    def call(self, *arguments: str, **environment: str) -> int:
        done = self.project.call(*arguments, **environment)
        assert done.code != INTERRUPTED
        self.printed.append((" ".join(arguments), f"{done.out}\n{done.err}".encode()))
        return done.code

    def print_events(self, instance: dg.DagsterInstance) -> None:
        events = [record for run in instance.get_runs() for record in instance.all_logs(run.run_id)]
        self.printed.append(("Dagster's events", "\n".join(map(repr, events)).encode()))

    def said(self) -> str:
        return "\n".join(text.decode() for _, text in self.printed)

    def leaks(self) -> list[str]:
        streams = [*self.printed, ("the log", self.caplog.text.encode())]
        streams += [("a log record", f"{vars(record)}".encode()) for record in self.caplog.records]
        return leaks([*streams, *written_below(self.project.folder, GIVEN)], MARKS)


@pytest.fixture
def secretive(project: Project, chat: Chat, caplog: pytest.LogCaptureFixture) -> Secretive:
    caplog.set_level(logging.DEBUG, "databuild_dagster")
    return Secretive(project, chat, caplog)


@contextmanager
def _location(secretive: Secretive) -> Iterator[tuple[dg.DagsterInstance, Any]]:
    with secretive.project.own_process(), open_instance(secretive.project.home) as instance:
        yield instance, the_code_location(load_code_locations())


def test_the_search_finds_a_mark_in_each_form_and_in_what_dagster_compresses(tmp_path: Path) -> None:
    mark = "Zq7M99token"
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (a BLOB)")
        connection.execute("INSERT INTO t VALUES (?)", (zlib.compress(f"a {mark} b".encode()),))
        connection.commit()
    for n, prefix in enumerate(("", "a", "ab")):
        (tmp_path / str(n)).write_bytes(b64encode(f"{prefix}{mark}:x".encode()))
    (tmp_path / "3").write_text(f"x={quote(mark)}&")
    (tmp_path / "secrets.json").write_text(mark)

    found = leaks(written_below(tmp_path, GIVEN), [mark])

    assert len({place.split(" in ")[1].split(":")[0].split(" ")[0] for place in found}) == 5
    assert not any("secrets.json" in place for place in found)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("postgresql+psycopg://alice:{password}@127.0.0.1:1/db", id="userinfo"),
        pytest.param(
            "postgresql+psycopg://127.0.0.1:1/db?user=alice&password={query}&sslpassword={sslpassword}", id="query"
        ),
        pytest.param("postgresql+psycopg://127.0.0.1:1/db?passfile=/home/{passfile}", id="passfile"),
        pytest.param("postgresql+psycopg://alice:s3@{password}@127.0.0.1:1/db", id="bare @"),
        pytest.param(
            "postgresql+psycopg://alice:{password}@127.0.0.1:1/db?nonsense=1&sslmode=no&password={query}",
            id="unknown option",
        ),
        pytest.param("postgresql+psycopg://alice:{password}@127.0.0.1:port/db?password={query}", id="no port"),
        pytest.param("mysql://alice:{password}@host/db", id="other database"),
        pytest.param("postgresql//alice:{password}@host/db", id="no scheme"),
    ],
)
def test_no_form_of_a_database_url_shows_its_password(secretive: Secretive, url: str) -> None:
    raw, encoded = url.format(**SECRETS), url.format(**{name: quote(text, safe="") for name, text in SECRETS.items()})

    for given in (raw, encoded):
        for arguments in (("status",), ("want", "list", "--json"), ("build", "fine", "--debug"), ("log", "check")):
            assert secretive.call(*arguments, DATABUILD_DB_URL=given, PGCONNECT_TIMEOUT="1") in (1, 2, 75)

    assert secretive.leaks() == []
    # The message is about the database, and not about what hides the secret.
    assert secretive.said().count("Error: ") >= 4


@pytest.mark.feature("notices")
def test_no_command_tick_or_failing_build_shows_a_secret(secretive: Secretive) -> None:
    call = secretive.call
    assert call("build", "fine") == 0
    assert call("build", "failing@*", "--debug") == 1
    assert call("build", "needs_spark") == 75
    assert call("want", "create", "failing@dsn", "--sla", "1s", "--data-timestamp", "2024-01-01T00:00:00Z") == 0
    assert call("admin", "tick", "--json") == 0
    for arguments in (
        ("status",),
        ("status", "--json"),
        ("explain", "failing@dsn"),
        ("explain", "failing@signature", "--json"),
        ("history", "failing@cause"),
        ("show", "failing@composed"),
        ("show", "--full", "fine", "--json"),
        ("history", "--job-runs", "--json"),
        ("history", "--requests"),
        ("metrics",),
        ("status", "--locations", "--json"),
        ("want", "list", "--all", "--json"),
        ("log", "events"),
        ("log", "check", "--deep"),
        ("spark",),
        ("build", "nothing", "--debug"),
        ("read", "failing@dsn", "--debug"),
    ):
        call(*arguments)
    secretive.chat.is_down = False
    call("admin", "tick")

    with _location(secretive) as (instance, location):
        sensor = location.repository.get_sensor_def("databuild_orchestrator")
        sensor.evaluate_tick(dg.build_sensor_context(instance=instance, repository_def=location.repository))
        secretive.printed.append(("reprs", f"{location.deployment!r} {location.deployment.spark!r}".encode()))
        secretive.print_events(instance)
        job_runs = engine_for(instance).queries.events.raw()
        secretive.printed.append(("our events", repr(job_runs).encode()))

    assert secretive.leaks() == []
    # The secrets were in use: the webhook got them, and messages show what is around them.
    assert all(SECRETS[name] in secretive.chat.requests[0] for name in ("hook", "header", "plainheader"))
    assert "postgresql://***@db.internal/sales" in secretive.said()
    assert "WebhookAlert(127.0.0.1)" in secretive.caplog.text
    assert "CommandAlert(false) failed: exit code 1" in secretive.caplog.text


def test_definitions_that_do_not_load_show_no_secret(secretive: Secretive) -> None:
    url = f"postgresql://alice:{SECRETS['dsn']}@db.internal"
    (secretive.project.folder / "secrets.json").write_text(url)
    secretive.project.define("from pathlib import Path\nraise RuntimeError(Path('secrets.json').read_text())\n")

    for option in ("--json", "--debug"):
        assert secretive.call("build", "fine", option) == 2

    assert secretive.said().count("RuntimeError: postgresql://***@db.internal") >= 3
    assert secretive.leaks() == []


def test_a_run_whose_spark_settings_are_refused_records_no_token(secretive: Secretive) -> None:
    """The likeliest mistake: the url without mode='remote'."""
    secretive.deploy(mode="")

    assert secretive.call("build", "fine", "--debug") == 1
    assert secretive.call("explain", "fine", "--json") == 0

    with _location(secretive) as (instance, _):
        secretive.print_events(instance)
    assert "mode='shared' has no url" in secretive.said()
    assert secretive.leaks() == []


@pytest.mark.feature("compare")
def test_run_config_and_tags_are_recorded_in_our_log_without_secrets(secretive: Secretive) -> None:
    """Dagster itself stores what a person types into its Launchpad."""
    config = {"ops": {"configured": {"config": {"password": SECRETS["config"]}}}}
    tags = {"databuild/spark": json.dumps({"spark.sql.catalog.x.token": SECRETS["runtag"]})}

    with _location(secretive) as (instance, location):
        job = location.repository.get_implicit_global_asset_job_def().get_subset(
            asset_selection={dg.AssetKey("configured")}
        )
        done = job.execute_in_process(instance=instance, run_config=config, tags=tags, raise_on_error=False)
        events = engine_for(instance).queries.events.raw()

    assert done.success
    assert "'password': '***'" in repr(events) or '"password":"***"' in repr(events)
    assert leaks([("our log", repr(events).encode())], MARKS) == []
    assert secretive.call("show", "--full", "configured", "--json") == 0
    assert leaks(secretive.printed, MARKS) == []


def test_credentials_of_an_object_store_are_not_shown_when_it_fails(secretive: Secretive) -> None:
    secretive.deploy(warehouse="warehouse='s3://bucket/prefix',")
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIA0123456789ABCDEF",
        "AWS_SECRET_ACCESS_KEY": SECRETS["secretkey"],
        "AWS_SESSION_TOKEN": SECRETS["sessiontoken"],
        "AWS_ENDPOINT_URL": f"http://me:{quote(SECRETS['password'], safe='')}@127.0.0.1:1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    assert secretive.call("build", "fine", "--debug", **environment) in (1, 2, 75)
    assert secretive.call("explain", "fine", **environment) == 0

    assert "s3://bucket/prefix" in secretive.said()
    assert secretive.leaks() == []


def test_an_error_that_leaves_a_sensor_holds_no_secret(secretive: Secretive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster stores it with the tick."""
    with _location(secretive) as (instance, location):
        url = f"postgresql+psycopg://127.0.0.1:1/db?user=alice&password={SECRETS['query']}"
        monkeypatch.setenv("DATABUILD_DB_URL", url)
        monkeypatch.setenv("PGCONNECT_TIMEOUT", "1")
        sensor = location.repository.get_sensor_def("databuild_orchestrator")
        with pytest.raises(StoreUnusable) as caught:
            sensor.evaluate_tick(dg.build_sensor_context(instance=instance, repository_def=location.repository))

    shown = "".join(traceback.format_exception(caught.value))
    assert "is away" in shown
    assert leaks([("the tick", shown.encode())], MARKS) == []
