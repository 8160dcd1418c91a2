"""The form of a confirmation does what the page says, and leads back to each page."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from starlette.testclient import TestClient

from tests.support.browser import act, confirmation, form_of
from tests.support.pages_world import PagesWorld

DAY = "orders@2023-01-01"


@pytest.mark.parametrize("on", ["1", "yes", "True"])
def test_an_option_that_counts_for_the_page_is_in_its_form(acting: TestClient, own_world: PagesWorld, on: str) -> None:
    own_world.live(DAY)
    own_world.succeed("revenue@2023-01-01", inputs=[DAY])

    page = confirmation(acting, "taint", refs=DAY, downstream=on)

    assert "Readers of 2 partitions would see a taint." in page.text
    assert ("downstream", "true") in form_of(page.text)


def test_a_page_with_a_long_url_can_act_and_is_led_back_to(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.fail(DAY)
    # Each letter has nine characters in the url of the page.
    path = f"/wants?ref={quote(DAY)}&source={quote('值' * 150)}"

    answer = act(acting, "want", {}, refs=DAY, back=path)

    assert len(path) > 1_024
    location = urlsplit(answer.headers["location"])
    assert location.path == "/databuild/wants"
    assert parse_qs(location.query)["source"] == ["值" * 150]


def test_a_button_of_a_page_with_the_longest_url_leads_to_a_confirmation(
    acting: TestClient, own_world: PagesWorld
) -> None:
    own_world.fail(DAY)
    page = acting.get(f"/calendar?dataset=orders&ref={DAY}&within={'%20' * 1_000}")

    # A further one, without refs, is of the cells that are picked.
    (link,) = re.findall(r'href="/databuild(/confirm/retry\?refs=[^"]*)"', page.text)
    confirmed = acting.get(html.unescape(link))

    assert (page.status_code, confirmed.status_code) == (200, 200)
    assert ("refs", DAY) in form_of(confirmed.text)


def test_a_command_that_is_done_is_not_refused_for_its_way_back(acting: TestClient, own_world: PagesWorld) -> None:
    fields = dict(form_of(confirmation(acting, "want", refs=DAY).text))

    answer = act(acting, "want", {"back": "/wants?source=%ff"}, refs=DAY)

    assert fields["back"] == "/"
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/databuild/?done=")


def test_a_command_id_of_a_url_that_cannot_be_is_refused(acting: TestClient, own_world: PagesWorld) -> None:
    # PostgreSQL would fail at the first sign.
    assert acting.get("/?done=%00").status_code == 400
    assert acting.get(f"/?done={'x' * 2_000}").status_code == 400
    assert acting.get("/?done=web/want/unknown").status_code == 200
