"""The names of Dagster's web server and of `dagster dev` do what we use them for; an upgrade breaks here first."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dagster._cli import dev as dagster_dev
from dagster._utils.warnings import supersession_warning
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from databuild_dagster.bindings.adapter import dagster_web, dev_logs


def make_routes(instance: Any, path_prefix: str, is_read_only: bool) -> list[Route]:
    async def answer(_: Any) -> PlainTextResponse:
        return PlainTextResponse(f"{instance} below {path_prefix!r}, read-only: {is_read_only}")

    return [Route(f"{path_prefix}/databuild", answer)]


@pytest.mark.parametrize("is_read_only", [False, True])
@pytest.mark.parametrize("prefix", ["", "/behind/a/proxy"])
def test_our_routes_come_before_the_one_that_takes_every_path(prefix: str, is_read_only: bool) -> None:
    context = SimpleNamespace(instance="an instance", read_only=is_read_only)
    server = dagster_web.webserver_with(make_routes)(context, prefix)

    client = TestClient(server.create_asgi_app())

    assert client.get(f"{prefix}/databuild").text == f"an instance below {prefix!r}, read-only: {is_read_only}"
    assert "dagster_version" in client.get(f"{prefix}/server_info").json()


def test_pages_that_cannot_be_made_leave_dagsters_own(caplog: pytest.LogCaptureFixture) -> None:
    def broken(instance: Any, path_prefix: str, is_read_only: bool) -> list[Route]:
        raise ImportError("No module named 'jinja2'")

    server = dagster_web.webserver_with(broken)(SimpleNamespace(instance="an instance", read_only=False), "")

    client = TestClient(server.create_asgi_app())

    assert "dagster_version" in client.get("/server_info").json()
    assert "jinja2" in caplog.text


def test_the_web_server_and_the_daemon_of_a_dev_are_replaced() -> None:
    webserver = [sys.executable, "-m", "dagster_webserver", "--port", "3000"]
    daemon = [sys.executable, "-m", "dagster._daemon", "run"]
    code_server = [sys.executable, "-m", "dagster", "api", "grpc"]

    assert dagster_web.with_ours(webserver) == [
        sys.executable, "-m", "databuild_dagster", "dev", "--no-daemon", "--port", "3000",
    ]  # fmt: skip
    assert dagster_web.with_ours(daemon) == [sys.executable, "-m", dev_logs.__name__, "run"]
    assert dagster_web.with_ours(code_server) == code_server


@pytest.mark.parametrize("is_of_home", [True, False], ids=["the settings of its home", "others"])
def test_dev_leaves_out_a_warning_of_settings_that_are_those_of_its_home(
    is_of_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, dagsters = tmp_path / "home", logging.getLogger("dagster")
    home.mkdir()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    if is_of_home:
        (home / "dagster.yaml").symlink_to("../dagster.yaml")
    monkeypatch.setattr(dagsters, "filters", [])
    monkeypatch.setattr(dagsters, "propagate", True)

    with warnings.catch_warnings():
        dagster_web.leave_out_wrong_warnings(home, tmp_path)
    dagsters.warning(f"{dagster_web._OTHER_SETTINGS} (dagster.yaml) in the current folder, but")
    dagsters.warning("Another warning.")

    assert [record.getMessage()[:5] for record in caplog.records] == ([] if is_of_home else ["Found"]) + ["Anoth"]
    assert dagster_web._OTHER_SETTINGS in inspect.getsource(dagster_dev.dev_command_impl)


def test_dev_leaves_out_that_dagster_dev_is_superseded_and_no_other_such_warning(tmp_path: Path) -> None:
    """`dg dev` has no pages of databuild."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dagster_web.leave_out_wrong_warnings(tmp_path, tmp_path)
        supersession_warning("Function `dev_command`")
        supersession_warning("Function `another`")

    assert [str(warning.message).split("`")[1] for warning in caught] == ["another"]
