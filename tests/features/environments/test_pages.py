"""Environments on the pages: their list, their promotion, the mark of one on each page, commands that work in it (rules 16.10, 16.13)."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from databuild_dagster.bindings.registry.instance import close_engine, open_instance
from databuild_dagster.data.environment import home_of
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.features.environments import actions
from databuild_dagster.features.environments.errors import BaseMoved
from databuild_dagster.features.environments.records import Opened, close_in, open_in, opened_in
from databuild_dagster.features.environments.views import EnvironmentFigures, figures_of
from databuild_dagster.model.events import InstancesPromoted
from databuild_dagster.model.wording import in_environment
from databuild_dagster.web.application import make_application
from databuild_dagster.web.refusals import without_place
from databuild_dagster.web.settings import Settings
from databuild_dagster.web.state import State
from tests.features.environments.conftest import Shop, borrow, coded
from tests.features.environments.test_promoters import allow
from tests.features.environments.test_promoting import built, deploy
from tests.support.browser import confirmation, form_of, sent
from tests.support.pages_world import TOKEN, call, get, refused
from tests.support.world import World

PAGES = ("/", "/assets", "/wants", "/taints", "/builds", "/plan", "/search", "/environments", "/nowhere")
ENTRY = '<a href="/databuild/environments"'
#: Seconds of this process; ten times what it takes here.
MAX_SECONDS = 1.5


def pages_of(world: World, home: Path) -> TestClient:
    state = State(lambda: world.engine, SimpleNamespace(root_directory=str(home)))
    return TestClient(make_application(state), raise_server_exceptions=False)


def branch_pages(shop: Shop, branch: World) -> TestClient:
    return pages_of(branch, home_of(shop.home, "branch"))


@pytest.fixture
def base(shop: Shop) -> Iterator[TestClient]:
    with pages_of(shop.base, shop.home) as client:
        yield client


def text_of(client: TestClient, path: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", client.get(path).text).split())


def opened_only(shop: Shop, name: str) -> Opened:
    """A command that was killed right after it had recorded the opening in the base."""
    home = home_of(shop.home, name)
    opened = Opened(name, name, str(home), str(home.parent / "data"), 0.0, shop.base.clock() + 60, "kate")
    open_in(shop.base.engine, opened)
    return opened


def test_each_page_of_an_environment_has_its_mark(shop: Shop) -> None:
    branch = shop.branch()

    with branch_pages(shop, branch) as client:
        marks = {path: re.findall(r'<aside class="mark".*?</aside>', client.get(path).text) for path in PAGES}

    for path, found in marks.items():
        assert len(found) == 1, path
        words = " ".join(re.sub("<[^>]*>", " ", found[0]).split())
        assert words.startswith(f"Environment branch on {shop.home.parent.name}/base, pinned "), words
        assert "/databuild/environments" in found[0]
        assert re.search(r"<time [^>]*data-ago>", found[0])


def test_a_base_has_an_entry_while_it_has_environments_and_no_mark(shop: Shop, base: TestClient) -> None:
    before = base.get("/").text
    shop.branch()

    after = base.get("/").text

    assert ENTRY not in before
    assert ENTRY in after
    assert 'class="mark"' not in before + after


def test_the_list_has_what_each_environment_borrowed_and_built(shop: Shop, base: TestClient) -> None:
    branch = shop.branch(coded("clean", "raw", code="2"))
    borrow(branch, "report@x")
    branch.succeed("clean@x", inputs=["raw@x"])

    (found,) = get(base, "/environments")["environments"]

    written = branch.canonical("clean@x").bytes
    assert (found["name"], found["state"], found["borrowed"], found["built"]) == ("branch", "open", 2, 1)
    assert (found["bytes"], found["pin"]) == (written, shop.base.seq)
    assert found["pinned_at"] == found["opened_at"] < found["keep_until"]
    assert not {"home", "root"} & found.keys(), "the pages name no path"
    with branch_pages(shop, branch) as client:
        assert get(client, "/environments") == {"here": "branch", "environments": [found]}
        assert "branch these pages open" in text_of(client, "/environments")


def test_the_list_has_the_state_of_each_environment(shop: Shop, base: TestClient) -> None:
    for name, days in {"open": 14.0, "over": 1.0, "closing": 14.0}.items():
        shop.branch(name=name, days=days)
    close_in(shop.base.engine, opened_in(shop.base.store)["closing"])
    shop.base.clock.turn(2 * 86_400)
    opened_only(shop, "opening")

    found = {one["name"]: one["state"] for one in get(base, "/environments")["environments"]}

    assert found == {name: name for name in ("open", "over", "closing", "opening")}


def test_a_broken_environment_hides_no_other(shop: Shop, base: TestClient) -> None:
    shop.branch(name="sound")
    home = Path(shop.environments.create("broken").home)
    (home / "databuild.db").write_bytes(b"no database" * 1000)

    found = {one["name"]: (one["state"], one["built"]) for one in get(base, "/environments")["environments"]}

    assert found == {"sound": ("open", 0), "broken": ("open", None)}


def test_figures_are_read_again_when_the_log_has_grown(shop: Shop) -> None:
    branch, figures = shop.branch(), EnvironmentFigures()
    opened = opened_in(shop.base.store)["branch"]
    before = figures.of(opened)

    borrow(branch, "report@x")

    assert (before, figures.of(opened)) == ((0, 0, 0), figures_of(opened))
    assert figures.of(opened) == (4, 0, 0)


def test_a_base_that_is_away_is_one_sentence_on_the_page_alone(shop: Shop) -> None:
    branch = shop.branch()
    shop.base.close()
    shop.home.rename(shop.home.with_name("elsewhere"))

    with branch_pages(shop, branch) as client:
        assert client.get("/wants").status_code == 200
        assert refused(client, "/environments") == (503, "NoBase")
        shown = client.get("/environments").text

    assert str(shop.home) not in shown
    assert 'class="mark"' in shown
    shop.home.with_name("elsewhere").rename(shop.home)


def test_the_page_of_fifty_environments_is_fast(shop: Shop, base: TestClient) -> None:
    for number in range(50):
        shop.environments.create(f"branch-{number}")
    began = time.process_time()

    text = base.get("/environments").text

    assert time.process_time() - began < MAX_SECONDS
    assert text.count("<tr>") == 51


def test_a_command_on_a_page_of_an_environment_names_it(shop: Shop, base: TestClient) -> None:
    branch = shop.branch()
    plan = "/plan?ref=report@x"

    with branch_pages(shop, branch) as client:
        assert "<code>databuild --env branch plan report@x</code>" in client.get(plan).text
        assert "<code>databuild --env branch want create REF</code>" in client.get("/wants").text

    assert "<code>databuild plan report@x</code>" in base.get(plan).text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`databuild retry a` opens it", "`databuild --env x retry a` opens it"),
        ("`databuild …`", "`databuild --env x …`"),
        ("this opens all of it: databuild retry a", "this opens all of it: databuild --env x retry a"),
        ("`databuild --env y retry a`", "`databuild --env y retry a`"),
        ("`databuild env drop y` removes it", "`databuild env drop y` removes it"),
        ("databuild opens the session", "databuild opens the session"),
    ],
)
def test_a_command_in_a_text_gets_the_option(text: str, shown: str) -> None:
    assert in_environment(text, "x") == shown


#: The pages behind a login.
LOGIN = Settings(user_header="x-user", token=TOKEN)


@contextmanager
def acting_pages(shop: Shop, settings: Settings = LOGIN, user: str = "kate") -> Iterator[TestClient]:
    """The pages of the base over its Dagster, as a user of the login sees them."""
    with open_instance(shop.home) as instance:
        application = make_application(State(lambda: shop.base.engine, instance), settings=settings)
        routes = [Mount("/databuild", app=application)]
        client = TestClient(
            Starlette(routes=routes),
            "http://testserver/databuild",
            raise_server_exceptions=False,
            headers={"x-user": user},
        )
        with client:
            yield client
    close_engine(sqlite_url(shop.home))


def preview(client: TestClient, **query: str) -> str:
    return html.unescape(confirmation(client, "promote", environment="branch", back="/environments", **query).text)


def promote_in_browser(client: TestClient) -> Any:
    """Press the button of the page, then that of the confirmation; the page afterwards."""
    (link,) = re.findall(r'href="/databuild(/confirm/promote[^"]*)"', client.get("/environments").text)
    form = form_of(client.get(html.unescape(link)).text)
    answer = sent(client, "promote", form)
    assert answer.status_code == 303, answer.text
    return client.get(answer.headers["location"].removeprefix("/databuild")).text


def test_a_button_promotes_all_that_an_environment_built(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)

    with acting_pages(shop) as client:
        shown = preview(client)
        page = promote_in_browser(client)
        with open_instance(shop.home) as instance:
            materialized = instance.get_latest_materialization_event(dg.AssetKey("clean"))

    assert "The base would take 2 partitions from branch, in one event." in shown
    assert re.findall(r"ref=(clean%40x|report%40x)", shown) == ["clean%40x", "report%40x"]
    assert shop.base.uuid("clean@x") == branch.uuid("clean@x")
    (event,) = [event for event in shop.base.queries.events.after(0) if isinstance(event.fact, InstancesPromoted)]
    assert event.actor == "web:kate"
    assert re.search(r"Done: promoted\s+<a [^>]*>clean@x</a>", page)
    assert materialized is not None
    assert materialized.get_dagster_event().partition == "x"


def test_a_promotion_with_a_command_id_is_done_once(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    fields = {"environment": "branch", "command_id": "once"}

    with acting_pages(shop) as client:
        first = call(client, "promote", fields)
        seq = shop.base.seq
        second = call(client, "promote", fields)
        by_other = call(client, "promote", {**fields, "actor": "leo"})

    assert first.json() == second.json() == {"environment": "branch", "seq": seq}
    assert (by_other.status_code, by_other.json()["error"]["type"]) == (409, "CommandIdUsed")
    assert shop.base.seq == seq


def test_a_preview_has_each_cause_and_no_button(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    built(shop)
    before = shop.base.seq

    with acting_pages(shop) as client:
        shown = preview(client)
        monkeypatch.setattr(actions, "MAX_SHOWN", 0)
        bounded = call(client, "promote", {"environment": "branch", "dry_run": True}).json()
        refused = call(client, "promote", {"environment": "branch"})

    assert "The base takes nothing of branch, for 1 cause." in shown
    assert "clean@x: " in shown
    assert 'method="post"' not in shown
    assert bounded["causes"] == ["and 1 further cause"]
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "PromotionRefused")
    assert shop.base.seq == before


def test_a_user_who_is_no_promoter_reads_who_is(shop: Shop) -> None:
    built(shop)
    allow(shop, "web:kate", "user:deploy")
    sentence = "web:leo may not promote of the environment branch: clean, which web:kate, user:deploy may."

    with acting_pages(shop) as client:
        form = form_of(preview(client))
        client.headers["x-user"] = "leo"
        shown = preview(client)
        before = shop.base.seq
        refused = sent(client, "promote", form)

    assert "clean: web:leo may not promote it; web:kate, user:deploy may" in shown
    assert 'method="post"' not in shown
    assert (refused.status_code, shop.base.seq) == (400, before)
    assert sentence in html.unescape(refused.text)


def test_the_button_is_only_where_a_promotion_is_possible(shop: Shop) -> None:
    branch = built(shop)
    shop.branch(name="empty")
    button = "/confirm/promote?"

    with acting_pages(shop) as client:
        assert client.get("/environments").text.count(button) == 1
    with acting_pages(shop, Settings(read_only=True)) as client:
        assert button not in client.get("/environments").text
        assert call(client, "promote", {"environment": "branch"}).json()["error"]["type"] == "ReadOnlyServer"
    with branch_pages(shop, branch) as client:
        assert button not in client.get("/environments").text
        assert "This build state has no environment branch." in preview(client)


def test_the_page_about_a_moved_base_names_no_path() -> None:
    error = BaseMoved(name="branch", base="/srv/before", here="/srv/now")

    shown = without_place(error, "/confirm/promote")

    assert "/srv" not in f"{shown} {getattr(shown, 'hint', '')}"
