"""The name under which the log knows an action: of the proxy's login, or typed and marked as such."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from databuild_dagster.web.authority import Authority, cookie_of
from databuild_dagster.web.settings import Settings
from tests.support.browser import API, HTML, ORIGIN, confirmation, form_of
from tests.support.pages_world import PagesWorld, mounted

USER = "X-Forwarded-User"
DAY = "orders@2023-01-01"


@pytest.fixture
def behind_a_proxy(own_world: PagesWorld) -> Iterator[TestClient]:
    with mounted(own_world, Settings(user_header=USER)) as client:
        yield client


def test_the_user_of_the_proxy_is_the_actor_and_no_name_is_asked_for(
    behind_a_proxy: TestClient, own_world: PagesWorld
) -> None:
    page = behind_a_proxy.get(f"/confirm/want?refs={DAY}", headers={**HTML, USER: "anna"})
    form = dict(form_of(page.text))

    done = behind_a_proxy.post(
        f"{API}/actions/want",
        data={**form, "actor": "Berta"},
        headers={**HTML, **ORIGIN, USER: "anna"},
        follow_redirects=False,
    )

    assert (page.status_code, done.status_code) == (200, 303)
    assert "actor" not in form
    assert "<strong>web:anna</strong>" in page.text
    assert own_world.open_wants(DAY)[0].actor == "web:anna"


@pytest.mark.parametrize("users", [[], [""], ["anna", "berta"], ["anna (unverified)"]])
def test_a_request_without_one_user_of_the_proxy_is_refused(
    behind_a_proxy: TestClient, own_world: PagesWorld, users: list[str]
) -> None:
    form = dict(form_of(behind_a_proxy.get(f"/confirm/want?refs={DAY}", headers={**HTML, USER: "anna"}).text))
    before = own_world.seq
    headers = [*ORIGIN.items(), *((USER, user) for user in users)]

    refused = behind_a_proxy.post(f"{API}/actions/want", data={**form, "actor": "Berta"}, headers=headers)  # type: ignore[arg-type]

    assert (refused.status_code, own_world.seq) == (403 if len(users) != 1 or not users[0] else 400, before)
    assert refused.json()["error"]["type"] in ("NoUserOfProxy", "BadName")


def test_a_header_of_a_proxy_that_is_not_configured_is_ignored(own_world: PagesWorld) -> None:
    client = mounted(own_world)
    form = dict(form_of(confirmation(client, "want", refs=DAY).text))

    client.post(f"{API}/actions/want", data={**form, "actor": "Berta"}, headers={**ORIGIN, USER: "anna"})

    assert own_world.open_wants(DAY)[0].actor == "web:Berta (unverified)"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "inside:3000", "x-forwarded-host": "pages.example", "origin": "https://pages.example"}, 200),
        ({"host": "pages.example:8443", "origin": "https://pages.example:8443"}, 200),
        ({"host": "inside:3000", "origin": "https://pages.example"}, 403),
        ({"host": "pages.example:8443", "origin": "https://pages.example"}, 403),
        ({"host": "inside:3000", "origin": "https://inside:3000@evil.example"}, 403),
        ({"host": "inside:3000", "origin": "http://[evil"}, 403),
    ],
)
def test_a_form_is_of_the_host_that_the_proxy_passes_on(
    own_world: PagesWorld, headers: dict[str, str], status: int
) -> None:
    client = mounted(own_world, Settings(hosts=frozenset({"pages.example"})))

    answer = _posted(client, headers)

    assert answer.status_code == status, answer.text


def _posted(client: TestClient, headers: dict[str, str]) -> httpx.Response:
    """The answer to Anna's form with these headers."""
    page = confirmation(client, "want", refs=DAY)
    form = {**dict(form_of(page.text)), "actor": "Anna"}
    cookie = f"databuild_session={page.cookies['databuild_session']}"
    return client.post(f"{API}/actions/want", data=form, headers={**headers, "cookie": cookie})


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:3000", "origin": "http://evil.example:3000"},
        {"host": "evil.example", "origin": "http://evil.example", "x-forwarded-host": "localhost"},
        {"host": "EVIL.example.", "origin": "http://EVIL.example."},
        {"host": "evil.example:3000", "sec-fetch-site": "same-origin"},
        {"host": "127.0.0.1.evil.example", "origin": "http://127.0.0.1.evil.example"},
    ],
)
def test_a_page_that_lets_its_own_name_lead_to_this_server_cannot_act(
    own_world: PagesWorld, headers: dict[str, str]
) -> None:
    client, before = mounted(own_world), own_world.seq

    refused = _posted(client, headers)

    assert (refused.status_code, own_world.seq) == (403, before), refused.text
    assert refused.json()["error"]["type"] == "UnknownHost"


