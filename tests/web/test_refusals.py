"""Errors that name the place of a database, in a part of a page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from databuild_dagster.engine.engine import Engine
from databuild_dagster.store.errors import StoreBusy
from databuild_dagster.web.application import make_application
from databuild_dagster.web.routes import or_error
from databuild_dagster.web.state import State
from tests.support.browser import HTML, confirmation, form_of, sent
from tests.support.pages_world import PagesWorld

PLACE = "/srv/private/databuild.db"


def busy() -> Engine:
    raise StoreBusy(url=PLACE, why="another process writes")


def test_a_part_of_a_page_does_not_hide_that_the_store_is_busy() -> None:
    with pytest.raises(StoreBusy):
        or_error(busy)


@pytest.mark.parametrize(
    ("path", "n_before"),
    [
        # The page looks at the end of the log first.
        ("/plan?ref=orders@2023-01-01", 1),
        ("/confirm/want?refs=orders@2023-01-01", 0),
    ],
)
def test_a_store_that_is_busy_within_a_page_shows_no_place(own_world: PagesWorld, path: str, n_before: int) -> None:
    engines = [own_world.engine] * n_before
    state = State(lambda: engines.pop() if engines else busy(), None)

    with TestClient(make_application(state), raise_server_exceptions=False) as client:
        answer = client.get(path, headers=HTML)

    assert answer.status_code == 503
    assert PLACE not in answer.text
    assert "StoreBusy" in answer.text


def test_a_store_that_is_busy_as_an_action_is_done_shows_no_place(
    acting: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = form_of(confirmation(acting, "want", refs="orders@2023-01-01").text)
    monkeypatch.setattr(Engine, "handle", lambda *_, **__: busy())

    answer = sent(acting, "want", form, actor="Anna")

    assert answer.status_code == 503
    assert PLACE not in answer.text
