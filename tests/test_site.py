"""The site of the docs (decision 0044): every page has a place, and every link a target; `make site` builds it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tools" / "site" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


HOOK = load_hook()
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_every_page_of_the_docs_is_once_in_the_navigation() -> None:
    pages = HOOK._pages(HOOK.navigation())

    assert sorted(pages) == sorted([*PAGES, *HOOK.OUTSIDE])


def test_the_how_to_pages_have_the_order_of_their_table() -> None:
    (how_to,) = [entry["How to"] for entry in HOOK.navigation() if isinstance(entry, dict) and "How to" in entry]

    assert how_to[:3] == ["how-to/README.md", "how-to/dagster-projects.md", "how-to/write-assets.md"]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("index.md", "[Concepts](docs/concepts.md#wants)", "[Concepts](concepts.md#wants)"),
        ("index.md", "[decisions](docs/decisions/)", "[decisions](decisions/README.md)"),
        ("how-to/lots.md", "[README](../../README.md#try-it)", "[README](../index.md#try-it)"),
        ("architecture.md", "[`launcher`](../databuild_dagster/store/log.py)", "`launcher`"),
        ("concepts.md", "[Sail](https://example.com/a)", "[Sail](https://example.com/a)"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_is_plain_text(name: str, text: str, shown: str) -> None:
    assert HOOK.rewritten(text, name) == shown


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("rules/05-wants.md", '<a id="rules-5"></a>\n\n# 5 `Wants`\n', "5 Wants"),
        ("index.md", "# databuild_dagster\n", "Overview"),
    ],
)
def test_the_navigation_names_a_page_by_its_heading_and_the_first_overview(name: str, text: str, title: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=name), meta={}, title=None)

    HOOK.on_page_markdown(text, page)

    assert page.meta == {"title": title}


def test_a_page_that_loads_something_from_another_host_stops_the_build(tmp_path: Any) -> None:
    (tmp_path / "page.html").write_text('<script src="https://example.com/shim.js"></script>')

    with pytest.raises(SystemExit, match="example.com") as stopped:
        HOOK.on_post_build({"site_dir": str(tmp_path), "nav": []})

    assert re.match("page.html loads", str(stopped.value))
