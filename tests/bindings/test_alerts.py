"""Who hears of a want that has missed its SLA: a webhook, a command, once (SPEC 5.5)."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from databuild_dagster import BuildContext, CommandAlert, WebhookAlert, databuild_asset
from databuild_dagster.bindings import alerts
from databuild_dagster.bindings.launcher import OrderCollector
from databuild_dagster.bindings.orchestrator import run_tick
from databuild_dagster.model.commands import CreateWants


@databuild_asset
def report(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


class Chat:
    """A chat service that takes messages, or is down."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.is_down = False
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not chat.is_down:
                    chat.messages.append(message)
                self.send_response(503 if chat.is_down else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def chat() -> Iterator[Chat]:
    chat = Chat()
    yield chat
    chat.server.shutdown()
    chat.thread.join()
    chat.server.server_close()


def late(site: Any) -> str:
    """A want whose time is up already: the data is an hour old, and was to be there within a minute."""
    command = CreateWants(wants=(("report",),), sla_seconds=60.0, data_timestamp=site.engine.clock() - 3600)
    return str(site.engine.handle(command).want_ids[0])


def turn(site: Any) -> None:
    run_tick(site.instance, site.repository, site.deployment, OrderCollector(site.instance))


def test_a_webhook_and_a_command_hear_once_of_a_missed_sla(deploy: Any, chat: Chat, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = CommandAlert(
        [sys.executable, "-c", f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))"]
    )
    site = deploy(report, alerts=[WebhookAlert(chat.url), command])
    want = late(site)

    for _ in range(3):
        turn(site)

    (message,) = chat.messages
    assert (message["want_id"], message["refs"]) == (want, ["report"])
    assert f"Want {want} for report was to be successful by" in message["text"]
    assert [json.loads(line) for line in told.read_text().splitlines()] == [message]


def test_who_is_down_is_told_later_and_holds_nobody_up(deploy: Any, chat: Chat) -> None:
    chat.is_down = True
    site = deploy(report, alerts=[WebhookAlert(chat.url)])
    want = late(site)

    turn(site)
    assert site.engine.queries.wants_named(want)[0].state.value == "Building", "it was launched all the same"
    chat.is_down = False
    turn(site)
    turn(site)

    assert [message["want_id"] for message in chat.messages] == [want]


def test_who_never_answers_is_given_up(deploy: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MAX_TRIES", 2)
    chat.is_down = True
    site = deploy(report, alerts=[WebhookAlert(chat.url)])
    late(site)
    for _ in range(3):
        turn(site)

    chat.is_down = False
    turn(site)

    assert chat.messages == []


def test_another_locations_wants_are_told_by_it(deploy: Any, chat: Chat) -> None:
    site = deploy(report, location="here")
    elsewhere = deploy(location="elsewhere", alerts=[WebhookAlert(chat.url)])
    late(site)

    turn(site)
    turn(elsewhere)

    assert chat.messages == []
