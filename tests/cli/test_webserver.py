"""`databuild dev --no-daemon` is Dagster's web server with its own options, and with our pages (decision 0046)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from databuild_dagster.cli.main import run
from tests.support.free_port import free_port
from tests.support.project import Project

#: Of the server, on two busy cores; Dagster waits a minute for its processes.
MAX_SECONDS = 120
PREFIX = "/behind/a/proxy"


@pytest.mark.long("Ctrl-C ends a server with an open stream")
def test_the_options_are_dagsters_and_an_open_stream_does_not_hold_the_server(project: Project) -> None:
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    project.call("want", "create", "revenue_of_january")

    process = project.start(
        "dev", "--no-daemon", "-p", str(port), "--path-prefix", PREFIX, "--read-only", "--empty-workspace"
    )
    wait_for(f"{root}{PREFIX}/server_info", process)
    stream = urllib.request.urlopen(f"{root}{PREFIX}/databuild/api/v1/stream?after=0", timeout=MAX_SECONDS)
    lines = [stream.readline() for _ in range(6)]
    page = urllib.request.urlopen(f"{root}{PREFIX}/databuild", timeout=MAX_SECONDS)
    text = page.read().decode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{root}{PREFIX}/databuild", data=b"", timeout=MAX_SECONDS)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=MAX_SECONDS)

    assert lines[0] == b"retry: 2000\n"
    assert b"event: log\n" in lines
    # Ours, and not Dagster's, which has no such header.
    assert (refused.value.code, refused.value.headers["x-frame-options"]) == (405, "DENY")
    assert page.url == f"{root}{PREFIX}/databuild/"
    assert f'href="{PREFIX}/databuild/wants"' in text


def test_the_short_host_option_is_dagsters_and_the_help_names_its_command(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    with project.own_process():
        codes = [
            run(["dev", "--no-daemon", "-h", "no.such.host.invalid", "--path-prefix", "wrong"]),
            run(["dev", "--no-daemon", "--help"]),
        ]

    out, err = capfd.readouterr()
    # Dagster's own refusal of its own option: the host before it was read.
    assert "The path prefix should begin with a leading" in err
    assert codes[1] == 0
    assert "`dagster-webserver --help` lists them" in " ".join(out.split())


def test_a_machine_without_dagsters_web_server_gets_one_sentence(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Starlette comes with it, so nothing of ours that needs it may be imported first."""
    for name in ("dagster_webserver", "starlette", "databuild_dagster.web.application"):
        monkeypatch.setitem(sys.modules, name, None)

    with project.own_process():
        code = run(["dev", "--no-daemon"])

    assert code == 2
    assert "Install it: pip install dagster-webserver" in capfd.readouterr().err


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    pause = threading.Event()
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"waited {MAX_SECONDS} s for {url}"
        try:
            urllib.request.urlopen(url, timeout=10).close()
            return
        except (urllib.error.URLError, OSError):
            pause.wait(0.2)
