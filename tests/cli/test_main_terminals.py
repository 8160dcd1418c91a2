"""A terminal that lacks some characters shows question marks, one without colors gets none, and no command fails for it."""

import io

import pytest

from databuild_dagster.cli.main import run


def printed(monkeypatch: pytest.MonkeyPatch, encoding: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed on stdout and stderr of that encoding."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(f"sys.{name}", stream)
    code = run(list(arguments))
    texts = []
    for stream in streams.values():
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return code, *texts


@pytest.mark.parametrize(("encoding", "dash"), [("ascii", "?"), ("latin-1", "?"), ("utf-8", "—")])
def test_a_character_that_stdout_cannot_show_is_replaced(monkeypatch, encoding, dash):
    code, out, _ = printed(monkeypatch, encoding, "log", "events", "--machines")

    assert code == 0
    assert f"| {dash} | JobRunBuffered |" in out


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "caf? ? ?"), ("latin-1", "café ? ?"), ("utf-8", "café → ?")])
def test_a_character_that_stderr_cannot_show_is_replaced(monkeypatch, encoding, shown):
    """The last one is half of a pair, as Python has it for a byte of an argument that is no UTF-8."""
    code, _, err = printed(monkeypatch, encoding, "café → \udcff")

    assert code == 2
    assert shown in err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "has_colors"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_without_colors_gets_none(monkeypatch, tmp_path, variables, has_colors):
    """https://no-color.org: a variable that is set and not empty."""
    (tmp_path / "assets.py").write_text("import dagster as dg\n\n@dg.asset\ndef a():\n    return 1\n")
    terminal = Terminal()
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", terminal)

    run(["migrate-project", str(tmp_path)])

    assert ("\x1b[" in terminal.getvalue()) is has_colors
