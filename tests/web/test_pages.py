"""Every page over the small state: it renders, escapes what it shows, and links to pages that exist."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import quote

import pytest
from httpx import Response
from starlette.testclient import TestClient

from databuild_dagster.web.api import route_names
from databuild_dagster.web.application import MOUNT, make_application
from databuild_dagster.web.pages import Pages, page_paths, pages
from databuild_dagster.web.routes import Ask, Page
from tests.support.browser import Tags
from tests.support.pages_world import ATTRIBUTE, MARKUP, PagesWorld

SCRIPTS = ("vendor/htmx-2.0.11.min.js", "vendor/idiomorph-ext-0.8.0.min.js", "pages.js")
#: Values of urls in our own templates.
URLS = re.compile(r"/databuild/|/assets/|/runs/|/$|#(content|grid|failed|waited|building)$")


def paths(world: PagesWorld) -> list[str]:
    want = world.open_wants("orders@2023-01-07")[0]
    first, second = world.queries.instances.history("shown")
    written = [
        "/",
        "/assets",
        "/assets?search=o&limit=1&offset=1",
        "/calendar?dataset=orders&ref=orders@2023-01-05",
        "/calendar?dataset=orders&ref=orders@2023-01-08",
        "/calendar?dataset=orders&ref=orders@2023-01-05&as_of=9",
        "/calendar?dataset=ticks",
        "/calendar?dataset=ticks&within=2022-03-04",
        "/calendar?dataset=whole",
        f"/calendar?dataset=named&ref={quote('named@' + MARKUP)}",
        "/calendar?dataset=named&find=name",
        f"/calendar?dataset=named&find={quote(ATTRIBUTE + MARKUP)}",
        "/numbers?dataset=orders",
        "/numbers?dataset=ticks&value=seconds",
        f"/numbers?dataset=named&within={quote(MARKUP)}",
        "/partition?ref=orders@2023-01-02",
        "/partition?ref=orders@2023-01-02&as_of=4",
        "/partition?ref=orders@2023-01-05",
        "/partition?ref=orders@2023-01-08",
        "/partition?ref=revenue@2023-01-01",
        f"/lineage?instance={world.uuid('revenue@2023-01-01')}",
        f"/lineage?instance={world.uuid('named@' + ATTRIBUTE)}&levels=5",
        f"/lineage?instance={first.uuid}&as_of={first.seq}",
        f"/partition?ref={quote('named@' + ATTRIBUTE)}",
        "/partition?ref=shown",
        f"/diff?a={first.uuid}&b={second.uuid}",
        f"/diff?a={world.uuid('revenue@2023-01-01')}&b={world.uuid('orders@2023-01-05')}",
        f"/receipt?instance={world.uuid('revenue@2023-01-01')}",
        f"/receipt?instance={second.uuid}",
        "/sample?ref=shown",
        f"/lineage?instance={world.uuid('revenue@2023-01-01')}&unfold=orders",
        "/environments",
        "/taints",
        "/search",
        f"/search?q={quote(MARKUP)}",
        f"/search?q={quote('named@' + ATTRIBUTE)}",
        f"/search?q={world.uuid('revenue@2023-01-01')[-8:]}",
        "/wants",
        "/wants?ended=1&as_of=30",
        "/wants?ended=1&derivative=true",
        f"/wants?source={quote(MARKUP)}",
        f"/want?name={want.id}",
        "/plan",
        "/plan?ref=revenue@2023-01-01",
        "/plan?ref=orders@2023-01-01&what=taint&downstream=true",
        f"/plan?ref={quote('named@' + MARKUP)}&what=taint",
        f"/plan?ref={quote('nowhere@' + MARKUP)}",
        f"/want?name={want.request_id}",
        "/arcs",
        f"/arcs?search={quote(MARKUP)}",
        "/arc?name=mirror",
        "/arc?name=summary&limit=1&offset=1",
        "/gaps?dataset=mirror",
        "/gaps?dataset=mirror&start=2023-01-05&end=2023-01-20",
        f"/gaps?dataset={quote(ATTRIBUTE)}",
        f"/gaps?dataset=mirror&start={quote(MARKUP)}",
        "/operations",
        f"/operations?dataset={quote(MARKUP)}",
        f"/operation?id={quote(str(world.running))}",
        "/operation?id=orders.write.1",
        "/builds",
        "/builds?ended=true&job=orders",
        f"/builds?job={quote(MARKUP)}",
        "/delegations",
        f"/delegations?builds=true&requester={quote(ATTRIBUTE)}",
        f"/delegations?ref={quote('orders@' + MARKUP)}",
        f"/partition?ref={quote(MARKUP)}",
        f"/calendar?dataset={quote(ATTRIBUTE)}",
    ]
    there = [path for path in written if path.partition("?")[0] in page_paths()]
    return [path for path in there if "what=" not in path or "what-if" in route_names()]


@pytest.fixture(scope="module")
def answers(world: PagesWorld) -> dict[str, Response]:
    """One look at each page."""
    with TestClient(make_application(world.state_behind_pages()), raise_server_exceptions=False) as client:
        return {path: client.get(path) for path in paths(world)}


def test_every_page_renders(answers: dict[str, Response]) -> None:
    assert {path.partition("?")[0] for path in answers} == {page.path for page in pages()}
    assert {
        path: answer.status_code for path, answer in answers.items() if answer.status_code not in (200, 400, 404)
    } == {}
    assert [answer.status_code for answer in answers.values()].count(200) == len(answers) - 2
    assert {answer.headers["content-type"] for answer in answers.values()} == {"text/html; charset=utf-8"}


def test_no_value_becomes_markup(answers: dict[str, Response]) -> None:
    """A partition key, the name of an asset, an error, and the reasons of a taint and of a pause."""
    texts = {path: answer.text for path, answer in answers.items()}

    for path, text in texts.items():
        tags = Tags(text).found
        assert {attrs.get("src", "inline") for tag, attrs in tags if tag == "script"} == {
            f"/databuild/static/{name}" for name in SCRIPTS
        }, path
        assert {attrs["src"] for tag, attrs in tags if tag == "img"} == {"/databuild/static/icon.svg"}, path
        names = {name for _, attrs in tags for name in attrs}
        assert not {name for name in names if name == "style" or name.startswith("on")}, path
        links = {value or "" for _, attrs in tags for name, value in attrs.items() if name in ("href", "src", "action")}
        assert {link for link in links if not URLS.match(link)} == set(), path
    shown = html.unescape("".join(texts.values()))
    assert shown.count(MARKUP) > 3
    assert shown.count(ATTRIBUTE) > 3


def test_every_link_to_a_page_leads_to_one(client: TestClient, answers: dict[str, Response]) -> None:
    found = {
        html.unescape(link).removeprefix(MOUNT)
        for answer in answers.values()
        for link in re.findall(r'href="(/databuild/[^"]*)"', answer.text)
    }

    one_of_each = {re.sub(r"=[^&]*", "=", link): link for link in sorted(found)}
    assert len(one_of_each) > 10
    assert {link: client.get(link).status_code for link in one_of_each.values()} == dict.fromkeys(
        one_of_each.values(), 200
    )


def test_urls_begin_with_the_path_prefix(world: PagesWorld) -> None:
    client = TestClient(make_application(world.state_behind_pages(), "/behind/a/proxy"))

    text = client.get("/partition?ref=orders@2023-01-02").text

    links = re.findall(r'(?:href|src|action)="([^"#]*)"', text)
    assert links
    assert {link for link in links if not link.startswith("/behind/a/proxy/")} == set()
    assert "/behind/a/proxy/assets/orders?view=partitions&amp;partition=2023-01-02" in links


def test_alike_causes_share_a_line_on_the_page_of_a_want(own_world: PagesWorld) -> None:
    """As `databuild explain` has them: the first in full, and the others by their names."""
    own_world.live(*(f"orders@2023-01-{day:02}" for day in range(5, 32)))
    for day in range(1, 5):
        own_world.fail(f"orders@2023-01-0{day}", error=f"ValueError: no file of 2023-01-0{day}")
    want = own_world.want("revenue@2023-01-01")

    with TestClient(make_application(own_world.state_behind_pages())) as client:
        text = client.get(f"/want?name={want}").text

    (causes,) = re.findall(r'<ol class="causes">(.*?)</ol>', text, re.DOTALL)
    (of_days,) = [line for line in causes.split("<li") if "no file of" in line]
    assert re.findall(r"no file of ([-0-9]+)", of_days) == ["2023-01-01"]
    assert re.findall(r">(orders@[^<]+)</a>", of_days) == [f"orders@2023-01-0{day}" for day in range(1, 5)]
    assert "And likewise" in of_days


def test_a_click_on_a_cell_says_why_in_the_words_of_explain(client: TestClient) -> None:
    text = client.get("/calendar?dataset=orders&ref=orders@2023-01-05").text

    assert 'aria-current="true"' in text
    assert "<code>databuild retry orders@2023-01-05</code>" in text


def test_a_page_follows_the_log_from_before_its_first_answer(world: PagesWorld) -> None:
    begun = world.seq

    def while_an_event_comes(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
        world.want("orders@2023-01-20")
        return {"error": {"message": "", "hint": ""}, "status": 200}

    rendered = Pages(world.state_behind_pages(), "", MOUNT)
    text = rendered.render(Page("/", "error.html", while_an_event_comes), {}, "")

    assert f'data-seq="{begun}"' in text
    assert world.seq > begun


def test_an_instance_of_another_partition_is_not_shown(client: TestClient, world: PagesWorld) -> None:
    other = world.uuid("whole")

    answer = client.get(f"/partition?ref=orders@2023-01-01&instance={other}")

    assert answer.status_code == 404
    assert "There is no instance of orders@2023-01-01" in answer.text
