"""What a browser does with a page, and with a confirmation: it keeps cookies, sends the fields of the form, names the origin."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx
from starlette.testclient import TestClient

API = "/api/v1"
ORIGIN = {"origin": "http://testserver", "sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html,application/xhtml+xml"}
_INPUT = re.compile(r"<input ([^>]*)>")
_ATTRIBUTE = re.compile(r'([a-z-]+)="([^"]*)"')


class Tags(HTMLParser):
    """The tags of a page as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def form_of(text: str) -> list[tuple[str, str]]:
    """The fields of the form of a page, as they are."""
    (form,) = re.findall(r'<form class="panel act".*?</form>', text, re.DOTALL)
    inputs = [dict(_ATTRIBUTE.findall(attributes)) for attributes in _INPUT.findall(form)]
    return [(found["name"], html.unescape(found.get("value", ""))) for found in inputs]


def confirmation(client: TestClient, action: str, **query: Any) -> httpx.Response:
    return client.get(f"/confirm/{action}", params=query, headers=HTML)


def sent(client: TestClient, action: str, fields: list[tuple[str, str]], **typed: str) -> httpx.Response:
    """The answer to a form whose text fields a person has filled in."""
    filled = [(name, typed.pop(name, value)) for name, value in fields]
    assert not typed, f"the form has no field {typed}"
    body = urlencode(filled)
    headers = {**HTML, **ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    return client.post(f"{API}/actions/{action}", content=body, headers=headers, follow_redirects=False)


def act(client: TestClient, action: str, typed: dict[str, str], **query: Any) -> httpx.Response:
    """Confirm an action as Anna."""
    page = confirmation(client, action, **query)
    assert page.status_code == 200, page.text
    return sent(client, action, form_of(page.text), actor="Anna", **typed)
