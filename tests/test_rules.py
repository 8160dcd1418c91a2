"""Every citation of a rule leads to its anchor in `docs/rules/`, and each anchor exists once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from databuild_dagster.cli.main import cli
from databuild_dagster.model.events import EVENT_TYPES, names_of

ROOT = Path(__file__).parent.parent
RULES = ROOT / "docs" / "rules"
PAGES = sorted(RULES.glob("[0-9]*.md"))
ANCHORS = Counter(
    anchor for page in PAGES for anchor in re.findall(r'<a id="(rules?-(?:I?\d+)(?:\.\d+)?)"></a>', page.read_text())
)

FOLDERS = ("databuild_dagster", "tests", "docs", "bench", "tools", ".ci")
#: The recordings of a golden log are never changed.
UNCHANGEABLE = "tests/golden/"
_NUMBER = r"\d+(?:\.\d+)?"
#: `rule 5.4`, `rules 5`, `rules 2.1, 4.3 and 5`; a `#:` or `#` may be between the parts of a wrapped comment.
_GAP = r"(?:\s+(?:#:?\s+)?)"
CITATION = re.compile(
    rf"\b(?:[Rr]ule{_GAP}\d+\.\d+|[Rr]ules{_GAP}{_NUMBER}(?!\s*(?:%|per\b))(?:(?:,{_GAP}|{_GAP}(?:and|to){_GAP}|-){_NUMBER})*)"
)


def files() -> Iterator[Path]:
    """Code, tests and docs; in the root folder what is beside them."""
    yield from (path for path in ROOT.iterdir() if path.is_file())
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.is_file())


def texts() -> Iterator[tuple[Path, str]]:
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(UNCHANGEABLE) or "__pycache__" in name or path == Path(__file__):
            continue
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue


def anchor_of(number: str) -> str:
    return f"rule-{number}" if "." in number else f"rules-{number}"


def cited(text: str) -> set[str]:
    """The anchors of the numbers that a text cites."""
    return {anchor_of(number) for citation in CITATION.findall(text) for number in re.findall(_NUMBER, citation)}


def test_each_anchor_exists_once() -> None:
    assert [anchor for anchor, n in ANCHORS.items() if n > 1] == []


def test_each_cited_rule_has_an_anchor() -> None:
    unknown = {
        f"{path.relative_to(ROOT)}: {anchor}" for path, text in texts() for anchor in cited(text) if not ANCHORS[anchor]
    }

    assert unknown == set()


def test_no_citation_of_the_specification_is_left() -> None:
    """The specification is not in the repository. Its rules are."""
    left = [path.relative_to(ROOT).as_posix() for path, text in texts() if re.search(r"\bSPEC\b", text)]

    assert left == []


def test_a_list_of_rules_cites_each_of_them() -> None:
    text = "(rules 2.1, 4.3 and 5). Rule 7.3, rules 5-7; the\n#: rules\n#: 6.2, 6.3"

    assert cited(text) == {"rule-2.1", "rule-4.3", "rules-5", "rule-7.3", "rules-7", "rule-6.2", "rule-6.3"}


def test_a_link_to_a_rule_leads_to_the_page_that_has_it() -> None:
    pages = [(path, text) for path, text in texts() if path.suffix == ".md"]
    links = [(path, link) for path, text in pages for link in re.findall(r"\]\(([^)#]*)#(rules?-[\w.]+)\)", text)]

    broken = [
        f"{path.relative_to(ROOT)}: {target}#{anchor}"
        for path, (target, anchor) in links
        if f'<a id="{anchor}"></a>' not in (path.parent / target if target else path).read_text()
    ]

    assert links
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_rules_of_a_page_are_numbered_in_order_without_gaps(page: Path) -> None:
    section = int(page.name.split("-")[0])
    text = page.read_text()

    numbers = re.findall(r'<a id="rule-(\d+)\.(\d+)"></a>', text)

    assert f'<a id="rules-{section}"></a>' in text
    assert numbers == [(str(section), str(n)) for n in range(1, len(numbers) + 1)]


def test_the_index_links_each_page() -> None:
    assert set(re.findall(r"\((\d\d-[\w-]+\.md)#", (RULES / "README.md").read_text())) == {page.name for page in PAGES}


def test_the_page_on_the_log_lists_each_event() -> None:
    text = (RULES / "03-event-log.md").read_text()

    table = text.partition("| subject | events |")[2].partition("\n\n")[0]

    assert set(re.findall(r"`(\w+)`", table)) == set(names_of(*EVENT_TYPES))


def test_each_command_that_a_page_names_exists() -> None:
    named = {words for page in PAGES for words in re.findall(r"`databuild ([a-z][a-z -]*)", page.read_text())}

    assert {words for words in named if not is_command(words.split())} == set()


def is_command(words: list[str]) -> bool:
    """Whether the words begin with a command, and of a group with one of its commands."""
    command = cli.get_command(click.Context(cli), words[0])
    if isinstance(command, click.Group) and len(words) > 1:
        return words[1] in command.list_commands(click.Context(command))
    return command is not None
