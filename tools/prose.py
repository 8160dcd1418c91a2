"""Checks the pages for a few rules of the house's prose (docs/house-style.md, 8): `python -m tools.prose [PAGE …]`.

Exit 1 names page, line and rule of each fault. Sentences are those of paragraphs, list items and cells of tables, up to a semicolon.
Code, the targets of links and generated pages are left out. The rules are written here because the wheel of Vale loads its program from
another host when it first runs, and proselint has no place for the rules of a project.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
MAX_WORDS: Final = 40
#: It quotes the words that it forbids.
QUOTES: Final = Path("docs/house-style.md")
#: Generated from docstrings and help texts.
GENERATED: Final = "docs/reference"
FOLDERS: Final = ("docs", "changes", "examples", "deploy", "distributions", "tests", ".github")

#: What no sentence has, and what to write.
WORDS: Final = {
    r"by and by|for ever|anew": "name the time or the number",
    r"look(s|ed|ing)? after|g(o|oes|oing) on|went on|giv(e|es|ing) way|gave way": "take a verb of the field: tend, continue, yield",
    r"(is|are) no more(?! than)": "say removed, or ended",
    r"cancelled|cancelling": "canceled and canceling have one l",
    r"simply|obviously|of course": "leave it out",
}
FORBIDDEN: Final = {
    re.compile(rf"\b({pattern})\b".replace(" ", r"\s+"), re.IGNORECASE): why for pattern, why in WORDS.items()
}
#: How no sentence begins.
NO_SUBJECT: Final = re.compile(r"(Whoever|Whatever|Whichever|What)\b(?!.*\?$)", re.DOTALL)
#: How no heading begins.
POINTS: Final = re.compile(r"(It|This|That|They|These|Those)\b")

_CODE: Final = re.compile(r"^ *```.*?^ *```|<!--.*?-->|^(?:    .*\n)+", re.DOTALL | re.MULTILINE)
_BLOCK: Final = re.compile(r"(?:^(?!\s*$).*\n?)+", re.MULTILINE)
_ITEM: Final = re.compile(r"^\s*(?:[-*] |\d+\. |>|#+ )|\s*\|\s*|<br>", re.MULTILINE)
_SENTENCE: Final = re.compile(r"\S.*?(?:;|[.!?][\"”)*]*(?=\s+[A-Z`\[*“\"])|\Z)", re.DOTALL)


class Fault(NamedTuple):
    page: Path
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.why}"


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]
    return sorted(path for path in found if not path.is_relative_to(ROOT / GENERATED))


def faults(page: Path, text: str) -> Iterator[Fault]:
    # Code has the lines that it had, so that a fault has the line that it has in the page.
    text = _CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    text = re.sub(r"`[^`]*`", lambda code: "`code`" + "\n" * code[0].count("\n"), text)
    text = re.sub(r"!\[[^\]]*\]\([^)\s]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    for block in _BLOCK.finditer(text):
        for part, at in _parts(block[0], block.start()):
            is_heading = text[:at].rpartition("\n")[2].startswith("#")
            if is_heading and POINTS.match(part):
                yield Fault(page, text.count("\n", 0, at) + 1, "a heading names its subject")
            for sentence in _SENTENCE.finditer(part):
                line = text.count("\n", 0, at + sentence.start()) + 1
                for why in _faults_of(sentence[0], is_heading):
                    yield Fault(page, line, why)
                for pattern, why in FORBIDDEN.items():
                    if page != QUOTES and (found := pattern.search(sentence[0])):
                        yield Fault(page, line, f"“{' '.join(found[0].split())}”: {why}")


def _parts(block: str, start: int) -> Iterator[tuple[str, int]]:
    """Paragraphs, items and cells with their places."""
    at = 0
    for mark in _ITEM.finditer(block):
        yield block[at : mark.start()], start + at
        at = mark.end()
    yield block[at:], start + at


def _faults_of(sentence: str, is_heading: bool) -> Iterator[str]:
    n_words = len(re.findall(r"[^\W\d][\w’'.-]*", sentence))
    if n_words > MAX_WORDS:
        yield f"a sentence of {n_words} words, at most {MAX_WORDS}: {' '.join(sentence.split()[:6])} …"
    if not is_heading and (found := NO_SUBJECT.match(sentence)):
        yield f"a sentence begins with {found[0]}: name the subject"


def main() -> int:
    named = {Path(name).resolve() for name in sys.argv[1:]}
    checked = [page for page in pages() if not named or page in named]
    found = [fault for page in checked for fault in faults(page.relative_to(ROOT), page.read_text(encoding="utf-8"))]
    print("\n".join([*map(str, found), f"Prose: {len(checked)} pages, {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