@pytest.mark.parametrize(
    "host", ["localhost:3000", "127.0.0.1:3000", "[::1]:3000", "10.0.0.7", "build-server", "a.localhost"]
)
def test_a_host_that_no_stranger_can_publish_is_known(own_world: PagesWorld, host: str) -> None:
    answer = _posted(mounted(own_world), {"host": host, "origin": f"http://{host}"})

    assert answer.status_code == 200, answer.text


def test_pages_are_read_under_any_name(own_world: PagesWorld) -> None:
    assert mounted(own_world).get("/", headers={**HTML, "host": "pages.example"}).status_code == 200


def test_a_form_that_the_login_of_a_proxy_confirms_is_taken_under_any_name(behind_a_proxy: TestClient) -> None:
    page = behind_a_proxy.get(f"/confirm/want?refs={DAY}", headers={**HTML, USER: "anna"})
    host = {"host": "pages.example", "origin": "http://pages.example"}
    cookie = f"databuild_session={page.cookies['databuild_session']}"

    answer = behind_a_proxy.post(
        f"{API}/actions/want", data=dict(form_of(page.text)), headers={**host, USER: "anna", "cookie": cookie}
    )

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
    ],
)
def test_a_page_of_another_site_may_open_a_confirmation_and_not_load_it(
    own_world: PagesWorld, site: str, mode: str, status: int
) -> None:
    """A rehearsal takes the lock of writers, and an image of another site would take it again and again."""
    client = mounted(own_world)

    answer = client.get("/confirm/want", params={"refs": DAY}, headers={"sec-fetch-site": site, "sec-fetch-mode": mode})

    assert answer.status_code == status, answer.text


def test_a_token_of_another_server_process_is_asked_for_again(own_world: PagesWorld) -> None:
    """As after a restart: the page is shown again, with what was typed and a new token."""
    before, after = mounted(own_world), mounted(own_world)
    page = confirmation(before, "want", refs=DAY)
    form = {**dict(form_of(page.text)), "actor": "Anna", "comment": "for the report"}
    after.cookies.update(page.cookies)

    refused = after.post(f"{API}/actions/want", data=form, headers={**HTML, **ORIGIN})
    again = dict(form_of(refused.text))
    done = after.post(f"{API}/actions/want", data=again, headers={**HTML, **ORIGIN}, follow_redirects=False)

    assert (refused.status_code, done.status_code) == (403, 303)
    assert (again["comment"], again["actor"]) == ("for the report", "Anna")
    assert own_world.open_wants(DAY)[0].actor == "web:Anna (unverified)"


def test_cookies_are_of_the_pages_and_of_no_script(own_world: PagesWorld) -> None:
    client = mounted(own_world, prefix="/behind/a/proxy", host="https://testserver")

    page = client.get(f"/confirm/want?refs={DAY}")

    (cookie,) = page.headers.get_list("set-cookie")
    parts = {part.strip() for part in cookie.split(";")}
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/behind/a/proxy/databuild"} <= parts


def request(*headers: tuple[str, str]) -> Request:
    return Request({"type": "http", "headers": [(name.lower().encode(), value.encode()) for name, value in headers]})


@pytest.mark.parametrize(("text", "value"), [("a=1; b=2", "1"), ("b=2", ""), ("a", ""), ("a=1; a=2", "")])
def test_a_cookie_that_comes_twice_counts_as_none(text: str, value: str) -> None:
    """One of them may be another program's."""
    assert cookie_of(request(("cookie", text)), "a") == value


@pytest.mark.parametrize(
    ("cookie", "name"), [("Anna", "Anna"), ("Anna%20%28unverified%29", ""), ("%ff", ""), ("%0A", "")]
)
def test_a_name_of_a_cookie_that_no_person_could_type_is_forgotten(cookie: str, name: str) -> None:
    assert Authority(Settings(), "/").typed_name(request(("cookie", f"databuild_name={cookie}"))) == name


@pytest.mark.parametrize(("session", "is_kept"), [("a" * 43, True), ("a" * 42, False), ("ä" + "a" * 42, False)])
def test_a_session_that_this_server_cannot_have_made_is_replaced(session: str, is_kept: bool) -> None:
    found, token = Authority(Settings(), "/").page_token(request(("cookie", f"databuild_session={session}")))

    assert (found == session, len(found), token != session) == (is_kept, 43, True)


def test_the_user_of_a_proxy_may_have_any_letters() -> None:
    actor = Authority(Settings(user_header=USER), "/").actor_of_page(request((USER, "jörg")))

    assert (actor.text, actor.typed) == ("web:jörg", None)
