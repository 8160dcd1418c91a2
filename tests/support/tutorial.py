"""The tutorial as its reader meets it: the lines to type, and what they print, from the blocks of docs/tutorial.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
#: The section that leads from `pip install` to the first live partition.
FIRST = "Your first partition"
#: The most lines that this may take.
MAX_LINES = 10

#: What the page's language of a block says about it.
_KINDS = {"console": "commands", "py": "code", "diff": "mend", "text": "printed"}


class Step(NamedTuple):
    """A block of the page: `commands`, `code` to add or to run, a line to `mend`, or what is `printed`."""

    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands without their prompts."""
        return [line.removeprefix("$ ") for line in self.text.splitlines()]

    @property
    def is_asset(self) -> bool:
        """True of code that belongs into the project's `assets.py`."""
        return "@databuild_asset" in self.text


def steps(section: str | None = None) -> list[Step]:
    """The blocks of the page, or of one section, in their order."""
    text = PAGE.read_text(encoding="utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Step(_KINDS[language], block) for language, block in found]


def typed(of: list[Step]) -> list[str]:
    """The lines that a reader types: commands, and lines of code."""
    lines = [line for step in of if step.kind in ("commands", "code") for line in step.text.splitlines()]
    return [line for line in lines if line.strip()]


def add_asset(project: Path, code: str) -> None:
    """Add code at the end of the project's assets."""
    with _assets(project).open("a", encoding="utf-8") as assets:
        assets.write(f"\n\n{code}")


def mend(project: Path, diff: str) -> None:
    """Replace the line of a `-` by that of a `+`; the old line must be there once."""
    old, new = (re.search(rf"^{re.escape(sign)}(.*)$", diff, re.MULTILINE) for sign in "-+")
    assert old is not None
    assert new is not None
    text = _assets(project).read_text(encoding="utf-8")
    assert text.count(old[1]) == 1, old[1]
    _assets(project).write_text(text.replace(old[1], new[1]), encoding="utf-8")


def _assets(project: Path) -> Path:
    return project / project.name / "assets.py"


def is_shown(block: str, printed: str) -> bool:
    """True if every line of a block was printed, in its order, apart from ids, times, seconds and spaces."""
    lines = iter([_plain(line) for line in printed.splitlines()])
    return all(any(line == candidate for candidate in lines) for line in map(_plain, block.splitlines()))


def _plain(line: str) -> str:
    line = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID", line)
    line = re.sub(r"^(\*?) +[0-9a-f]{8} ", r"\1 ID ", line)
    line = re.sub(r"\b20(?!10)\d\d-\d\d-\d\dT[\d:]+Z", "TIME", line)
    line = re.sub(r"\b\d+\.\d s\b", "SECONDS", line)
    return " ".join(line.split())
