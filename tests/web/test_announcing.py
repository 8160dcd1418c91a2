"""A web server announces where its pages are, and what links to them finds its page."""

from threading import Event
from urllib.parse import quote

from starlette.testclient import TestClient

from databuild_dagster.bindings.display.page_links import page_of
from databuild_dagster.engine.pages_notes import pages_root
from databuild_dagster.web.announcing import announce_pages
from databuild_dagster.web.application import make_application

from .conftest import MARKUP, PagesWorld

#: Until a thread has written one row.
MAX_SECONDS = 30


def test_the_path_of_the_pages_is_announced_at_their_start() -> None:
    world, asked = PagesWorld(), Event()

    class Heartbeats:
        def beat(self, *arguments: object) -> None:
            world.engine.heartbeats.beat(*arguments)
            asked.set()

    announcing = world.process()
    announcing.heartbeats = Heartbeats()

    announce_pages(lambda: announcing, "/team/databuild")

    assert asked.wait(MAX_SECONDS)
    assert pages_root(world.engine) == "/team/databuild"


def test_a_link_to_an_odd_partition_opens_its_page(world: PagesWorld) -> None:
    ref = f"named@{MARKUP}"
    link = page_of("/databuild", ref, None)

    answer = TestClient(make_application(world.state_behind_pages())).get(link.removeprefix("/databuild"))

    assert answer.status_code == 200
    assert quote("named@", safe="") in link
