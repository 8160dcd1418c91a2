"""`databuild dev` refuses what `dagster dev` would find out after it has started (rules 15)."""

import os
import socket

import pytest

from databuild_dagster.bindings.adapter import dagster_web
from databuild_dagster.cli.main import run
from tests.support.free_port import free_port
from tests.support.project import Project


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of the program that replaces the process of the command."""
    found: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: found.append(arguments))
    return found


def test_dev_on_a_taken_port_starts_nothing(project: Project, started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        done = project.call("dev", "-p", str(port))

    assert (done.code, started) == (2, [])
    assert f"cannot be on port {port} of 127.0.0.1: Address already in use. Name another one" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-p", "70000"), "70000 is not in the range 0<=x<=65535"),
        (("--port", "http"), "'http' is not a valid integer range"),
        (("-p", "3000", "--host", "no.such.host.invalid"), "of no.such.host.invalid"),
    ],
)
def test_dev_with_an_option_that_cannot_be_is_refused(project: Project, started, arguments, sentence) -> None:
    done = project.call("dev", *arguments)

    assert (done.code, started) == (2, [])
    assert sentence in done.err


@pytest.mark.long("the process of Dagster refuses the workspace")
def test_dev_with_a_workspace_that_is_not_there_names_no_address(project: Project) -> None:
    done = project.run("dev", "-w", "nowhere.yaml")

    assert done.code == 2
    assert "Path 'nowhere.yaml' does not exist" in done.err
    assert "http://" not in done.err


def test_the_help_of_dev_names_the_command_that_lists_dagsters_options(project: Project) -> None:
    done = project.call("dev", "--help")

    assert done.code == 0
    assert "`dagster dev --help` lists them" in " ".join(done.out.split())


def test_dev_starts_dagster_that_asks_code_servers_here_without_the_proxy(
    project: Project, monkeypatch, started
) -> None:
    """A proxy that answers nothing, between Dagster and a code server of `workspace.yaml` at a port of this machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_grpc_proxy", "corp.example")

    with project.own_process():
        code = run(["dev"])

        assert (code, started[0][1:3]) == (0, ["-m", dagster_web.__name__])
        assert os.environ["no_grpc_proxy"] == "corp.example,localhost,127.0.0.1"  # noqa: SIM112


def test_dev_takes_the_port_from_dagsters_variable_and_keeps_dagsters_options(project: Project, started) -> None:
    options = ["-m", "some.module", "-a", "defs", "--live-data-poll-rate", "5000", "--use-legacy-code-server-behavior"]
    port = str(free_port())

    done = project.call("dev", *options, DAGSTER_WEBSERVER_PORT=port)

    assert done.code == 0
    assert started[0][3] == f"http://127.0.0.1:{port}/databuild"
    assert started[0][4:] == ["--host", "127.0.0.1", "--port", port, *options]
