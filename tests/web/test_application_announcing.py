"""A web server announces where its pages are, and what links to them finds its page."""

from threading import Event
from threading import enumerate as enumerate_threads
from urllib.parse import quote

import dagster as dg
from starlette.testclient import TestClient

from databuild_dagster.bindings.display.materialization import page_of
from databuild_dagster.engine.orchestrator_notes import pages_root
from databuild_dagster.web.application import announce_pages, make_application, pages_routes
from tests.support.pages_world import MARKUP, PagesWorld

#: Until a thread has written one row.
MAX_SECONDS = 250


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


def test_a_read_only_web_server_writes_no_announcement() -> None:
    before = announcers()

    routes = pages_routes(dg.DagsterInstance.ephemeral(), "", is_read_only=True)

    assert len(routes) == 2
    assert announcers() == before


def announcers() -> list[int | None]:
    return [thread.ident for thread in enumerate_threads() if thread.name == "databuild-announce"]


def test_a_link_to_an_odd_partition_opens_its_page(world: PagesWorld) -> None:
    ref = f"named@{MARKUP}"
    link = page_of("/databuild", ref, None)

    answer = TestClient(make_application(world.state_behind_pages())).get(link.removeprefix("/databuild"))

    assert answer.status_code == 200
    assert quote("named@", safe="") in link
