"""The docs, the navigation, the title and the heading of a page have one name for it, and an arc is found from its asset."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.testclient import TestClient

from databuild_dagster.web.pages import pages

from .conftest import PagesWorld
from .test_pages import paths

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "pages.md"
ROW = re.compile(r"^\| ([A-Z]\w+) \| `(/[a-z]*)(?:\?[^`]*)?` \|", re.MULTILINE)


def test_a_page_has_the_name_of_the_docs_in_its_title_and_in_the_navigation(
    client: TestClient, world: PagesWorld
) -> None:
    names = {path: name for name, path in ROW.findall(DOCS.read_text())}
    (bar,) = re.findall('<nav aria-label="Pages">(.*?)</nav>', client.get("/").text, re.DOTALL)
    navigation = re.findall(r'<a href="/databuild(/[a-z]*)"[^>]*>([^<]*)</a>', bar)

    assert names.keys() == {page.path for page in pages()}
    assert navigation
    assert {path: name for path, name in navigation if name != names[path]} == {}
    # The first of each, because some of the others are refused.
    shown = {path.partition("?")[0]: path for path in reversed(paths(world))}
    assert shown.keys() == names.keys()
    titles = {
        path: re.findall("<title>([^<]*) – databuild</title>", client.get(url).text) for path, url in shown.items()
    }
    assert {path: title for path, (title,) in titles.items() if title.split()[0] != names[path]} == {}


def test_the_calendar_and_the_partitions_of_an_arc_lead_to_it(client: TestClient, world: PagesWorld) -> None:
    for path in ("/calendar?dataset={}", "/partition?ref={}@2023-01-19"):
        assert 'href="/databuild/arc?name=mirror"' in client.get(path.format("mirror")).text
        assert "/arc?name=" not in client.get(path.format("orders")).text
