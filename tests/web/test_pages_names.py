"""The docs, the navigation, the title and the heading of a page have one name for it."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.testclient import TestClient

from databuild_dagster.feature import built_in
from databuild_dagster.features import BUILT_IN
from databuild_dagster.web.pages import page_paths
from tests.support.pages_world import PagesWorld

from .test_pages import paths

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "pages.md"
ROW = re.compile(r"^\| ([A-Z]\w+) \| `(/[a-z]*)(?:\?[^`]*)?` \|", re.MULTILINE)


def test_a_page_has_the_name_of_the_docs_in_its_title_and_in_the_navigation(
    client: TestClient, world: PagesWorld
) -> None:
    documented = {path: name for name, path in ROW.findall(DOCS.read_text())}
    names = {path: name for path, name in documented.items() if path in page_paths()}
    (bar,) = re.findall('<nav aria-label="Pages">(.*?)</nav>', client.get("/").text, re.DOTALL)
    navigation = re.findall(r'<a href="/databuild(/[a-z]*)"[^>]*>([^<]*)</a>', bar)

    assert names.keys() == page_paths()
    assert documented == names or {feature.name for feature in built_in()} != {*BUILT_IN}
    assert navigation
    assert {path: name for path, name in navigation if name != names[path]} == {}
    # The first of each, because some of the others are refused.
    shown = {path.partition("?")[0]: path for path in reversed(paths(world))}
    assert shown.keys() == names.keys()
    titles = {
        path: re.findall("<title>([^<]*) – databuild</title>", client.get(url).text) for path, url in shown.items()
    }
    assert {path: title for path, (title,) in titles.items() if title.split()[0] != names[path]} == {}


def test_the_bar_shows_five_entries_and_the_others_in_a_list_named_for_the_page(client: TestClient) -> None:
    (on_now, on_builds) = (client.get(path).text.partition('<nav aria-label="Pages">')[2] for path in ("/", "/builds"))

    shown, _, more = on_now.partition('<details class="more"><summary>')
    assert re.findall(">(\\w+)</a>", shown) == ["Now", "Assets", "Wants", "Taints", "Plan"]
    assert more.startswith("More</summary>")
    assert '<details class="more"><summary>Builds</summary>' in on_builds
    assert 'aria-current="page">Builds</a>' in on_builds
