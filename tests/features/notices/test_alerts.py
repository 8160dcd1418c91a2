"""An alert for a want that has missed its SLA: by webhook or command, once (rule 5.5)."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pandas as pd
import pytest

from databuild_dagster import BuildContext, CommandAlert, WebhookAlert, databuild_asset
from databuild_dagster.bindings.claims.launcher import OrderCollector
from databuild_dagster.bindings.orchestration.orchestrator import run_tick
from databuild_dagster.features.notices import alerts
from databuild_dagster.model.commands import CreateWants


@databuild_asset
def report(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({"n": [1]})


class Chat:
    """A chat service that takes messages, or is down."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.is_down = False
        self.moved_to = ""
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not chat.is_down:
                    chat.messages.append(message)
                self.send_response(503 if chat.is_down else 302 if chat.moved_to else 200)
                self.send_header("Location", chat.moved_to)
                self.end_headers()

            def do_GET(self) -> None:
                chat.messages.append(dict(self.headers))
                self.send_response(200)
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


def test_a_webhook_and_a_command_are_sent_once_for_a_missed_sla(deploy: Any, chat: Chat, tmp_path: Path) -> None:
    received = tmp_path / "received"
    command = CommandAlert(
        [sys.executable, "-c", f"import sys; open({str(received)!r}, 'a').write(sys.stdin.read() + chr(10))"]
    )
    site = deploy(report, alerts=[WebhookAlert(chat.url), command])
    want = late(site)

    for _ in range(3):
        turn(site)

    (message,) = chat.messages
    assert (message["want_id"], message["refs"]) == (want, ["report"])
    assert f"Want {want} for report was to be successful by" in message["text"]
    assert [json.loads(line) for line in received.read_text().splitlines()] == [message]


def test_an_alert_that_always_fails_is_given_up(deploy: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MAX_TRIES", 2)
    chat.is_down = True
    site = deploy(report, alerts=[WebhookAlert(chat.url)])
    late(site)
    for _ in range(3):
        turn(site)

    chat.is_down = False
    turn(site)

    assert chat.messages == []


class Phone:
    """A user's own alert, which may cost its process the life."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.dies_before: int | None = None

    def send(self, late: Any) -> None:
        if len(self.sent) == self.dies_before:
            self.dies_before = None
            raise KeyboardInterrupt
        self.sent.append(late.want_id)


def test_a_working_alert_is_sent_once_per_want_while_another_fails(deploy: Any, chat: Chat) -> None:
    """Rule 5.5"""
    chat.is_down = True
    phone = Phone()
    site = deploy(report, alerts=[WebhookAlert(chat.url), phone])
    wants = [late(site) for _ in range(3)]

    for _ in range(3):
        turn(site)
    assert sorted(phone.sent) == sorted(wants)

    chat.is_down = False
    turn(site)
    assert sorted(message["want_id"] for message in chat.messages) == sorted(wants)
    assert sorted(phone.sent) == sorted(wants)


def test_a_webhook_that_redirects_gets_no_header_to_another_host(chat: Chat) -> None:
    """Rules 3.9, 5.5"""
    chat.moved_to = chat.url.replace("127.0.0.1", "localhost")
    moved = WebhookAlert(chat.url, {"Authorization": "Bearer of-the-chat"})
    late = alerts.LateWant("want", "request", ("report",), "Building", "cli", "", None, None)

    with pytest.raises(HTTPError, match="302"):
        moved.send(late)

    assert [message["want_id"] for message in chat.messages] == ["want"]


def test_a_killed_tick_repeats_no_alert(deploy: Any) -> None:
    """Rule 5.5: the cursor is stored want by want."""
    phone = Phone()
    site = deploy(report, alerts=[phone])
    wants = [late(site) for _ in range(4)]

    phone.dies_before = 2
    with pytest.raises(KeyboardInterrupt):
        turn(site)
    assert len(phone.sent) == 2
    turn(site)

    assert sorted(phone.sent) == sorted(wants)


def test_alerts_stop_at_their_time_limit_and_continue_in_the_next_tick(
    deploy: Any, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 5.5, 11.1: what is due is not held up by many late wants, nor they by who is down."""
    monkeypatch.setattr(alerts, "TICK_SECONDS", 0.0)
    chat.is_down = True
    phone = Phone()
    site = deploy(report, alerts=[WebhookAlert(chat.url), phone])
    wants = [late(site) for _ in range(3)]

    sent_after = []
    for _ in range(7):
        turn(site)
        sent_after.append(len(phone.sent))

    # One alert a tick: the log, who is down, the phone; from then on the log and the phone.
    assert sent_after == [0, 0, 1, 1, 2, 2, 3]
    assert sorted(phone.sent) == sorted(wants)


def test_a_new_alert_is_sent_for_wants_that_become_late_from_now_on(deploy: Any) -> None:
    first, second = Phone(), Phone()
    site = deploy(report, alerts=[first])
    before = late(site)
    turn(site)

    site = deploy(report, alerts=[first, second])
    after = late(site)
    turn(site)

    assert first.sent == [before, after]
    assert second.sent == [after]


def test_another_location_sends_the_alerts_of_its_wants(deploy: Any, chat: Chat) -> None:
    site = deploy(report, location="here")
    elsewhere = deploy(location="elsewhere", alerts=[WebhookAlert(chat.url)])
    late(site)

    turn(site)
    turn(elsewhere)

    assert chat.messages == []


def test_the_repr_of_an_alert_hides_its_url_headers_and_arguments() -> None:
    """Rule 3.9: the log names an alert that fails."""
    webhook = WebhookAlert("https://me:hush@chat.example/hook/hush?token=hush", {"X-Team": "hush"})
    command = CommandAlert(["page-oncall", "--token", "hush"])

    assert (repr(webhook), repr(command)) == ("WebhookAlert(chat.example)", "CommandAlert(page-oncall)")


def test_a_command_that_fails_is_named_without_its_arguments() -> None:
    """Rule 3.9: the error of `subprocess` quotes them."""
    late = alerts.LateWant("w", "r", ("report",), "Building", "cli", "", None, None)

    with pytest.raises(alerts.AlertFailed) as caught:
        CommandAlert(["false", "--token", "hush"]).send(late)

    assert str(caught.value) == "CommandAlert(false) failed: exit code 1."
    assert caught.value.__suppress_context__
