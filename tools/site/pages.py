"""MkDocs' hook: the README and two more pages join those of docs/, and each page has a place in the navigation.

The how-to pages come in the order of their table, docs/how-to/README.md. A page of docs/ that no rule names comes at the end of its
folder, so that a new page is never left out."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Pages outside of docs/, by their name in the site.
OUTSIDE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
#: Heading to folder of docs/, in the order of the navigation.
FOLDERS = {
    "For": "for",
    "Coming from": "coming-from",
    "How to": "how-to",
    "Reference": "reference",
    "Rules": "rules",
    "Decisions": "decisions",
}
#: Pages of docs/ itself that come first.
FIRST = ("tutorial.md", "concepts.md")

_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_WITH_TEXT = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#]+)(?:#[^)\s]*)?\)")


def navigation() -> list[Any]:
    """MkDocs' `nav`: every page of the site once."""
    read_on = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Read on\n")[2]
    linked = [match["target"].removeprefix("docs/") for match in _LINK.finditer(read_on)]
    of_how_to = (DOCS / "how-to" / "README.md").read_text(encoding="utf-8")
    linked = [*(f"how-to/{match['target']}" for match in _LINK.finditer(of_how_to)), *linked]
    top = [path.name for path in DOCS.glob("*.md")]
    first = [name for name in FIRST if name in top]
    nav: list[Any] = ["index.md", *first]
    for heading, folder in FOLDERS.items():
        pages = {path.relative_to(DOCS).as_posix() for path in (DOCS / folder).glob("*.md")}
        if pages:
            nav.append({heading: _in_order(pages, [f"{folder}/README.md", *linked])})
    others = _in_order({*top} - {*first}, linked)
    return [*nav, {"More": [*others, *(name for name in OUTSIDE if name != "index.md")]}]


def _in_order(pages: Iterable[str], order: list[str]) -> list[str]:
    place = {page: number for number, page in reversed([*enumerate(order)])}
    return sorted(pages, key=lambda page: (place.get(page, len(order)), page))


def on_config(config: Any) -> Any:
    """MkDocs calls this first."""
    config["nav"] = navigation()
    return config


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this with the files of docs/."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "site.css", content=(ROOT / "tools/site/site.css").read_text(encoding="utf-8")))
    for name, source in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs calls this with the text of each page: links into docs/ are the site's, other files of the project are text."""
    name = page.file.src_uri
    # The navigation would name a page with an anchor before its heading after its file. The first page has the name of the site.
    heading = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    title = "Overview" if name == "index.md" else heading[1] if heading else page.title
    page.meta.setdefault("title", re.sub(r"[`*]", "", title))
    return rewritten(markdown, name)


def on_post_build(config: Any) -> None:
    """MkDocs calls this at the end. Raises `SystemExit` for a page that asks another host, or that the search does not know."""
    site = Path(config["site_dir"])
    for page in site.rglob("*.html"):
        if found := re.search(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text(encoding="utf-8")
        ):
            raise SystemExit(f"{page.relative_to(site)} loads {found[1]} from another host.")
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    known = {document["location"].partition("#")[0] for document in index["docs"]}
    if missing := [page for page in _pages(config["nav"]) if html_name(page) not in known]:
        raise SystemExit(f"the search does not know {', '.join(missing)}.")


def html_name(page: str) -> str:
    """The file of the site for a page."""
    return re.sub(r"README\.html$", "index.html", page.replace(".md", ".html"))


def _pages(nav: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in nav:
        found += [entry] if isinstance(entry, str) else [page for pages in entry.values() for page in _pages(pages)]
    return found


def rewritten(markdown: str, name: str) -> str:
    """The text of the page of that name with the links that the site has."""
    source = OUTSIDE.get(name) or f"docs/{name}"
    in_site = {original: outside for outside, original in OUTSIDE.items()}

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if target.endswith("/") or (ROOT / path).is_dir():
            path = f"{path}/README.md"
        if path in in_site:
            found = in_site[path]
        elif path.startswith("docs/") and (ROOT / path).is_file():
            found = path.removeprefix("docs/")
        else:
            return match["text"]
        return match[0].replace(target, posixpath.relpath(found, posixpath.dirname(name) or "."), 1)

    return _WITH_TEXT.sub(link, markdown)
